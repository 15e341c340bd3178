//! The networks in a real browser, run by wasm-pack: burn-flex and burn-wgpu against diffusers.
#![cfg(all(target_family = "wasm", feature = "burn-wgpu"))]
#![allow(clippy::expect_used)]

use latent_canvas::engine::{Eager, burn::BurnEngine, burn_wgpu};
use latent_canvas_tests::{
    modules::{check, text, unet, vae},
    tiny::{TINY_DEEP, TINY_SD2, Tiny},
};
use wasm_bindgen_test::{wasm_bindgen_test, wasm_bindgen_test_configure};

wasm_bindgen_test_configure!(run_in_dedicated_worker);

/// A software GPU is slow: the small models, one timestep.
async fn all_networks<E: Eager>(engine: &E, tiny: &Tiny, tolerance: f64) {
    let title = format!("{} {}", engine.name(), tiny.name);
    check(&title, &text(engine, tiny).await, tolerance);
    let rows = unet(engine, tiny, &tiny.odd_unet_fixture(), &[981]).await;
    check(&title, &rows, tolerance);
    check(&title, &vae(engine, tiny).await, tolerance);
}

#[wasm_bindgen_test]
async fn cpu_engine() {
    for tiny in [TINY_SD2, TINY_DEEP] {
        all_networks(&BurnEngine::cpu(), &tiny, 1e-4).await;
    }
}

#[wasm_bindgen_test]
async fn webgpu_engine() {
    let (engine, adapter) = burn_wgpu::request().await.expect("a WebGPU adapter");
    println!("adapter: {adapter}");
    for tiny in [TINY_SD2, TINY_DEEP] {
        all_networks(&engine, &tiny, 1e-3).await;
    }
}
