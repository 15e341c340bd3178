//! `vae/config.json`.

use super::{Json, MAX_LAYERS, MAX_LEVELS, MAX_WIDTH};
use crate::{Error, Result};

/// `vae/config.json` (diffusers `AutoencoderKL`), the decoder's part.
#[derive(Debug, Clone, PartialEq)]
pub struct VaeConfig {
    /// Channels of the latents.
    pub latent_channels: usize,
    /// Channels of the picture: 3.
    pub out_channels: usize,
    /// Channels per level from full resolution to the smallest.
    pub block_out_channels: Vec<usize>,
    /// Resnets per encoder block; a decoder block has one more.
    pub layers_per_block: usize,
    /// Groups of every group norm.
    pub norm_num_groups: usize,
    /// Latents are divided by this before they are decoded.
    pub scaling_factor: f64,
    /// Added to the latents after the division; zero for Stable Diffusion.
    pub shift_factor: f64,
    /// Whether the mid-block has its attention.
    pub mid_block_add_attention: bool,
    /// Whether a 1x1 convolution stands before the decoder.
    pub use_post_quant_conv: bool,
    /// Whether activations must be float32, because some are more than float16 can hold. False where the config does not say so: in diffusers
    /// it is true then, but only the pipeline of Stable Diffusion XL asks.
    pub force_upcast: bool,
}

impl VaeConfig {
    /// Reads a config; defaults are those of diffusers `AutoencoderKL`.
    ///
    /// # Errors
    /// [`Error::Config`] names the key that is missing, contradictory or not supported.
    pub fn from_json(text: &str) -> Result<Self> {
        let json = Json::parse("vae/config.json", text)?;
        json.only("act_fn", &["silu".into(), "swish".into()])?;
        json.only("latents_mean", &[])?;
        json.only("latents_std", &[])?;
        let block_out_channels: Vec<usize> = json.or("block_out_channels", vec![64])?;
        let kinds: Vec<String> = json.or(
            "up_block_types",
            vec!["UpDecoderBlock2D".to_owned(); block_out_channels.len()],
        )?;
        if let Some(other) = kinds.iter().find(|kind| *kind != "UpDecoderBlock2D") {
            return Err(Error::config(
                json.file,
                format!("up_block_types holds {other}, which is not supported"),
            ));
        }
        if kinds.len() != block_out_channels.len() {
            return Err(Error::config(
                json.file,
                "up_block_types and block_out_channels have different lengths",
            ));
        }
        let config = Self {
            latent_channels: json.or("latent_channels", 4)?,
            out_channels: json.or("out_channels", 3)?,
            layers_per_block: json.or("layers_per_block", 1)?,
            norm_num_groups: json.or("norm_num_groups", 32)?,
            scaling_factor: json.or("scaling_factor", 0.18215)?,
            shift_factor: json.or("shift_factor", 0.0)?,
            mid_block_add_attention: json.or("mid_block_add_attention", true)?,
            use_post_quant_conv: json.or("use_post_quant_conv", true)?,
            force_upcast: json.or("force_upcast", false)?,
            block_out_channels,
        };
        json.within("latent_channels", &[config.latent_channels], MAX_WIDTH)?;
        json.within("layers_per_block", &[config.layers_per_block], MAX_LAYERS)?;
        json.within("norm_num_groups", &[config.norm_num_groups], MAX_WIDTH)?;
        json.within("block_out_channels", &config.block_out_channels, MAX_WIDTH)?;
        json.within(
            "the number of block_out_channels",
            &[config.block_out_channels.len()],
            MAX_LEVELS,
        )?;
        if config.out_channels != 3 {
            return Err(Error::config(
                json.file,
                format!(
                    "out_channels is {}, and a picture has 3",
                    config.out_channels
                ),
            ));
        }
        if !(config.scaling_factor.is_finite() && config.scaling_factor > 0.0) {
            return Err(Error::config(json.file, "scaling_factor must be positive"));
        }
        if let Some(channels) = config
            .block_out_channels
            .iter()
            .find(|channels| *channels % config.norm_num_groups != 0)
        {
            return Err(Error::config(
                json.file,
                format!(
                    "{channels} channels cannot be split into {} groups",
                    config.norm_num_groups
                ),
            ));
        }
        Ok(config)
    }

    /// Pixels of the picture per latent, along one side: 8 for Stable Diffusion.
    #[must_use]
    pub fn scale_factor(&self) -> usize {
        1 << (self.block_out_channels.len() - 1)
    }
}
