//! Each network against diffusers, on any engine. The bodies run natively and in a browser.

use latent_canvas::{
    config::{ClipTextConfig, UNetConfig, VaeConfig},
    engine::{Eager, Shape},
    models::{
        autoencoder_kl::AutoencoderKlDecoder, clip_text::ClipTextModel, names::Component,
        unet_2d_condition::UNet2DConditionModel, weights::Weights,
    },
};
use weights_loader::{MemorySource, load_safetensors};

use crate::{
    fixture::{Fixture, relative_error},
    tiny::Tiny,
};

/// The worst relative error of one module.
pub type Row = (String, f64);

/// Fails if a module is further from diffusers than `tolerance`; prints all.
pub fn check(title: &str, rows: &[Row], tolerance: f64) {
    assert!(!rows.is_empty(), "{title}: nothing was compared");
    for (name, error) in rows {
        println!("{title:28} {name:28} {error:.2e}");
        assert!(
            *error <= tolerance,
            "{title} {name}: relative error {error:.2e} exceeds {tolerance:.0e}"
        );
    }
}

async fn fill<E: Eager>(weights: Weights<'_, E>, component: Component, name: &str, bytes: &[u8]) {
    let mut sink = weights.into_sink(component, name);
    // chunks that split values, as a network's do
    let source = MemorySource::new(name, bytes.to_vec()).with_chunk_bytes(65_537);
    load_safetensors(&source, None, &mut sink, &mut |_| Ok(()))
        .await
        .unwrap();
}

/// The text encoder's last hidden state.
pub async fn text<E: Eager>(engine: &E, tiny: &Tiny) -> Vec<Row> {
    let fixture = tiny.text_fixture();
    let config = ClipTextConfig::from_json(tiny.text_config).unwrap();
    let weights = Weights::new(engine);
    let model = ClipTextModel::new(&weights, &config);
    fill(weights, Component::TextEncoder, "text", tiny.text).await;
    let ids = fixture.get("input_ids");
    let input_ids: Vec<u32> = ids.values.iter().map(|&id| id as u32).collect();
    let hidden = model.forward(engine, &engine.ids(&input_ids, ids.shape[0]));
    let got = engine.read(hidden).await.unwrap();
    let name = "text.last_hidden_state";
    vec![(
        name.to_owned(),
        relative_error(&got, &fixture.get(name).values),
    )]
}

/// Every block of the UNet, and its prediction at each timestep of the fixture.
pub async fn unet<E: Eager>(
    engine: &E,
    tiny: &Tiny,
    fixture: &Fixture,
    timesteps: &[u32],
) -> Vec<Row> {
    let config = UNetConfig::from_json(tiny.unet_config).unwrap();
    let weights = Weights::new(engine);
    let model = UNet2DConditionModel::new(&weights, &config);
    fill(weights, Component::UNet, "unet", tiny.unet).await;
    let sample = fixture.get("sample");
    let [batch, channels, height, width] = sample.shape[..] else {
        panic!("sample is no image")
    };
    let sample = engine.input(
        Shape::image(batch, height, width, channels),
        &sample.channels_last(),
    );
    let context = fixture.get("encoder_hidden_states");
    let context = engine.input(
        Shape::tokens(context.shape[0], context.shape[1], context.shape[2]),
        &context.values,
    );
    let mut rows = Vec::new();
    for (i, &timestep) in timesteps.iter().enumerate() {
        let mut taps: Vec<(String, E::Tensor)> = Vec::new();
        let sinusoid = model.timestep_sinusoid(timestep as f32);
        let sinusoid = engine.input(Shape::image(1, 1, 1, sinusoid.len()), &sinusoid);
        let prediction =
            model.forward_tapped(engine, &sample, &sinusoid, &context, &mut |name, tensor| {
                if i == 0 {
                    taps.push((format!("unet.{name}"), tensor.clone()));
                }
            });
        taps.push((format!("noise_pred.{timestep}"), prediction));
        for (name, tensor) in taps {
            rows.push(compare(engine, fixture, &name, tensor).await);
        }
    }
    rows
}

/// Every block of the decoder, and its picture.
pub async fn vae<E: Eager>(engine: &E, tiny: &Tiny) -> Vec<Row> {
    let fixture = tiny.vae_fixture();
    let config = VaeConfig::from_json(tiny.vae_config).unwrap();
    let weights = Weights::new(engine);
    let model = AutoencoderKlDecoder::new(&weights, &config);
    fill(weights, Component::Vae, "vae", tiny.vae).await;
    let latents = fixture.get("latents");
    let [batch, channels, height, width] = latents.shape[..] else {
        panic!("latents are no image")
    };
    let unscaled: Vec<f32> = latents
        .channels_last()
        .iter()
        .map(|value| value / config.scaling_factor as f32)
        .collect();
    let unscaled = engine.input(Shape::image(batch, height, width, channels), &unscaled);
    let mut taps: Vec<(String, E::Tensor)> = Vec::new();
    let picture = model.forward_tapped(engine, &unscaled, &mut |name, tensor| {
        taps.push((format!("vae.{name}"), tensor.clone()));
    });
    taps.push(("vae.sample".to_owned(), picture));
    let mut rows = Vec::new();
    for (name, tensor) in taps {
        rows.push(compare(engine, &fixture, &name, tensor).await);
    }
    rows
}

async fn compare<E: Eager>(engine: &E, fixture: &Fixture, name: &str, tensor: E::Tensor) -> Row {
    let got = engine.read(tensor).await.unwrap();
    let expected = fixture.get(name).channels_last();
    // The time embedding is the same for every picture of a batch and is computed once.
    let expected = &expected[..got.len().min(expected.len())];
    (name.to_owned(), relative_error(&got, expected))
}
