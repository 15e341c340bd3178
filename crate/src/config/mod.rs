//! All numbers of a model, read from its `config.json` files. Nothing is keyed on a model's name.
//!
//! Field names are diffusers' and transformers'. What a config asks for and this program does not do is an error that
//! names the key: a wrong picture without a word would be worse.

mod clip_text;
mod unet;
mod vae;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{Error, Result};

pub use clip_text::{Activation, ClipTextConfig};
pub use unet::{UNetConfig, UNetLevel};
pub use vae::VaeConfig;

// A config is a stranger's word, and every weight it implies is declared before any is seen. These bounds are far above every published
// model, keep what a few bytes of JSON can ask for to some megabytes, and keep products of sizes from overflowing 32 bits.

/// Most channels, and widest text embedding.
const MAX_WIDTH: usize = 1 << 14;
/// Most rows of a table of embeddings.
const MAX_ROWS: usize = 1 << 20;
/// Most levels of a UNet or a VAE.
const MAX_LEVELS: usize = 8;
/// Most resnets in a block, and most transformer blocks in a transformer.
const MAX_LAYERS: usize = 16;
/// Most layers of a text encoder.
const MAX_TEXT_LAYERS: usize = 64;

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

    /// Refuses an empty list, and any value outside `1..=most`.
    fn within(&self, what: &str, values: &[usize], most: usize) -> Result<()> {
        if !values.is_empty() && values.iter().all(|value| (1..=most).contains(value)) {
            return Ok(());
        }
        let why = format!("{what} must be from 1 to {most}, and is {values:?}");
        Err(Error::config(self.file, why))
    }

    /// Refuses an epsilon below zero: the root of a small variance would be no number.
    fn not_negative(&self, what: &str, value: f64) -> Result<()> {
        if value.is_finite() && value >= 0.0 {
            return Ok(());
        }
        let why = format!("{what} must be a number that is not negative, and is {value}");
        Err(Error::config(self.file, why))
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
