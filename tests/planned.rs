//! The networks of the tiny models as plans on the GPU, run on the inputs of a fixture: natively and in a browser.

use std::sync::Arc;

use latent_canvas::{
    config::{ClipTextConfig, UNetConfig, VaeConfig},
    engine::plan::{Gpu, Graph, LowerOptions, Network, Plan, ReplayOptions},
    kernels::{Limits, Precision},
    models::{
        embeddings::timestep_sinusoid,
        names::{Component, Name, checkpoint_name},
        network_sink::NetworkSink,
        record::{record_text_encoder, record_unet, record_vae_decoder},
    },
};
use weights_loader::{MemorySource, SafetensorsIndex, load_safetensors};

use crate::{
    fixture::{Expected, Fixture},
    tiny::Tiny,
};

/// Timesteps of the fixtures.
pub const TIMESTEPS: [f32; 3] = [981.0, 481.0, 1.0];

/// A new device. Without an adapter the test fails, with a sentence that says what to install.
pub async fn new_gpu() -> Gpu {
    Gpu::request(&Limits::DEFAULT).await.unwrap_or_else(|error| {
        panic!(
            "Plans cannot be tested on this machine: {error} Install a driver; without a GPU, mesa-vulkan-drivers brings the software adapter lavapipe."
        )
    })
}

/// A network with its weights, ready to run.
pub async fn network(
    gpu: &Arc<Gpu>,
    graph: Graph,
    options: &LowerOptions,
    passes: usize,
    component: Component,
    bytes: &[u8],
) -> Network {
    let plan = Plan::new(graph, options, passes, gpu.limits()).unwrap();
    let mut network = Network::new(gpu, plan, ReplayOptions::new(gpu))
        .await
        .unwrap();
    fill(&mut network, component, bytes).await;
    network
}

/// Streams all weights of a file in pieces that split values, as a network's do.
pub async fn fill(network: &mut Network, component: Component, bytes: &[u8]) {
    let source = MemorySource::new("weights", bytes.to_vec()).with_chunk_bytes(65_537);
    let mut sink = NetworkSink::new(network, component, "weights");
    load_safetensors(&source, None, &mut sink, &mut |_| Ok(()))
        .await
        .unwrap();
    assert_eq!(network.missing_weights().next(), None);
}

/// Uploads all weights of a file, each as a whole.
pub fn fill_whole(network: &mut Network, component: Component, bytes: &[u8]) {
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let index = SafetensorsIndex::parse("weights", &bytes[8..8 + header], Some(bytes.len() as u64))
        .unwrap();
    for tensor in &index.tensors {
        let Name::Weight(name) = checkpoint_name(component, &tensor.name) else {
            continue;
        };
        let weight = network.weight(&name).unwrap();
        let range = tensor.range.start as usize..tensor.range.end as usize;
        network.upload(weight, tensor, &bytes[range]).unwrap();
    }
    assert_eq!(network.missing_weights().next(), None);
}

fn image(expected: &Expected) -> [usize; 4] {
    expected.shape[..].try_into().unwrap()
}

/// The graph of a tiny UNet for the inputs of a fixture, cut into `passes`.
pub fn unet_graph(tiny: &Tiny, fixture: &Fixture, passes: usize) -> Graph {
    let [batch, _, height, width] = image(fixture.get("sample"));
    let config = UNetConfig::from_json(tiny.unet_config).unwrap();
    let tokens = fixture.get("encoder_hidden_states").shape[1];
    record_unet(&config, batch / passes, height, width, tokens).unwrap()
}

/// The UNet of a tiny model.
pub async fn unet_network(
    gpu: &Arc<Gpu>,
    tiny: &Tiny,
    fixture: &Fixture,
    options: &LowerOptions,
    passes: usize,
) -> Network {
    let graph = unet_graph(tiny, fixture, passes);
    network(gpu, graph, options, passes, Component::UNet, tiny.unet).await
}

/// `noise_pred` of each timestep, channels last.
pub async fn run_unet(network: &mut Network, tiny: &Tiny, fixture: &Fixture) -> Vec<Vec<f32>> {
    let config = UNetConfig::from_json(tiny.unet_config).unwrap();
    let sinusoids = TIMESTEPS.map(|timestep| {
        timestep_sinusoid(
            timestep,
            config.levels[0].channels,
            config.flip_sin_to_cos,
            config.freq_shift,
        )
    });
    let is_hoisted = network.plan().program.steps.is_some();
    let passes = network.plan().arena.passes;
    if is_hoisted {
        network
            .write_input("timestep_sinusoid", 0, &sinusoids.concat())
            .unwrap();
        network.run_schedule().await.unwrap();
    }
    let text = &fixture.get("encoder_hidden_states").values;
    for (pass, text) in text.chunks(text.len() / passes).enumerate() {
        network
            .write_input("encoder_hidden_states", pass, text)
            .unwrap();
        network.run_image(pass).await.unwrap();
    }
    let sample = fixture.get("sample").channels_last();
    let mut predictions = Vec::new();
    for (step, sinusoid) in sinusoids.iter().enumerate() {
        if !is_hoisted {
            network
                .write_input("timestep_sinusoid", 0, sinusoid)
                .unwrap();
        }
        // the two pictures of a fixture are different samples, so each pass has its own
        for (pass, sample) in sample.chunks(sample.len() / passes).enumerate() {
            network.write_input("sample", pass, sample).unwrap();
            network.run_step(pass, step).await.unwrap();
        }
        predictions.push(network.read_output("noise_pred").await.unwrap());
    }
    predictions
}

fn text_graph(tiny: &Tiny, fixture: &Fixture) -> Graph {
    let batch = fixture.get("input_ids").shape[0];
    let config = ClipTextConfig::from_json(tiny.text_config).unwrap();
    record_text_encoder(&config, batch).unwrap()
}

/// The text encoder of a tiny model.
pub async fn text_network(
    gpu: &Arc<Gpu>,
    tiny: &Tiny,
    fixture: &Fixture,
    options: &LowerOptions,
) -> Network {
    let graph = text_graph(tiny, fixture);
    network(gpu, graph, options, 1, Component::TextEncoder, tiny.text).await
}

/// `encoder_hidden_states`.
pub async fn run_text(network: &mut Network, fixture: &Fixture) -> Vec<f32> {
    let ids = &fixture.get("input_ids").values;
    let ids: Vec<u32> = ids.iter().map(|&id| id as u32).collect();
    network.write_ids("input_ids", &ids).unwrap();
    run_once(network, "encoder_hidden_states").await
}

/// The decoder of a tiny model.
pub async fn vae_network(
    gpu: &Arc<Gpu>,
    tiny: &Tiny,
    fixture: &Fixture,
    options: &LowerOptions,
) -> Network {
    let [batch, _, height, width] = image(fixture.get("latents"));
    let config = VaeConfig::from_json(tiny.vae_config).unwrap();
    let graph = record_vae_decoder(&config, batch, height, width).unwrap();
    network(gpu, graph, options, 1, Component::Vae, tiny.vae).await
}

/// `sample`, channels last.
pub async fn run_vae(network: &mut Network, tiny: &Tiny, fixture: &Fixture) -> Vec<f32> {
    let config = VaeConfig::from_json(tiny.vae_config).unwrap();
    let latents = fixture.get("latents").channels_last();
    let unscaled = latents.iter().map(|x| x / config.scaling_factor as f32);
    let unscaled: Vec<f32> = unscaled.collect();
    network.write_input("latents", 0, &unscaled).unwrap();
    run_once(network, "sample").await
}

async fn run_once(network: &mut Network, output: &str) -> Vec<f32> {
    network.run_step(0, 0).await.unwrap();
    network.read_output(output).await.unwrap()
}

/// Weights that are uploaded through a plan of one size serve another size, precision and guidance: the values are those over weights of
/// its own, to the bit. What waited to be uploaded is there too, and the memory goes with the last network.
pub async fn weights_kept_over_two_plans(gpu: &Arc<Gpu>, tiny: &Tiny) {
    let (first, second) = (tiny.unet_fixture(), tiny.odd_unet_fixture());
    let halves = LowerOptions::new(Precision::F16);
    let full = LowerOptions {
        hoist_schedule: Some(TIMESTEPS.len()),
        ..LowerOptions::new(Precision::F32)
    };
    let mut network = unet_network(gpu, tiny, &second, &full, 2).await;
    let expected = run_unet(&mut network, tiny, &second).await;
    drop(network);
    assert_eq!(gpu.memory().live_bytes(), 0);

    let mut network = unet_network(gpu, tiny, &first, &halves, 1).await;
    let weights = network.weights();
    fill(&mut network, Component::UNet, tiny.unet).await;
    drop(network);
    assert_eq!(gpu.memory().live_bytes(), weights.bytes());

    let graph = unet_graph(tiny, &second, 2);
    let plan = Plan::new(graph, &full, 2, gpu.limits()).unwrap();
    let options = ReplayOptions::new(gpu);
    let mut network = Network::with_weights(gpu, plan, weights, options)
        .await
        .unwrap();
    assert_eq!(network.missing_weights().next(), None);
    assert!(run_unet(&mut network, tiny, &second).await == expected);
    let peak_bytes = network.promised().peak_bytes;
    assert_eq!(gpu.memory().live_bytes(), peak_bytes);

    let weights = network.weights();
    let graph = text_graph(tiny, &tiny.text_fixture());
    let plan = Plan::new(graph, &full, 1, gpu.limits()).unwrap();
    let refused = Network::with_weights(gpu, plan, weights, options).await;
    assert_eq!(refused.map(|_| ()).unwrap_err().code(), "plan");
    drop(network);
    assert_eq!(gpu.memory().live_bytes(), 0);
}
