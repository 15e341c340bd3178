//! Decoders in strips and in tiles on the GPU: strips give the picture of the whole, tiles one close to it without seams, both in the memory
//! that was promised.

use std::{fs, path::PathBuf, sync::Arc};

use half::f16;
use latent_canvas::{
    config::{ClipTextConfig, UNetConfig, VaeConfig},
    engine::plan::{Guidance, LowerOptions, Network, Plan, ReplayOptions, Strips, VaeMethod},
    kernels::{Limits, Precision},
    models::{
        names::Component,
        plan::{ModelConfigs, ModelPlan, PlanRequest},
        record::record_vae_decoder,
        vae_tiling::Blend,
    },
    rng::TorchCpuGenerator,
};
use latent_canvas_tests::{
    fixture::{Fixture, psnr, relative_error},
    tiny::{TINY_DEEP, TINY_MODEL, TINY_SD2, Tiny},
};
use pollster::block_on;
use weights_loader::{Dtype, SafetensorsIndex};

use super::networks::{fill, gpu, network, new_gpu};

const MODEL: &str = "../www/models/emoji";

fn path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(file)
}

/// A tiny decoder of random latents.
fn decoded(tiny: &Tiny, size: [usize; 2], options: &LowerOptions) -> Vec<f32> {
    let config = VaeConfig::from_json(tiny.vae_config).unwrap();
    let graph = record_vae_decoder(&config, 1, size[0], size[1]).unwrap();
    let mut network = network(gpu(), graph, options, 1, Component::Vae, tiny.vae);
    let latents = TorchCpuGenerator::new(7).randn(size[0] * size[1] * config.latent_channels);
    network.write_input("latents", 0, &latents).unwrap();
    block_on(network.run_step(0, 0)).unwrap();
    block_on(network.read_output("sample")).unwrap()
}

/// Strips of many heights, bindings of a few rows, pictures that are made twice, sides that nothing divides.
#[test]
fn strips_give_the_picture_of_the_whole() {
    for (tiny, size) in [
        (&TINY_MODEL, [8, 8]),
        (&TINY_SD2, [7, 5]),
        (&TINY_DEEP, [9, 6]),
    ] {
        for precision in [Precision::F32, Precision::F16] {
            let all = LowerOptions::new(precision);
            let expected = decoded(tiny, size, &all);
            for (bytes, recompute_above, binding_bytes) in [
                (0, 0, u64::MAX),
                (6_000, u64::MAX, u64::MAX),
                (8_000, 15_000, 20_000),
                (6_000, 0, 8_000),
            ] {
                let strips = Strips {
                    recompute_above,
                    binding_bytes,
                    ..Strips::new(bytes, &Limits::DEFAULT)
                };
                let options = LowerOptions {
                    strips: Some(strips),
                    ..all
                };
                let got = decoded(tiny, size, &options);
                let error = relative_error(&got, &expected);
                println!(
                    "{} {precision:?} {bytes} {recompute_above}: {error:.2e}",
                    tiny.name
                );
                let most = match precision {
                    Precision::F32 => 1e-6,
                    // a picture that is made twice is rounded where its sum was not
                    Precision::F16 => 5e-3,
                };
                assert!(error <= most, "{}: {error:.2e}", tiny.name);
            }
        }
    }
}

/// The bundled model's decoder of a picture of 256 px: latents of a drawn picture and its mirror images.
struct Bundled {
    configs: ModelConfigs,
    weights: Vec<u8>,
    latents: Vec<f32>,
}

const SIDE: usize = 32;
const CHANNELS: usize = 4;

impl Bundled {
    fn open() -> Self {
        let text = |file: &str| fs::read_to_string(path(MODEL).join(file)).unwrap();
        let mut configs = ModelConfigs {
            text_encoder: ClipTextConfig::from_json(&text("text_encoder/config.json")).unwrap(),
            unet: UNetConfig::from_json(&text("unet/config.json")).unwrap(),
            vae: VaeConfig::from_json(&text("vae/config.json")).unwrap(),
        };
        // its config has it, as all that diffusers wrote; float16 is measured here
        configs.vae.force_upcast = false;
        let file = path("golden/images/red-apple-pndm-latents.safetensors");
        let fixture = Fixture::parse("latents", &fs::read(file).unwrap());
        let last = (0..).take_while(|step| fixture.has(&format!("latents.step.{step}")));
        let drawn = fixture.get(&format!("latents.step.{}", last.last().unwrap()));
        let drawn = drawn.channels_last();
        let half = SIDE / 2;
        assert_eq!(drawn.len(), half * half * CHANNELS);
        let fold = |at: usize| at.min(SIDE - 1 - at);
        let scaling = configs.vae.scaling_factor as f32;
        let latents = (0..SIDE * SIDE * CHANNELS).map(|at| {
            let (place, channel) = (at / CHANNELS, at % CHANNELS);
            let (y, x) = (fold(place / SIDE), fold(place % SIDE));
            drawn[(y * half + x) * CHANNELS + channel] / scaling
        });
        Self {
            latents: latents.collect(),
            weights: fs::read(path(MODEL).join("vae/diffusion_pytorch_model.safetensors")).unwrap(),
            configs,
        }
    }

    fn plan(&self, precision: Precision, vae: VaeMethod, budget_bytes: Option<u64>) -> ModelPlan {
        let request = PlanRequest {
            width: 8 * SIDE,
            height: 8 * SIDE,
            guidance: Guidance::Off,
            options: LowerOptions::new(precision),
            limits: Limits::DEFAULT,
            vae,
            budget_bytes,
        };
        ModelPlan::new(&self.configs, &request).unwrap()
    }

    /// The picture by a plan, on a device of its own whose peak is the plan's.
    fn decode(&self, plan: ModelPlan) -> Vec<f32> {
        let gpu = Arc::new(new_gpu());
        let ModelPlan {
            vae_decoder,
            vae_grid: grid,
            memory,
            ..
        } = plan;
        let mut picture = Vec::new();
        let mut network = self.network(&gpu, vae_decoder);
        let mut blend = Blend::new(grid.clone(), self.configs.vae.scale_factor(), 3);
        for tile in 0..grid.len() {
            let latents = grid.cut(tile, &self.latents, CHANNELS).unwrap();
            network.write_input("latents", 0, &latents).unwrap();
            block_on(network.run_step(0, 0)).unwrap();
            let values = block_on(network.read_output("sample")).unwrap();
            picture.extend(blend.add(tile, values).unwrap());
        }
        let stage = memory.stages.last().unwrap();
        let (counted, promised) = (network.counted(), network.promised());
        assert_eq!(&promised, stage);
        assert_eq!(counted.weights_bytes, stage.weights_bytes);
        assert_eq!(counted.arena_bytes, stage.arena_bytes);
        assert_eq!(counted.staging_bytes, stage.staging_bytes);
        assert_eq!(gpu.memory().peak_bytes(), stage.peak_bytes);
        drop(network);
        assert_eq!(gpu.memory().live_bytes(), 0);
        picture
    }

    fn network(&self, gpu: &Arc<latent_canvas::engine::plan::Gpu>, plan: Plan) -> Network {
        let options = ReplayOptions::new(gpu);
        let mut network = block_on(Network::new(gpu, plan, options)).unwrap();
        fill(&mut network, Component::Vae, &self.weights);
        network
    }
}

/// How much the picture bends at lines between rows or columns, as the mean of the second differences across them.
fn bend(picture: &[f32], is_line: impl Fn(usize) -> bool) -> f64 {
    let side = 8 * SIDE;
    let (mut sum, mut count) = (0.0, 0);
    for a in 1..side - 1 {
        if !is_line(a) {
            continue;
        }
        for b in 0..side {
            for channel in 0..3 {
                let at = |y: usize, x: usize| f64::from(picture[(y * side + x) * 3 + channel]);
                sum += (at(a - 1, b) - 2.0 * at(a, b) + at(a + 1, b)).abs();
                sum += (at(b, a - 1) - 2.0 * at(b, a) + at(b, a + 1)).abs();
                count += 2;
            }
        }
    }
    sum / f64::from(count)
}

/// 1 where a picture bends at the lines of its tiles no more against the rest of it than the whole picture does there.
fn seams(picture: &[f32], whole: &[f32], lines: &[usize]) -> f64 {
    let near = |at: usize| lines.iter().any(|line| at.abs_diff(*line) <= 1);
    let ratio = |picture: &[f32]| bend(picture, near) / bend(picture, |at| !near(at));
    ratio(picture) / ratio(whole)
}

/// The same bytes as a viewer sees them: 0..1.
fn levels(picture: &[f32]) -> Vec<f32> {
    picture
        .iter()
        .map(|x| (x / 2.0 + 0.5).clamp(0.0, 1.0))
        .collect()
}

#[test]
fn the_bundled_decoder_in_strips_and_in_tiles() {
    let model = Bundled::open();
    let whole = model.plan(Precision::F32, VaeMethod::Whole, None);
    let whole_bytes = whole.memory.stages[2].peak_bytes;
    let expected = model.decode(whole);
    for (precision, most, least_decibels) in
        [(Precision::F32, 1e-6, 100.0), (Precision::F16, 2e-2, 45.0)]
    {
        let plan = model.plan(precision, VaeMethod::Exact, None);
        let title = format!("{precision:?} {:?}", plan.memory.vae);
        let bytes = plan.memory.stages[2].peak_bytes;
        let got = model.decode(plan);
        let error = relative_error(&got, &expected);
        let decibels = psnr(&levels(&got), &levels(&expected));
        println!("{title}: {bytes} of {whole_bytes} bytes, {error:.2e}, {decibels:.1} dB");
        assert!(error <= most && decibels >= least_decibels, "{title}");
        assert!(bytes < whole_bytes);
    }
    let mut last_bytes = whole_bytes;
    for (percent, least_decibels) in [(40, 35.0), (18, 30.0)] {
        let budget = whole_bytes * percent / 100;
        let plan = model.plan(Precision::F32, VaeMethod::Blended, Some(budget));
        let (grid, vae) = (plan.vae_grid.clone(), plan.memory.vae);
        let bytes = plan.memory.stages[2].peak_bytes;
        assert!(bytes <= budget && bytes < last_bytes, "{bytes} of {budget}");
        last_bytes = bytes;
        let got = model.decode(plan);
        let lines: Vec<usize> = (0..grid.len())
            .flat_map(|tile| {
                let [top, _] = grid.start(tile);
                [8 * top, 8 * (top + grid.tile()[0])]
            })
            .filter(|&line| line > 0 && line < 8 * SIDE)
            .collect();
        let decibels = psnr(&levels(&got), &levels(&expected));
        let seams = seams(&got, &expected, &lines);
        let apart = got.iter().zip(&expected).map(|(a, b)| (a - b).abs());
        let farthest = apart.fold(0.0_f32, f32::max);
        println!(
            "{vae:?}: {bytes} of {whole_bytes} bytes, {decibels:.1} dB, farthest {farthest:.3} of 2, seams {seams:.3}"
        );
        assert!(decibels >= least_decibels, "{decibels:.1} dB");
        assert!(seams <= 1.05, "{seams:.3}");
    }
}

/// V01: a decoder whose activations are 120000 and more, which float16 cannot hold. `force_upcast` keeps it in float32 whatever is asked for.
#[test]
fn a_decoder_that_float16_cannot_hold_runs_in_float32() {
    let tiny = &TINY_MODEL;
    let mut loud = tiny.vae.to_vec();
    // the file has float16 itself, so two biases make what is more
    for name in ["conv_in.bias", "mid_block.resnets.0.conv2.bias"] {
        fill_tensor(&mut loud, &format!("decoder.{name}"), 60_000.0);
    }
    let text = |file: &str| fs::read_to_string(path("golden/tiny-model").join(file)).unwrap();
    let decode = |vae: VaeConfig, precision: Precision| {
        let side = 8 * vae.scale_factor();
        let latents = TorchCpuGenerator::new(7).randn(8 * 8 * vae.latent_channels);
        let configs = ModelConfigs {
            text_encoder: ClipTextConfig::from_json(&text("text_encoder/config.json")).unwrap(),
            unet: UNetConfig::from_json(&text("unet/config.json")).unwrap(),
            vae,
        };
        let request = PlanRequest {
            width: side,
            height: side,
            guidance: Guidance::Off,
            options: LowerOptions::new(precision),
            limits: Limits::DEFAULT,
            vae: VaeMethod::Auto,
            budget_bytes: None,
        };
        let plan = ModelPlan::new(&configs, &request).unwrap().vae_decoder;
        let mut network = block_on(Network::new(gpu(), plan, ReplayOptions::new(gpu()))).unwrap();
        fill(&mut network, Component::Vae, &loud);
        network.write_input("latents", 0, &latents).unwrap();
        block_on(network.run_step(0, 0)).unwrap();
        block_on(network.read_output("sample")).unwrap()
    };
    let config = VaeConfig::from_json(tiny.vae_config).unwrap();
    assert!(config.force_upcast, "as its config says");
    let trusting = VaeConfig {
        force_upcast: false,
        ..config.clone()
    };
    let upcast = decode(config.clone(), Precision::F16);
    assert!(upcast.iter().all(|x| x.is_finite()));
    assert!(upcast == decode(config, Precision::F32));
    // what a GPU makes of a number that is too large is its own choice; the picture is lost in any case
    let halves = decode(trusting, Precision::F16);
    let is_finite = halves.iter().all(|x| x.is_finite());
    assert!(!is_finite || relative_error(&halves, &upcast) > 0.1);
}

/// Sets every value of a tensor of a weights file.
fn fill_tensor(file: &mut [u8], name: &str, value: f32) {
    let header = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let index = SafetensorsIndex::parse("weights", &file[8..8 + header], Some(file.len() as u64));
    let index = index.unwrap();
    let tensor = index
        .tensors
        .iter()
        .find(|tensor| tensor.name == name)
        .unwrap();
    assert_eq!(tensor.dtype, Dtype::F16);
    let range = tensor.range.start as usize..tensor.range.end as usize;
    for half in file[range].chunks_exact_mut(2) {
        half.copy_from_slice(&f16::from_f32(value).to_le_bytes());
    }
}
