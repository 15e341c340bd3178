//! Engines side by side: the same rows of work, with the same weights and inputs, on the plan engine and on burn-wgpu.
//!
//! [`rows`] says what is measured, [`model`] is the work written once over [`latent_canvas::engine::Engine`], [`subject`] the engines that
//! do it. `web.rs` exports them to the page that measures in Chromium; the program `bench` measures natively.
#![allow(async_fn_in_trait)]

#[cfg(not(target_family = "wasm"))]
pub mod cpu;
pub mod model;
pub mod report;
pub mod rows;
#[cfg(any(feature = "plan", feature = "burn-wgpu"))]
pub mod subject;
#[cfg(all(target_family = "wasm", any(feature = "plan", feature = "burn-wgpu")))]
mod web;
