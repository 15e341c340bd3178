//! `text_encoder/config.json`.

use super::{Json, MAX_ROWS, MAX_TEXT_LAYERS, MAX_WIDTH};
use crate::{Error, Result};

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
    /// [`Error::Config`] for bad JSON, a size out of bounds, and an activation that is neither `quick_gelu` nor `gelu`.
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
        for (key, value, most) in [
            ("hidden_size", config.hidden_size, MAX_WIDTH),
            ("intermediate_size", config.intermediate_size, 4 * MAX_WIDTH),
            (
                "num_hidden_layers",
                config.num_hidden_layers,
                MAX_TEXT_LAYERS,
            ),
            ("num_attention_heads", config.num_attention_heads, MAX_WIDTH),
            (
                "max_position_embeddings",
                config.max_position_embeddings,
                MAX_ROWS,
            ),
            ("vocab_size", config.vocab_size, MAX_ROWS),
        ] {
            json.within(key, &[value], most)?;
        }
        json.not_negative("layer_norm_eps", config.layer_norm_eps)?;
        if !config
            .hidden_size
            .is_multiple_of(config.num_attention_heads)
        {
            return Err(Error::config(
                json.file,
                "hidden_size is no multiple of num_attention_heads",
            ));
        }
        Ok(config)
    }
}
