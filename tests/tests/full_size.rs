//! Stable Diffusion 1.5 in its real size on a native adapter with WebGPU's default limits: diffusers' values, the promised memory, the time.
//!
//! Takes minutes on a software adapter, so it runs when asked for: `./build.sh test --full`. Weights are drawn on the spot; with the
//! variable `LATENT_CANVAS_FULL_SIZE` they are streamed from the folder it names, as `./build.sh golden --full` writes one.
#![cfg(all(feature = "plan", not(target_family = "wasm")))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{path::PathBuf, sync::Arc, time::Instant};

use latent_canvas::{
    engine::plan::{
        Gpu, Guidance, LowerOptions, Network, NetworkWeights, Plan, ReplayOptions, VaeMethod,
    },
    kernels::{Limits, Precision},
    models::{
        names::Component,
        plan::{ModelPlan, PlanRequest},
        record::record_text_encoder,
        vae_tiling::{Blend, TileGrid},
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
/// A tile's norms do not see the rest of the picture, so blended tiles are another picture. With weights that nobody trained it is 0.26 away
/// for tiles of 7 x 7 latents, and 0.054 for the 26 x 26 that a picture of 512 px gets.
const BLENDED_SMALL: f64 = 0.35;
const BLENDED: f64 = 0.08;
/// Most that a seam may stand out.
const SEAM: f64 = 1.2;

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
    fn network(&mut self, plan: Plan) -> Network {
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
        let took = start.elapsed().as_secs_f64();
        println!("{:?}: weights in {took:.1} s", self.component);
        self.there = Some(network.weights());
        network
    }

    /// Tells what `runs` runs of `seconds` in all gave, and holds the network's buffers against the promise.
    fn check(
        &mut self,
        network: Network,
        what: &str,
        runs: usize,
        seconds: f64,
        distance: f64,
        most: f64,
    ) {
        let name = format!("{what} on {}", self.gpu.adapter());
        let (promised, counted) = (network.promised(), network.counted());
        let work = 2.0 * promised.run.macs as f64 / 1e9 * runs as f64;
        println!(
            "{name}: relative L2 {distance:.2e}, {seconds:.2} s, {:.1} GFLOP/s, {} bytes = {} weights + {} arena + {} staging",
            work / seconds,
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

/// One run and its seconds; of a short one those of the second, because a driver finishes its compilation during the first.
fn run(network: &mut Network, output: &str) -> (f64, Vec<f32>) {
    let mut time = || {
        let start = Instant::now();
        block_on(async {
            network.run_step(0, 0).await.unwrap();
            network.finish().await.unwrap();
        });
        start.elapsed().as_secs_f64()
    };
    let mut seconds = time();
    if seconds < 15.0 {
        seconds = time();
    }
    (seconds, block_on(network.read_output(output)).unwrap())
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
        let plan = Plan::new(graph, &LowerOptions::new(precision), 1, &Limits::DEFAULT).unwrap();
        let mut network = weights.network(plan);
        network.write_ids("input_ids", &ids).unwrap();
        let what = format!("text encoder, {precision:?}");
        let (seconds, got) = run(&mut network, "encoder_hidden_states");
        let distance = relative_l2(&got, expected);
        weights.check(network, &what, 1, seconds, distance, most);
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
        let graph = full_size::unet_graph(side);
        let plan = Plan::new(graph, &options, 1, &Limits::DEFAULT).unwrap();
        let mut network = weights.network(plan);
        block_on(full_size::begin_unet(&mut network, side));
        let what = format!("unet at {side}x{side} latents, {precision:?}");
        let (seconds, got) = run(&mut network, "noise_pred");
        let distance = relative_l2(&got, &expected);
        weights.check(network, &what, 1, seconds, distance, most);
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

/// How much more neighbouring columns differ where a tile begins than anywhere: 1 where no seam shows.
fn seam(grid: &TileGrid, side: usize, picture: &[f32]) -> f64 {
    let step = |columns: &[usize]| {
        let pairs = (0..side).flat_map(|y| columns.iter().map(move |x| 3 * (y * side + x)));
        let sum: f64 = pairs
            .flat_map(|at| (at..at + 3).map(|at| f64::from(picture[at] - picture[at - 3]).abs()))
            .sum();
        sum / (3 * side * columns.len()) as f64
    };
    let mut starts: Vec<usize> = (0..grid.len())
        .map(|tile| 8 * grid.start(tile)[1])
        .collect();
    starts.retain(|&x| x > 0);
    starts.sort_unstable();
    starts.dedup();
    let all: Vec<usize> = (1..side).collect();
    step(&starts) / step(&all)
}

fn vae(latents_side: usize, cases: &[(Precision, VaeMethod, f64)]) {
    let configs = full_size::configs();
    let side = 8 * latents_side;
    let latents = full_size::unscaled_latents(latents_side);
    let fixture = full_size::vae_fixture();
    let expected = fixture
        .get(&format!("vae.sample.{latents_side}"))
        .channels_last();
    let expected_rms = f64::from(fixture.get(&format!("vae.rms.{latents_side}")).values[0]);
    let stride = if latents_side == SIDES[0] { 1 } else { STRIDE };
    let mut weights = Weights::new(Component::Vae);
    for &(precision, vae, most) in cases {
        let request = PlanRequest {
            width: side,
            height: side,
            guidance: Guidance::Off,
            options: LowerOptions::new(precision),
            limits: Limits::DEFAULT,
            vae,
            budget_bytes: None,
        };
        let ModelPlan {
            vae_decoder,
            vae_grid,
            memory,
            ..
        } = ModelPlan::new(&configs, &request).unwrap();
        let mut network = weights.network(vae_decoder);
        let mut blend = Blend::new(vae_grid.clone(), 8, 3);
        let (mut seconds, mut picture) = (0.0, Vec::new());
        for tile in 0..vae_grid.len() {
            let part = vae_grid.cut(tile, &latents, 4).unwrap();
            network.write_input("latents", 0, &part).unwrap();
            let (took, values) = run(&mut network, "sample");
            seconds += took;
            picture.extend(blend.add(tile, values).unwrap());
        }
        // what the stride leaves out shows in the root mean square of all
        let sum: f64 = picture.iter().map(|&x| f64::from(x).powi(2)).sum();
        let rms = (sum / picture.len() as f64).sqrt();
        let kept = every(stride, side, &picture);
        let distance = relative_l2(&kept, &expected).max((rms / expected_rms - 1.0).abs());
        if vae == VaeMethod::Blended {
            let seam = seam(&vae_grid, side, &picture);
            println!("seams: {seam:.3}");
            assert!(seam <= SEAM, "{seam}");
        }
        let what = format!(
            "vae at {latents_side}x{latents_side} latents, {precision:?}, {:?}",
            memory.vae
        );
        weights.check(network, &what, vae_grid.len(), seconds, distance, most);
    }
    weights.free();
}

#[test]
#[ignore = "full size: ./build.sh test --full"]
fn vae_16x16() {
    vae(
        16,
        &[
            (Precision::F32, VaeMethod::Whole, VAE_F32),
            (Precision::F32, VaeMethod::Exact, VAE_F32),
            (Precision::F16, VaeMethod::Whole, F16),
            (Precision::F16, VaeMethod::Blended, BLENDED_SMALL),
        ],
    );
}

#[test]
#[ignore = "full size: ./build.sh test --full"]
fn vae_64x64_exact() {
    vae(64, &[(Precision::F32, VaeMethod::Exact, VAE_F32)]);
}

#[test]
#[ignore = "full size: ./build.sh test --full"]
fn vae_64x64_float16() {
    vae(64, &[(Precision::F16, VaeMethod::Exact, F16)]);
}

#[test]
#[ignore = "full size: ./build.sh test --full"]
fn vae_64x64_blended() {
    vae(64, &[(Precision::F16, VaeMethod::Blended, BLENDED)]);
}
