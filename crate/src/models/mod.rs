//! The networks of Stable Diffusion, written once over [`crate::engine::Engine`].
//!
//! Modules and fields carry the checkpoint's names; where a published checkpoint differs, [`names`] translates.

pub mod attention;
pub mod autoencoder_kl;
pub mod choose;
pub mod clip_text;
pub mod embeddings;
pub mod layers;
pub mod names;
#[cfg(feature = "plan")]
pub mod network_sink;
pub mod plan;
pub mod record;
pub mod resnet;
pub mod transformer_2d;
pub mod unet_2d_blocks;
pub mod unet_2d_condition;
mod vae_plan;
pub mod vae_tiling;
pub mod weights;
