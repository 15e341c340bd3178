//! The UNet of Stable Diffusion 1.5 in its real size in a real browser, within WebGPU's default limits: diffusers' values, and the time of a pass.
//!
//! Run when asked for, by `./build.sh test --full`: the weights alone take 1.7 GB and some minutes to draw.
#![cfg(all(target_family = "wasm", feature = "plan"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use latent_canvas::{
    engine::plan::{LowerOptions, Network, NetworkWeights, Plan, ReplayOptions},
    kernels::Precision,
    models::names::Component,
};
use latent_canvas_tests::{fixture::relative_l2, full_size, planned::new_gpu};
use wasm_bindgen_test::{console_log, wasm_bindgen_test, wasm_bindgen_test_configure};

wasm_bindgen_test_configure!(run_in_dedicated_worker);

/// Most that the prediction may be away from diffusers in float32, as relative L2.
const MOST: [(Precision, f64); 2] = [(Precision::F32, 2e-3), (Precision::F16, 2e-2)];
const SIDE: usize = 16;

fn now() -> f64 {
    js_sys::Date::now() / 1e3
}

#[wasm_bindgen_test]
async fn unet_16x16() {
    // never leaves its thread, as GPU objects cannot
    #[allow(clippy::arc_with_non_send_sync)]
    let gpu = Arc::new(new_gpu().await);
    let fixture = full_size::unet_fixture();
    let expected = fixture.get(&format!("unet.sample.{SIDE}")).channels_last();
    let mut weights: Option<Arc<NetworkWeights>> = None;
    for (precision, most) in MOST {
        let options = LowerOptions {
            hoist_schedule: Some(1),
            ..LowerOptions::new(precision)
        };
        let plan = Plan::new(full_size::unet_graph(SIDE), &options, 1, gpu.limits()).unwrap();
        let replay = ReplayOptions::new(&gpu);
        let start = now();
        let mut network = match &weights {
            Some(weights) => Network::with_weights(&gpu, plan, Arc::clone(weights), replay)
                .await
                .unwrap(),
            None => {
                let mut network = Network::new(&gpu, plan, replay).await.unwrap();
                full_size::fill(&mut network, Component::UNet).await;
                network
            }
        };
        weights = Some(network.weights());
        full_size::begin_unet(&mut network, SIDE).await;
        network.finish().await.unwrap();
        let began = now();
        // the first run waits for pipelines
        let mut took = [0.0; 2];
        for took in &mut took {
            let start = now();
            network.run_step(0, 0).await.unwrap();
            network.finish().await.unwrap();
            *took = now() - start;
        }
        let got = network.read_output("noise_pred").await.unwrap();
        let distance = relative_l2(&got, &expected);
        let promised = network.promised();
        console_log!(
            "unet at {SIDE}x{SIDE} latents, {precision:?} on {}: relative L2 {distance:.2e}, begun in {:.1} s, {:.1} s the first pass, {:.1} s the second, {} bytes",
            gpu.adapter(),
            began - start,
            took[0],
            took[1],
            promised.peak_bytes
        );
        assert!(distance <= most, "{precision:?}: {distance:e}");
        assert_eq!(gpu.memory().live_bytes(), promised.peak_bytes);
    }
    drop(weights);
    assert_eq!(gpu.memory().live_bytes(), 0);
}
