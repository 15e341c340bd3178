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
    engine::plan::{Gpu, Graph, LowerOptions, Network, Plan, ReplayOptions},
    kernels::Precision,
    models::{
        embeddings::timestep_sinusoid,
        names::Component,
        record::{record_text_encoder, record_unet, record_vae_decoder},
    },
};
use latent_canvas_tests::{
    fixture::{Expected, relative_l2},
    full_size::{self, SIDES, STRIDE, TIMESTEP},
    planned,
};
use pollster::block_on;

/// Most that float32 activations may be away from diffusers in float32, as relative L2; weights are float16 on both sides.
const UNET_F32: f64 = 2e-3;
const VAE_F32: f64 = 1e-3;
/// With float16 activations the many roundings of the deep network add up.
const F16: f64 = 2e-2;

/// A network of its own device, so that all that the device counts is the network's.
struct Run {
    gpu: Arc<Gpu>,
    network: Network,
    name: String,
}

impl Run {
    fn new(graph: Graph, options: &LowerOptions, component: Component, what: &str) -> Self {
        let gpu = Arc::new(block_on(planned::new_gpu()));
        let name = format!("{what} {:?} on {}", options.activations, gpu.adapter());
        let plan = Plan::new(graph, options, 1, gpu.limits()).unwrap();
        let start = Instant::now();
        let replay = ReplayOptions::new(&gpu);
        let mut network = block_on(Network::new(&gpu, plan, replay)).unwrap();
        println!("{name}: made in {:.1} s", seconds(start.elapsed()));
        let start = Instant::now();
        match std::env::var_os("LATENT_CANVAS_FULL_SIZE").map(PathBuf::from) {
            Some(model) => block_on(full_size::stream(&mut network, component, &model)),
            None => full_size::fill(&mut network, component),
        }
        println!("{name}: weights in {:.1} s", seconds(start.elapsed()));
        Self { gpu, network, name }
    }

    /// One run, and its time; of a short one the second, because a driver finishes its compilation during the first.
    fn run(&mut self) -> Duration {
        let mut time = || {
            let start = Instant::now();
            block_on(async {
                self.network.run_step(0, 0).await.unwrap();
                self.network.finish().await.unwrap();
            });
            start.elapsed()
        };
        let first = time();
        if first < Duration::from_secs(15) {
            return time();
        }
        first
    }

    /// Runs, and holds the output against diffusers and the buffers against the promise.
    fn check(
        mut self,
        output: &str,
        expected: &[f32],
        pick: impl Fn(Vec<f32>) -> Vec<f32>,
        most: f64,
    ) {
        let took = self.run();
        let got = pick(block_on(self.network.read_output(output)).unwrap());
        let distance = relative_l2(&got, expected);
        let (promised, counted) = (self.network.promised(), self.network.counted());
        println!(
            "{}: relative L2 {distance:.2e}, {:.2} s a run, {:.1} GFLOP/s, {} bytes = {} weights + {} arena + {} staging",
            self.name,
            seconds(took),
            2.0 * promised.run.macs as f64 / 1e9 / seconds(took),
            promised.peak_bytes,
            counted.weights_bytes,
            counted.arena_bytes,
            counted.staging_bytes,
        );
        assert!(
            distance <= most,
            "{}: {distance:e}, {most:e} allowed",
            self.name
        );
        assert_eq!(counted.weights_bytes, promised.weights_bytes);
        assert_eq!(counted.arena_bytes, promised.arena_bytes);
        assert_eq!(counted.staging_bytes, promised.staging_bytes);
        assert_eq!(self.gpu.memory().live_bytes(), promised.peak_bytes);
        assert_eq!(self.gpu.memory().peak_bytes(), promised.peak_bytes);
        drop(self.network);
        assert_eq!(self.gpu.memory().live_bytes(), 0);
    }
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

fn text_encoder(precision: Precision, most: f64) {
    let fixture = full_size::text_fixture();
    let ids: Vec<u32> = fixture
        .get("input_ids")
        .values
        .iter()
        .map(|&id| id as u32)
        .collect();
    let graph = record_text_encoder(&full_size::configs().text_encoder, 1).unwrap();
    let options = LowerOptions::new(precision);
    let run = Run::new(graph, &options, Component::TextEncoder, "text encoder");
    run.network.write_ids("input_ids", &ids).unwrap();
    let expected = &fixture.get("text.last_hidden_state").values;
    run.check("encoder_hidden_states", expected, |all| all, most);
}

fn unet(side: usize, precision: Precision, most: f64) {
    let config = full_size::configs().unet;
    let graph = record_unet(&config, 1, side, side, 77).unwrap();
    let options = LowerOptions {
        hoist_schedule: Some(1),
        ..LowerOptions::new(precision)
    };
    let mut run = Run::new(
        graph,
        &options,
        Component::UNet,
        &format!("unet {side}x{side}"),
    );
    let sinusoid = timestep_sinusoid(
        TIMESTEP,
        config.levels[0].channels,
        config.flip_sin_to_cos,
        config.freq_shift,
    );
    let network = &mut run.network;
    let text = full_size::encoder_hidden_states();
    block_on(async {
        network
            .write_input("timestep_sinusoid", 0, &sinusoid)
            .unwrap();
        network.run_schedule().await.unwrap();
        network
            .write_input("encoder_hidden_states", 0, &text)
            .unwrap();
        network.run_image(0).await.unwrap();
    });
    network
        .write_input("sample", 0, &full_size::sample(side))
        .unwrap();
    let fixture = full_size::unet_fixture();
    let expected = fixture.get(&format!("unet.sample.{side}")).channels_last();
    run.check("noise_pred", &expected, |all| all, most);
}

/// Every so many rows and columns of a picture, channels last.
fn every(stride: usize, side: usize, picture: &[f32]) -> Vec<f32> {
    let kept = (0..side).step_by(stride);
    let places = kept
        .clone()
        .flat_map(|y| kept.clone().map(move |x| 3 * (y * side + x)));
    places.flat_map(|at| picture[at..at + 3].to_vec()).collect()
}

fn vae(side: usize, precision: Precision, most: f64) {
    let graph = record_vae_decoder(&full_size::configs().vae, 1, side, side).unwrap();
    let options = LowerOptions::new(precision);
    let run = Run::new(
        graph,
        &options,
        Component::Vae,
        &format!("vae {side}x{side}"),
    );
    run.network
        .write_input("latents", 0, &full_size::unscaled_latents(side))
        .unwrap();
    let fixture = full_size::vae_fixture();
    let expected: &Expected = fixture.get(&format!("vae.sample.{side}"));
    let rms = f64::from(fixture.get(&format!("vae.rms.{side}")).values[0]);
    let stride = if side == SIDES[0] { 1 } else { STRIDE };
    let pick = |picture: Vec<f32>| {
        let sum: f64 = picture.iter().map(|&x| f64::from(x).powi(2)).sum();
        let off = (sum / picture.len() as f64).sqrt() / rms - 1.0;
        assert!(
            off.abs() <= most,
            "the picture's root mean square is off by {off:e}"
        );
        every(stride, 8 * side, &picture)
    };
    run.check("sample", &expected.channels_last(), pick, most);
}

#[test]
#[ignore = "full size: ./build.sh test --full"]
fn text_encoder_f32() {
    text_encoder(Precision::F32, 1e-3);
}

#[test]
#[ignore = "full size: ./build.sh test --full"]
fn text_encoder_f16() {
    text_encoder(Precision::F16, F16);
}

#[test]
#[ignore = "full size: ./build.sh test --full"]
fn unet_16x16_f32() {
    unet(16, Precision::F32, UNET_F32);
}

#[test]
#[ignore = "full size: ./build.sh test --full"]
fn unet_16x16_f16() {
    unet(16, Precision::F16, F16);
}

#[test]
#[ignore = "full size: ./build.sh test --full"]
fn unet_64x64_f32() {
    unet(64, Precision::F32, UNET_F32);
}

#[test]
#[ignore = "full size: ./build.sh test --full"]
fn unet_64x64_f16() {
    unet(64, Precision::F16, F16);
}

#[test]
#[ignore = "full size: ./build.sh test --full"]
fn vae_16x16_f32() {
    vae(16, Precision::F32, VAE_F32);
}

#[test]
#[ignore = "full size: ./build.sh test --full"]
fn vae_64x64_f16() {
    vae(64, Precision::F16, F16);
}
