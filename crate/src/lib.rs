//! latent-canvas: Stable Diffusion in a web page, on the visitor's own GPU or CPU.
//!
//! Data flows one way: prompt -> [`tokenizer`] -> text encoder -> UNet (with [`schedulers`] and [`rng`]) -> VAE decoder -> [`image`].
//! Models are written once over the [`engine::Engine`] trait; [`pipeline`] is the only place that knows both models and schedulers.

#[cfg(feature = "cli")]
pub mod cli;
pub mod config;
pub mod engine;
pub mod error;
pub mod image;
pub mod kernels;
pub mod models;
pub mod observer;
pub mod pipeline;
pub mod rng;
pub mod schedulers;
pub mod tokenizer;
#[cfg(all(target_family = "wasm", any(feature = "burn", feature = "plan")))]
mod web;

pub use error::Error;

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
