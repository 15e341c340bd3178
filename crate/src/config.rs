//! All numbers of a model, read from its `config.json` files. Nothing is keyed on a model's name.
//!
//! Field names are diffusers' and transformers'. What a config asks for and this program does not do is an error that
//! names the key: a wrong picture without a word would be worse.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{Error, Result};

/// A parsed JSON object and the name of its file, for messages.
struct Json<'a> {
    file: &'a str,
    map: Map<String, Value>,
}

impl<'a> Json<'a> {
    fn parse(file: &'a str, text: &str) -> Result<Self> {
        let map = serde_json::from_str(text)
            .map_err(|e| Error::config(file, format!("not a JSON object: {e}")))?;
        Ok(Self { file, map })
    }

    fn present(&self, key: &str) -> Option<&Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    fn optional<T: for<'de> Deserialize<'de>>(&self, key: &str) -> Result<Option<T>> {
        self.present(key)
            .map(|value| {
                serde_json::from_value(value.clone())
                    .map_err(|e| Error::config(self.file, format!("{key}: {e}")))
            })
            .transpose()
    }

    fn or<T: for<'de> Deserialize<'de>>(&self, key: &str, default: T) -> Result<T> {
        Ok(self.optional(key)?.unwrap_or(default))
    }

    fn required<T: for<'de> Deserialize<'de>>(&self, key: &str) -> Result<T> {
        self.optional(key)?
            .ok_or_else(|| Error::config(self.file, format!("{key} is missing")))
    }

    /// Refuses every value of `key` but null and `allowed`.
    fn only(&self, key: &str, allowed: &[Value]) -> Result<()> {
        match self.present(key) {
            Some(value) if !allowed.contains(value) => Err(Error::config(
                self.file,
                format!("{key} is {value}, which is not supported"),
            )),
            _ => Ok(()),
        }
    }

    /// A value given once for all `levels`, or once for each.
    fn per_level(&self, key: &str, default: usize, levels: usize) -> Result<Vec<usize>> {
        match self.present(key) {
            None => Ok(vec![default; levels]),
            Some(Value::Array(_)) => {
                let list: Vec<usize> = self.required(key)?;
                if list.len() == levels {
                    Ok(list)
                } else {
                    Err(Error::config(
                        self.file,
                        format!("{key} has {} entries for {levels} blocks", list.len()),
                    ))
                }
            }
            Some(_) => Ok(vec![self.required(key)?; levels]),
        }
    }

    fn positive(&self, what: &str, values: &[usize]) -> Result<()> {
        if values.is_empty() || values.contains(&0) {
            return Err(Error::config(self.file, format!("{what} must be positive")));
        }
        Ok(())
    }
}

/// The activation of a text encoder's MLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// `x * sigmoid(1.702 x)`: OpenAI's CLIP.
    QuickGelu,
    /// Exact GELU with erf: OpenCLIP.
    Gelu,
}

/// `text_encoder/config.json` (transformers `CLIPTextConfig`).
#[derive(Debug, Clone, PartialEq)]
pub struct ClipTextConfig {
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width of the MLP's inner layer.
    pub intermediate_size: usize,
    /// Number of transformer layers.
    pub num_hidden_layers: usize,
    /// Heads of each self-attention; `hidden_size` is a multiple of it.
    pub num_attention_heads: usize,
    /// Positions, 77 in all published models.
    pub max_position_embeddings: usize,
    /// Rows of the token embedding.
    pub vocab_size: usize,
    /// Epsilon of every layer norm.
    pub layer_norm_eps: f64,
    /// Activation of the MLP.
    pub hidden_act: Activation,
}

impl ClipTextConfig {
    /// Reads a config; defaults are those of transformers `CLIPTextConfig`.
    ///
    /// # Errors
    /// [`Error::Config`] for bad JSON and for an activation that is neither `quick_gelu` nor `gelu`.
    pub fn from_json(text: &str) -> Result<Self> {
        let json = Json::parse("text_encoder/config.json", text)?;
        let hidden_act = match json.or("hidden_act", "quick_gelu".to_owned())?.as_str() {
            "quick_gelu" => Activation::QuickGelu,
            "gelu" => Activation::Gelu,
            other => {
                return Err(Error::config(
                    json.file,
                    format!("hidden_act is {other:?}, which is not supported"),
                ));
            }
        };
        let config = Self {
            hidden_size: json.or("hidden_size", 512)?,
            intermediate_size: json.or("intermediate_size", 2048)?,
            num_hidden_layers: json.or("num_hidden_layers", 12)?,
            num_attention_heads: json.or("num_attention_heads", 8)?,
            max_position_embeddings: json.or("max_position_embeddings", 77)?,
            vocab_size: json.or("vocab_size", 49408)?,
            layer_norm_eps: json.or("layer_norm_eps", 1e-5)?,
            hidden_act,
        };
        json.positive(
            "every size",
            &[
                config.hidden_size,
                config.intermediate_size,
                config.num_hidden_layers,
                config.num_attention_heads,
                config.max_position_embeddings,
                config.vocab_size,
            ],
        )?;
        if config.hidden_size % config.num_attention_heads != 0 {
            return Err(Error::config(
                json.file,
                "hidden_size is no multiple of num_attention_heads",
            ));
        }
        Ok(config)
    }
}

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
        json.positive("block_out_channels", &channels)?;
        json.positive("layers_per_block", &layers)?;
        json.positive(heads_key, &heads)?;
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
        json.positive(
            "in_channels, out_channels, cross_attention_dim and norm_num_groups",
            &[
                config.in_channels,
                config.out_channels,
                config.cross_attention_dim,
                config.norm_num_groups,
            ],
        )?;
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
            block_out_channels,
        };
        json.positive(
            "every size",
            &[
                config.latent_channels,
                config.layers_per_block,
                config.norm_num_groups,
            ],
        )?;
        json.positive("block_out_channels", &config.block_out_channels)?;
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

/// Checks `model_index.json`: only a plain Stable Diffusion pipeline is accepted.
///
/// # Errors
/// [`Error::Config`] names the class that is not supported.
pub fn check_model_index(text: &str) -> Result<()> {
    let json = Json::parse("model_index.json", text)?;
    let class: String = json.required("_class_name")?;
    if class != "StableDiffusionPipeline" {
        return Err(Error::config(
            json.file,
            format!("the model is a {class}; only StableDiffusionPipeline is supported"),
        ));
    }
    for (component, expected) in [
        ("text_encoder", "CLIPTextModel"),
        ("unet", "UNet2DConditionModel"),
        ("vae", "AutoencoderKL"),
    ] {
        let [_library, class]: [Option<String>; 2] = json.required(component)?;
        if class.as_deref() != Some(expected) {
            return Err(Error::config(
                json.file,
                format!("{component} is {class:?}; only {expected} is supported"),
            ));
        }
    }
    Ok(())
}
