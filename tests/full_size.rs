//! Stable Diffusion 1.5 in its real size with drawn weights, and diffusers' values for it. `golden/full_size.py` draws the same model with torch:
//! every weight comes from a seed of its own, made from its name, so no test needs the 2 GB of files.

use half::f16;
use latent_canvas::{
    config::{ClipTextConfig, UNetConfig, VaeConfig},
    engine::plan::{Graph, Network, WeightId, WeightInfo},
    models::{
        embeddings::timestep_sinusoid, names::Component, plan::ModelConfigs, record::record_unet,
    },
    rng::TorchCpuGenerator,
};
use weights_loader::{Dtype, TensorInfo};

use crate::fixture::{Expected, Fixture};

/// Tokens of a prompt.
const TOKENS: usize = 77;
/// The timestep of the expected values.
const TIMESTEP: f32 = 481.0;
/// Sides of the latents of the expected values.
pub const SIDES: [usize; 2] = [16, 64];
/// Of the large picture every so many rows and columns are kept.
pub const STRIDE: usize = 5;
const TEXT_SEED: u64 = 1000;
const SAMPLE_SEED: u64 = 2000;
const LATENTS_SEED: u64 = 3000;

/// The configs of Stable Diffusion 1.5.
#[must_use]
pub fn configs() -> ModelConfigs {
    ModelConfigs {
        text_encoder: ClipTextConfig::from_json(include_str!(
            "configs/sd15/text_encoder/config.json"
        ))
        .unwrap(),
        unet: UNetConfig::from_json(include_str!("configs/sd15/unet/config.json")).unwrap(),
        vae: VaeConfig::from_json(include_str!("configs/sd15/vae/config.json")).unwrap(),
    }
}

/// `input_ids` and `text.last_hidden_state`.
#[must_use]
pub fn text_fixture() -> Fixture {
    Fixture::parse("text", include_bytes!("golden/full-size/text.safetensors"))
}

/// `unet.sample.SIDE`.
#[must_use]
pub fn unet_fixture() -> Fixture {
    Fixture::parse("unet", include_bytes!("golden/full-size/unet.safetensors"))
}

/// `vae.sample.SIDE` and `vae.rms.SIDE`.
#[must_use]
pub fn vae_fixture() -> Fixture {
    Fixture::parse("vae", include_bytes!("golden/full-size/vae.safetensors"))
}

/// The UNet for the expected values of a side.
#[must_use]
pub fn unet_graph(side: usize) -> Graph {
    record_unet(&configs().unet, 1, side, side, TOKENS).unwrap()
}

/// Writes the inputs of a [`unet_graph`] whose schedule of one step is hoisted, and computes what is computed once a picture.
pub async fn begin_unet(network: &mut Network, side: usize) {
    let config = configs().unet;
    let sinusoid = timestep_sinusoid(
        TIMESTEP,
        config.levels[0].channels,
        config.flip_sin_to_cos,
        config.freq_shift,
    );
    network
        .write_input("timestep_sinusoid", 0, &sinusoid)
        .unwrap();
    network.run_schedule().await.unwrap();
    let text = TorchCpuGenerator::new(TEXT_SEED).randn(TOKENS * config.cross_attention_dim);
    network
        .write_input("encoder_hidden_states", 0, &text)
        .unwrap();
    network.run_image(0).await.unwrap();
    let sample = latents(SAMPLE_SEED + side as u64, side);
    network.write_input("sample", 0, &sample).unwrap();
}

/// What the decoder is given for a side, channels last.
#[must_use]
pub fn unscaled_latents(side: usize) -> Vec<f32> {
    let scaling_factor = configs().vae.scaling_factor as f32;
    let mut values = latents(LATENTS_SEED + side as u64, side);
    values.iter_mut().for_each(|value| *value /= scaling_factor);
    values
}

fn latents(seed: u64, side: usize) -> Vec<f32> {
    let values = TorchCpuGenerator::new(seed).randn(4 * side * side);
    Expected {
        shape: vec![1, 4, side, side],
        values,
    }
    .channels_last()
}

/// FNV-1a of 32 bits (Fowler, Noll, Vo).
fn seed_of(part: &str, name: &str) -> u64 {
    let bytes = part.bytes().chain(*b".").chain(name.bytes());
    let seed = bytes.fold(0x811c_9dc5_u32, |seed, byte| {
        (seed ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    u64::from(seed)
}

const fn part(component: Component) -> &'static str {
    match component {
        Component::TextEncoder => "text_encoder",
        Component::UNet => "unet",
        Component::Vae => "vae",
    }
}

/// A weight as little-endian float16.
#[must_use]
pub fn draw(component: Component, weight: &WeightInfo) -> Vec<u8> {
    let name = weight.name.as_str();
    let count = weight.elements() as usize;
    let values = TorchCpuGenerator::new(seed_of(part(component), name)).randn(count);
    let is_table = component == Component::TextEncoder && name.ends_with("embedding.weight");
    // the order of roundings is torch's: product, sum, float16
    let [shift, scale] = match weight.shape[..] {
        [_] if name.ends_with("weight") => [1.0, 0.05],
        [_] => [0.0, 0.02],
        _ if is_table => [0.0, if name.contains("position") { 0.1 } else { 0.5 }],
        _ => [0.0, (0.7 / (count / weight.shape[0]) as f64).sqrt() as f32],
    };
    let halves = values.iter().map(|x| f16::from_f32(shift + x * scale));
    halves.flat_map(f16::to_le_bytes).collect()
}

fn upload(network: &mut Network, index: usize, bytes: &[u8]) {
    let weight = &network.plan().graph.weights[index];
    let tensor = TensorInfo {
        name: weight.name.clone(),
        dtype: Dtype::F16,
        shape: weight.shape.clone(),
        range: 0..bytes.len() as u64,
    };
    network.upload(WeightId(index), &tensor, bytes).unwrap();
}

/// Draws all weights of a network into it.
#[cfg(target_family = "wasm")]
pub async fn fill(network: &mut Network, component: Component) {
    for index in 0..network.plan().graph.weights.len() {
        let bytes = draw(component, &network.plan().graph.weights[index]);
        upload(network, index, &bytes);
        // else all of them would wait in the browser's staging buffers
        network.finish().await.unwrap();
    }
    assert_eq!(network.missing_weights().next(), None);
}

#[cfg(not(target_family = "wasm"))]
pub use native::{fill, stream};

#[cfg(not(target_family = "wasm"))]
mod native {
    use std::{path::Path, sync::mpsc::sync_channel, thread};

    use latent_canvas::{
        engine::plan::Network,
        models::{names::Component, network_sink::NetworkSink},
    };
    use weights_loader::{DiskSource, load_safetensors};

    use super::{draw, upload};

    /// Draws all weights of a network into it, as many at a time as there are processors.
    pub async fn fill(network: &mut Network, component: Component) {
        let weights = network.plan().graph.weights.clone();
        let workers = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            // a channel without room: a worker whose weight is not taken yet draws no other
            let (drawn, arriving) = sync_channel(0);
            for worker in 0..workers {
                let (drawn, weights) = (drawn.clone(), &weights);
                scope.spawn(move || {
                    for index in (worker..weights.len()).step_by(workers) {
                        let bytes = draw(component, &weights[index]);
                        drawn.send((index, bytes)).unwrap();
                    }
                });
            }
            drop(drawn);
            for (index, bytes) in arriving {
                upload(network, index, &bytes);
            }
        });
        assert_eq!(network.missing_weights().next(), None);
    }

    /// Streams the weights of a network from the folder that `./build.sh golden --full` writes.
    pub async fn stream(network: &mut Network, component: Component, model: &Path) {
        let file = match component {
            Component::TextEncoder => "text_encoder/model.safetensors",
            Component::UNet => "unet/diffusion_pytorch_model.safetensors",
            Component::Vae => "vae/diffusion_pytorch_model.safetensors",
        };
        let source = DiskSource::new(model.join(file));
        let mut sink = NetworkSink::new(network, component, file);
        load_safetensors(&source, None, &mut sink, &mut |_| Ok(()))
            .await
            .unwrap();
        assert_eq!(network.missing_weights().next(), None);
    }
}
