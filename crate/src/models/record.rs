//! Recordings of the three networks at a given size, from their configs alone.

use super::{
    autoencoder_kl::AutoencoderKlDecoder, clip_text::ClipTextModel,
    unet_2d_condition::UNet2DConditionModel, weights::Weights,
};
use crate::{
    Result,
    config::{ClipTextConfig, UNetConfig, VaeConfig},
    engine::{
        Shape,
        plan::{Graph, Rate, Recorder},
    },
};

/// `input_ids` `[batch, max_position_embeddings]` to `encoder_hidden_states`.
///
/// # Errors
/// [`crate::Error::Config`] when the config's sizes contradict each other.
pub fn record_text_encoder(config: &ClipTextConfig, batch: usize) -> Result<Graph> {
    let recorder = Recorder::new("text_encoder");
    let model = ClipTextModel::new(&Weights::new(&recorder), config);
    let ids = recorder.ids("input_ids", batch, config.max_position_embeddings);
    let hidden = model.forward(&recorder, &ids);
    recorder.finish(&[("encoder_hidden_states", hidden)])
}

/// `sample` `[batch, height, width, in_channels]`, `timestep_sinusoid` and `encoder_hidden_states` `[batch, 1, tokens, cross_attention_dim]`
/// to `noise_pred`. Sizes are those of the latents; guidance in one pass is a batch of two.
///
/// # Errors
/// [`crate::Error::Config`] when the config's sizes contradict each other or the latents are too small for the network.
pub fn record_unet(
    config: &UNetConfig,
    batch: usize,
    height: usize,
    width: usize,
    tokens: usize,
) -> Result<Graph> {
    let recorder = Recorder::new("unet");
    let model = UNet2DConditionModel::new(&Weights::new(&recorder), config);
    let sample = recorder.input(
        "sample",
        Shape::image(batch, height, width, config.in_channels),
        Rate::Step,
    );
    let sinusoid = recorder.input(
        "timestep_sinusoid",
        Shape::image(1, 1, 1, config.levels[0].channels),
        Rate::Schedule,
    );
    let text = recorder.input(
        "encoder_hidden_states",
        Shape::tokens(batch, tokens, config.cross_attention_dim),
        Rate::Image,
    );
    let prediction = model.forward(&recorder, &sample, &sinusoid, &text);
    recorder.finish(&[("noise_pred", prediction)])
}

/// `latents` `[batch, height, width, latent_channels]`, already divided by the scaling factor, to `sample`, the picture.
///
/// # Errors
/// [`crate::Error::Config`] when the config's sizes contradict each other.
pub fn record_vae_decoder(
    config: &VaeConfig,
    batch: usize,
    height: usize,
    width: usize,
) -> Result<Graph> {
    let recorder = Recorder::new("vae_decoder");
    let model = AutoencoderKlDecoder::new(&Weights::new(&recorder), config);
    let latents = recorder.input(
        "latents",
        Shape::image(batch, height, width, config.latent_channels),
        Rate::Image,
    );
    let picture = model.forward(&recorder, &latents);
    recorder.finish(&[("sample", picture)])
}
