//! Stable Diffusion 1.5 in its real size on a native adapter with WebGPU's default limits: diffusers' values, the promised memory, the time.
//!
//! Takes minutes on a software adapter, so it runs when asked for: `./build.sh test --full`. Weights are drawn on the spot; with the
//! variable `LATENT_CANVAS_FULL_SIZE` they are streamed from the folder it names, as `./build.sh golden --full` writes one.
#![cfg(all(feature = "plan", not(target_family = "wasm")))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use latent_canvas::{
    engine::plan::{
        Gpu, Graph, LowerOptions, Network, NetworkWeights, Plan, ReplayOptions, Strips,
    },
    kernels::{Limits, Precision},
    models::{
        names::Component,
        record::{record_text_encoder, record_vae_decoder},
    },
};
use latent_canvas_tests::{
    fixture::relative_l2,
    full_size::{self, SIDES, STRIDE},
    planned,
};
use pollster::block_on;

/// Most that float32 activations may be away from diffusers in float32, as relative L2; weights are float16 on both sides.
const TEXT_F32: f64 = 1e-3;
const UNET_F32: f64 = 2e-3;
const VAE_F32: f64 = 1e-3;
/// With float16 activations the many roundings of the deep network add up.
const F16: f64 = 2e-2;

/// The weights of a network on a device of their own, so that all that the device counts is the network's; plans of several sizes
/// and precisions run over them, one at a time.
struct Weights {
    gpu: Arc<Gpu>,
    component: Component,
    there: Option<Arc<NetworkWeights>>,
    peak_bytes: u64,
}

impl Weights {
    fn new(component: Component) -> Self {
        Self {
            gpu: Arc::new(block_on(planned::new_gpu())),
            component,
            there: None,
            peak_bytes: 0,
        }
    }

    /// A network over the weights, which come with the first.
    fn network(&mut self, graph: Graph, options: &LowerOptions) -> Network {
        let plan = Plan::new(graph, options, 1, self.gpu.limits()).unwrap();
        let replay = ReplayOptions::new(&self.gpu);
        if let Some(weights) = &self.there {
            let weights = Arc::clone(weights);
            return block_on(Network::with_weights(&self.gpu, plan, weights, replay)).unwrap();
        }
        let mut network = block_on(Network::new(&self.gpu, plan, replay)).unwrap();
        let start = Instant::now();
        match std::env::var_os("LATENT_CANVAS_FULL_SIZE").map(PathBuf::from) {
            Some(model) => block_on(full_size::stream(&mut network, self.component, &model)),
            None => block_on(full_size::fill(&mut network, self.component)),
        }
        let took = seconds(start.elapsed());
        println!("{:?}: weights in {took:.1} s", self.component);
        self.there = Some(network.weights());
        network
    }

    /// Runs the network whose inputs are written, and holds its output against diffusers and its buffers against the promise.
    fn check(
        &mut self,
        mut network: Network,
        what: &str,
        output: &str,
        distance: impl Fn(&[f32]) -> f64,
        most: f64,
    ) {
        let took = seconds(run(&mut network));
        let name = format!("{what} on {}", self.gpu.adapter());
        let distance = distance(&block_on(network.read_output(output)).unwrap());
        let (promised, counted) = (network.promised(), network.counted());
        println!(
            "{name}: relative L2 {distance:.2e}, {took:.2} s a run, {:.1} GFLOP/s, {} bytes = {} weights + {} arena + {} staging",
            2.0 * promised.run.macs as f64 / 1e9 / took,
            promised.peak_bytes,
            counted.weights_bytes,
            counted.arena_bytes,
            counted.staging_bytes,
        );
        assert!(distance <= most, "{name}: {distance:e}, {most:e} allowed");
        assert_eq!(counted.weights_bytes, promised.weights_bytes);
        assert_eq!(counted.arena_bytes, promised.arena_bytes);
        assert_eq!(counted.staging_bytes, promised.staging_bytes);
        assert_eq!(self.gpu.memory().live_bytes(), promised.peak_bytes);
        self.peak_bytes = self.peak_bytes.max(promised.peak_bytes);
        assert_eq!(self.gpu.memory().peak_bytes(), self.peak_bytes);
    }

    /// Nothing stays.
    fn free(self) {
        drop(self.there);
        assert_eq!(self.gpu.memory().live_bytes(), 0);
    }
}

/// One run, and its time; of a short one the second, because a driver finishes its compilation during the first.
fn run(network: &mut Network) -> Duration {
    let mut time = || {
        let start = Instant::now();
        block_on(async {
            network.run_step(0, 0).await.unwrap();
            network.finish().await.unwrap();
        });
        start.elapsed()
    };
    let first = time();
    if first < Duration::from_secs(15) {
        return time();
    }
    first
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

#[test]
#[ignore = "full size: ./build.sh test --full"]
fn text_encoder() {
    let fixture = full_size::text_fixture();
    let ids = &fixture.get("input_ids").values;
    let ids: Vec<u32> = ids.iter().map(|&id| id as u32).collect();
    let expected = &fixture.get("text.last_hidden_state").values;
    let mut weights = Weights::new(Component::TextEncoder);
    for (precision, most) in [(Precision::F32, TEXT_F32), (Precision::F16, F16)] {
        let graph = record_text_encoder(&full_size::configs().text_encoder, 1).unwrap();
        let network = weights.network(graph, &LowerOptions::new(precision));
        network.write_ids("input_ids", &ids).unwrap();
        let what = format!("text encoder, {precision:?}");
        let distance = |got: &[f32]| relative_l2(got, expected);
        weights.check(network, &what, "encoder_hidden_states", distance, most);
    }
    weights.free();
}

fn unet(side: usize) {
    let fixture = full_size::unet_fixture();
    let expected = fixture.get(&format!("unet.sample.{side}")).channels_last();
    let mut weights = Weights::new(Component::UNet);
    for (precision, most) in [(Precision::F32, UNET_F32), (Precision::F16, F16)] {
        let options = LowerOptions {
            hoist_schedule: Some(1),
            ..LowerOptions::new(precision)
        };
        let mut network = weights.network(full_size::unet_graph(side), &options);
        block_on(full_size::begin_unet(&mut network, side));
        let what = format!("unet at {side}x{side} latents, {precision:?}");
        let distance = |got: &[f32]| relative_l2(got, &expected);
        weights.check(network, &what, "noise_pred", distance, most);
    }
    weights.free();
}

#[test]
#[ignore = "full size: ./build.sh test --full"]
fn unet_16x16() {
    unet(16);
}

#[test]
#[ignore = "full size: ./build.sh test --full"]
fn unet_64x64() {
    unet(64);
}

/// Every so many rows and columns of a picture, channels last.
fn every(stride: usize, side: usize, picture: &[f32]) -> Vec<f32> {
    let kept = || (0..side).step_by(stride);
    let places = kept().flat_map(|y| kept().map(move |x| 3 * (y * side + x)));
    places.flat_map(|at| picture[at..at + 3].to_vec()).collect()
}

fn vae(side: usize, cases: &[(Precision, Option<Strips>, f64)]) {
    let latents = full_size::unscaled_latents(side);
    let fixture = full_size::vae_fixture();
    let expected = fixture.get(&format!("vae.sample.{side}")).channels_last();
    let expected_rms = f64::from(fixture.get(&format!("vae.rms.{side}")).values[0]);
    let stride = if side == SIDES[0] { 1 } else { STRIDE };
    // what the stride leaves out shows in the root mean square of all
    let distance = |picture: &[f32]| {
        let sum: f64 = picture.iter().map(|&x| f64::from(x).powi(2)).sum();
        let rms = (sum / picture.len() as f64).sqrt();
        let kept = every(stride, 8 * side, picture);
        relative_l2(&kept, &expected).max((rms / expected_rms - 1.0).abs())
    };
    let mut weights = Weights::new(Component::Vae);
    for &(precision, strips, most) in cases {
        let graph = record_vae_decoder(&full_size::configs().vae, 1, side, side).unwrap();
        let options = LowerOptions {
            strips,
            ..LowerOptions::new(precision)
        };
        let network = weights.network(graph, &options);
        network.write_input("latents", 0, &latents).unwrap();
        let how = if strips.is_some() {
            "in strips"
        } else {
            "whole"
        };
        let what = format!("vae at {side}x{side} latents, {precision:?}, {how}");
        weights.check(network, &what, "sample", distance, most);
    }
    weights.free();
}

/// Strips of at most so many MiB.
fn strips(mib: u64) -> Option<Strips> {
    Some(Strips::new(mib << 20, &Limits::DEFAULT))
}

#[test]
#[ignore = "full size: ./build.sh test --full"]
fn vae_16x16() {
    vae(
        16,
        &[
            (Precision::F32, None, VAE_F32),
            (Precision::F32, strips(1), VAE_F32),
            (Precision::F16, None, F16),
        ],
    );
}

/// As a whole a layer is larger than a binding may be, so float32 takes strips.
#[test]
#[ignore = "full size: ./build.sh test --full"]
fn vae_64x64() {
    vae(64, &[(Precision::F32, strips(16), VAE_F32)]);
}

#[test]
#[ignore = "full size: ./build.sh test --full"]
fn vae_64x64_float16() {
    vae(64, &[(Precision::F16, None, F16)]);
}
