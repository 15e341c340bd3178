//! The networks that the plans are made for.

use std::{fs, path::PathBuf};

use latent_canvas::{
    config::{ClipTextConfig, UNetConfig, VaeConfig},
    engine::plan::Graph,
    models::record::{record_text_encoder, record_unet, record_vae_decoder},
};

/// Tokens of a prompt.
pub(crate) const TOKENS: usize = 77;

/// A folder of configs, by its path from the repository's root.
pub(crate) struct Network(pub(crate) &'static str);

pub(crate) const SD15: Network = Network("tests/configs/sd15");
pub(crate) const SD21: Network = Network("tests/configs/sd21");
pub(crate) const EMOJI: Network = Network("www/models/emoji");
pub(crate) const TINY: [Network; 3] = [
    Network("tests/golden/tiny-model"),
    Network("tests/golden/tiny-sd2"),
    Network("tests/golden/tiny-deep"),
];

impl Network {
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .join(self.0)
            .join(file)
    }

    pub(crate) fn text(&self, file: &str) -> String {
        fs::read_to_string(self.path(file)).unwrap()
    }

    pub(crate) fn text_encoder(&self, batch: usize) -> Graph {
        let config = ClipTextConfig::from_json(&self.text("text_encoder/config.json")).unwrap();
        record_text_encoder(&config, batch).unwrap()
    }

    pub(crate) fn unet(&self, batch: usize, height: usize, width: usize) -> Graph {
        let config = UNetConfig::from_json(&self.text("unet/config.json")).unwrap();
        record_unet(&config, batch, height, width, TOKENS).unwrap()
    }

    pub(crate) fn vae_decoder(&self, batch: usize, height: usize, width: usize) -> Graph {
        let config = VaeConfig::from_json(&self.text("vae/config.json")).unwrap();
        record_vae_decoder(&config, batch, height, width).unwrap()
    }
}
