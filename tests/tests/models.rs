//! The three networks on the CPU engine against diffusers: 1e-4 relative for every module.
#![cfg(all(feature = "burn", not(target_family = "wasm")))]

use latent_canvas::engine::burn::BurnEngine;
use latent_canvas_tests::{
    modules::{check, text, unet, vae},
    tiny::{TINY_DEEP, TINY_MODEL, TINY_SD2},
};

const TOLERANCE: f64 = 1e-4;
const TIMESTEPS: [u32; 3] = [981, 481, 1];

#[test]
fn text_encoder() {
    for tiny in [TINY_MODEL, TINY_SD2, TINY_DEEP] {
        let rows = pollster::block_on(text(&BurnEngine::cpu(), &tiny));
        check(tiny.name, &rows, TOLERANCE);
    }
}

#[test]
fn unet_at_three_timesteps() {
    for tiny in [TINY_MODEL, TINY_SD2, TINY_DEEP] {
        let rows = pollster::block_on(unet(
            &BurnEngine::cpu(),
            &tiny,
            &tiny.unet_fixture(),
            &TIMESTEPS,
        ));
        assert!(rows.len() >= 9, "every block and three predictions");
        check(tiny.name, &rows, TOLERANCE);
    }
}

#[test]
fn unet_with_levels_of_odd_size() {
    for tiny in [TINY_MODEL, TINY_SD2, TINY_DEEP] {
        let rows = pollster::block_on(unet(
            &BurnEngine::cpu(),
            &tiny,
            &tiny.odd_unet_fixture(),
            &TIMESTEPS,
        ));
        check(&format!("{} 9x7", tiny.name), &rows, TOLERANCE);
    }
}

#[test]
fn vae_decoder() {
    for tiny in [TINY_MODEL, TINY_SD2, TINY_DEEP] {
        let rows = pollster::block_on(vae(&BurnEngine::cpu(), &tiny));
        check(tiny.name, &rows, TOLERANCE);
    }
}
