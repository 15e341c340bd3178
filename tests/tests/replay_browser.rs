//! Planned networks in a real browser, run by wasm-pack: diffusers' values with the browser's own compiler and its checks of bindings
//! that native wgpu does not make, within the default limits.
#![cfg(all(target_family = "wasm", feature = "plan"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod replay_browser {
    mod faults;
    mod hooks;
    mod memory;
    mod tokenizer;
}

use std::sync::Arc;

use latent_canvas::{
    engine::plan::{AttentionChoice, Fusions, Gpu, LowerOptions},
    kernels::Precision,
};
use latent_canvas_tests::{
    fixture::relative_error,
    planned::{
        TIMESTEPS, new_gpu, run_text, run_unet, run_vae, text_network, unet_network, vae_network,
    },
    tiny::{TINY_DEEP, TINY_SD2, Tiny},
};
use wasm_bindgen_test::{console_log, wasm_bindgen_test, wasm_bindgen_test_configure};

wasm_bindgen_test_configure!(run_in_dedicated_worker);

const F32: f64 = 1e-4;
const F16: f64 = 2e-2;

fn check(title: &str, got: &[f32], expected: &[f32], tolerance: f64) {
    let error = relative_error(got, expected);
    console_log!("{title:40} {error:.2e}");
    assert!(error <= tolerance, "{title}: {error:.2e}");
}

async fn device() -> Arc<Gpu> {
    #[allow(clippy::arc_with_non_send_sync)]
    let gpu = Arc::new(new_gpu().await);
    console_log!("adapter: {}", gpu.adapter());
    gpu
}

fn planned(precision: Precision) -> LowerOptions {
    LowerOptions {
        hoist_schedule: Some(TIMESTEPS.len()),
        ..LowerOptions::new(precision)
    }
}

async fn unet(gpu: &Arc<Gpu>, tiny: &Tiny, options: &LowerOptions, passes: usize, tolerance: f64) {
    let fixture = tiny.odd_unet_fixture();
    let mut network = unet_network(gpu, tiny, &fixture, options, passes).await;
    let predictions = run_unet(&mut network, tiny, &fixture).await;
    for (got, timestep) in predictions.iter().zip(TIMESTEPS) {
        let name = format!("noise_pred.{timestep}");
        let title = format!("{} {name} {:?}", tiny.name, options.activations);
        let expected = fixture.get(&name).channels_last();
        check(&title, got, &expected, tolerance);
    }
    let promised = network.promised();
    assert_eq!(gpu.memory().live_bytes(), promised.peak_bytes);
    drop(network);
    assert_eq!(gpu.memory().live_bytes(), 0);
}

#[wasm_bindgen_test]
async fn unet_equals_diffusers() {
    let gpu = device().await;
    unet(&gpu, &TINY_DEEP, &planned(Precision::F32), 2, F32).await;
    unet(&gpu, &TINY_SD2, &planned(Precision::F16), 1, F16).await;
}

#[wasm_bindgen_test]
async fn unet_with_all_choices_off_equals_diffusers() {
    let options = LowerOptions {
        fusions: Fusions::NONE,
        in_place: false,
        hoist_text: false,
        hoist_schedule: None,
        attention: AttentionChoice::Sliced,
        ..LowerOptions::new(Precision::F32)
    };
    unet(&device().await, &TINY_SD2, &options, 1, F32).await;
}

#[wasm_bindgen_test]
async fn text_encoder_and_vae_decoder_equal_diffusers() {
    let gpu = device().await;
    for (precision, tolerance) in [(Precision::F32, F32), (Precision::F16, F16)] {
        let (tiny, options) = (&TINY_DEEP, planned(precision));
        let fixture = tiny.text_fixture();
        let mut network = text_network(&gpu, tiny, &fixture, &options).await;
        let got = run_text(&mut network, &fixture).await;
        let expected = &fixture.get("text.last_hidden_state").values;
        check(&format!("text {precision:?}"), &got, expected, tolerance);
        drop(network);
        let fixture = tiny.vae_fixture();
        let mut network = vae_network(&gpu, tiny, &fixture, &options).await;
        let got = run_vae(&mut network, tiny, &fixture).await;
        let expected = fixture.get("vae.sample").channels_last();
        check(&format!("vae {precision:?}"), &got, &expected, tolerance);
    }
    assert_eq!(gpu.memory().live_bytes(), 0);
}
