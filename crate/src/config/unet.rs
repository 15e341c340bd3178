//! `unet/config.json`.

use super::{Json, MAX_LAYERS, MAX_LEVELS, MAX_WIDTH};
use crate::{Error, Result};

/// One level of the UNet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UNetLevel {
    /// Channels of the level's blocks (`block_out_channels`).
    pub channels: usize,
    /// Whether the down block has transformers (`CrossAttnDownBlock2D`).
    pub down_cross_attention: bool,
    /// Whether the up block that mirrors this level has transformers (`CrossAttnUpBlock2D`).
    pub up_cross_attention: bool,
    /// Resnets of the down block; the up block has one more (`layers_per_block`).
    pub layers: usize,
    /// Attention heads (in these configs `attention_head_dim` is the number of heads).
    pub num_heads: usize,
    /// Transformer blocks per transformer (`transformer_layers_per_block`).
    pub transformer_layers: usize,
}

/// `unet/config.json` (diffusers `UNet2DConditionModel`).
#[derive(Debug, Clone, PartialEq)]
pub struct UNetConfig {
    /// Latent channels in.
    pub in_channels: usize,
    /// Channels of the prediction.
    pub out_channels: usize,
    /// Levels from full resolution to the smallest.
    pub levels: Vec<UNetLevel>,
    /// Width of the text embeddings.
    pub cross_attention_dim: usize,
    /// Groups of every group norm.
    pub norm_num_groups: usize,
    /// Epsilon of the resnets' group norms; transformers use 1e-6.
    pub norm_eps: f64,
    /// Whether `proj_in`/`proj_out` are linear layers (SD 2.x) or 1x1 convolutions (SD 1.x).
    pub use_linear_projection: bool,
    /// Padding of the stride-2 convolutions.
    pub downsample_padding: usize,
    /// Cosines before sines in the timestep embedding.
    pub flip_sin_to_cos: bool,
    /// `downscale_freq_shift` of the timestep embedding.
    pub freq_shift: f64,
    /// Side of the latents the model was trained for.
    pub sample_size: Option<usize>,
}

impl UNetConfig {
    /// Reads a config; defaults are those of diffusers `UNet2DConditionModel`.
    ///
    /// # Errors
    /// [`Error::Config`] names the key that is missing, contradictory or not supported.
    pub fn from_json(text: &str) -> Result<Self> {
        let json = Json::parse("unet/config.json", text)?;
        json.only("act_fn", &["silu".into(), "swish".into()])?;
        json.only("mid_block_type", &["UNetMidBlock2DCrossAttn".into()])?;
        json.only("resnet_time_scale_shift", &["default".into()])?;
        json.only("time_embedding_type", &["positional".into()])?;
        json.only("attention_type", &["default".into()])?;
        json.only("conv_in_kernel", &[3.into()])?;
        json.only("conv_out_kernel", &[3.into()])?;
        json.only("downsample_padding", &[1.into()])?;
        json.only("mid_block_scale_factor", &[1.into(), 1.0.into()])?;
        json.only("resnet_out_scale_factor", &[1.into(), 1.0.into()])?;
        for key in [
            "center_input_sample",
            "dual_cross_attention",
            "only_cross_attention",
            "class_embeddings_concat",
            "resnet_skip_time_act",
            "mid_block_only_cross_attention",
        ] {
            json.only(key, &[false.into()])?;
        }
        for key in [
            "addition_embed_type",
            "class_embed_type",
            "num_class_embeds",
            "encoder_hid_dim",
            "encoder_hid_dim_type",
            "time_cond_proj_dim",
            "cross_attention_norm",
            "time_embedding_act_fn",
            "timestep_post_act",
            "time_embedding_dim",
            "reverse_transformer_layers_per_block",
        ] {
            json.only(key, &[])?;
        }
        let channels: Vec<usize> = json.or("block_out_channels", vec![320, 640, 1280, 1280])?;
        let count = channels.len();
        json.within("the number of block_out_channels", &[count], MAX_LEVELS)?;
        let down = block_kinds(
            &json,
            "down_block_types",
            "DownBlock2D",
            "CrossAttnDownBlock2D",
            &[true, true, true, false],
            count,
        )?;
        let mut up = block_kinds(
            &json,
            "up_block_types",
            "UpBlock2D",
            "CrossAttnUpBlock2D",
            &[false, true, true, true],
            count,
        )?;
        up.reverse();
        let layers = json.per_level("layers_per_block", 2, count)?;
        let heads_key = if json.present("num_attention_heads").is_some() {
            "num_attention_heads"
        } else {
            "attention_head_dim"
        };
        let heads = json.per_level(heads_key, 8, count)?;
        let transformer_layers = json.per_level("transformer_layers_per_block", 1, count)?;
        json.within("block_out_channels", &channels, MAX_WIDTH)?;
        json.within("layers_per_block", &layers, MAX_LAYERS)?;
        json.within(heads_key, &heads, MAX_WIDTH)?;
        json.within(
            "transformer_layers_per_block",
            &transformer_layers,
            MAX_LAYERS,
        )?;
        let levels = (0..count)
            .map(|i| UNetLevel {
                channels: channels[i],
                down_cross_attention: down[i],
                up_cross_attention: up[i],
                layers: layers[i],
                num_heads: heads[i],
                transformer_layers: transformer_layers[i],
            })
            .collect::<Vec<_>>();
        let config = Self {
            in_channels: json.or("in_channels", 4)?,
            out_channels: json.or("out_channels", 4)?,
            cross_attention_dim: json.or("cross_attention_dim", 1280)?,
            norm_num_groups: json.or("norm_num_groups", 32)?,
            norm_eps: json.or("norm_eps", 1e-5)?,
            use_linear_projection: json.or("use_linear_projection", false)?,
            downsample_padding: json.or("downsample_padding", 1)?,
            flip_sin_to_cos: json.or("flip_sin_to_cos", true)?,
            freq_shift: json.or("freq_shift", 0.0)?,
            sample_size: json.optional("sample_size")?,
            levels,
        };
        for (key, value) in [
            ("in_channels", config.in_channels),
            ("out_channels", config.out_channels),
            ("cross_attention_dim", config.cross_attention_dim),
            ("norm_num_groups", config.norm_num_groups),
            ("sample_size", config.sample_size.unwrap_or(1)),
        ] {
            json.within(key, &[value], MAX_WIDTH)?;
        }
        json.not_negative("norm_eps", config.norm_eps)?;
        for level in &config.levels {
            if level.channels % config.norm_num_groups != 0 || level.channels % level.num_heads != 0
            {
                return Err(Error::config(
                    json.file,
                    format!(
                        "{} channels cannot be split into {} groups and {} heads",
                        level.channels, config.norm_num_groups, level.num_heads
                    ),
                ));
            }
        }
        Ok(config)
    }
}

/// For each block, whether it has cross-attention.
fn block_kinds(
    json: &Json,
    key: &str,
    plain: &str,
    cross: &str,
    default: &[bool],
    count: usize,
) -> Result<Vec<bool>> {
    let Some(names) = json.optional::<Vec<String>>(key)? else {
        return if count == default.len() {
            Ok(default.to_vec())
        } else {
            Err(Error::config(json.file, format!("{key} is missing")))
        };
    };
    if names.len() != count {
        return Err(Error::config(
            json.file,
            format!("{key} has {} entries for {count} levels", names.len()),
        ));
    }
    names
        .iter()
        .map(|name| match name.as_str() {
            n if n == plain => Ok(false),
            n if n == cross => Ok(true),
            other => Err(Error::config(
                json.file,
                format!("{key} holds {other}, which is not supported"),
            )),
        })
        .collect()
}
