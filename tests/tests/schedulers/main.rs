//! The schedulers: against diffusers, against the faults that other programs had in theirs, and their configs.
#![cfg(not(target_family = "wasm"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod config;
mod golden;
mod regressions;

use latent_canvas::schedulers::SchedulerConfig;
use serde_json::{Value, json};

/// Stable Diffusion 1.x's config, with some keys replaced (null takes a key away).
pub(crate) fn stock(changes: &Value) -> SchedulerConfig {
    let mut config = json!({
        "_class_name": "PNDMScheduler", "beta_start": 0.00085, "beta_end": 0.012,
        "beta_schedule": "scaled_linear", "num_train_timesteps": 1000, "steps_offset": 1,
        "set_alpha_to_one": false, "skip_prk_steps": true, "clip_sample": false,
    });
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
        if value.is_null() {
            config.as_object_mut().unwrap().remove(key);
        }
    }
    SchedulerConfig::from_json(&config.to_string()).unwrap()
}

/// The same function as `model` in `golden/schedulers.py`.
pub(crate) fn model(sample: &[f32], timestep: f32) -> Vec<f32> {
    (0..sample.len())
        .map(|i| {
            let x = f64::from(sample[i]);
            let next = f64::from(sample[(i + 1) % sample.len()]);
            let phase = 1.1 * x + 0.003 * f64::from(timestep) + 0.5 * i as f64;
            (0.9 * phase.sin() + 0.15 * next) as f32
        })
        .collect()
}
