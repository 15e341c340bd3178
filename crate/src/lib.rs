//! latent-canvas: Stable Diffusion in a web page, on the visitor's own GPU or CPU.
//!
//! Data flows one way: prompt -> [`tokenizer`] -> text encoder -> UNet (with [`schedulers`] and [`rng`]) -> VAE decoder -> [`image`].
//! Models are written once over the [`engine::Engine`] trait.

pub mod error;
pub mod rng;
pub mod schedulers;
pub mod tokenizer;

pub use error::Error;

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
