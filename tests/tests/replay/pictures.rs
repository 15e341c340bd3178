//! Whole pictures of the bundled model: prompt to pixels with the plan's three networks, against diffusers' PNGs.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::BufReader,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use latent_canvas::{
    config::{ClipTextConfig, UNetConfig, VaeConfig},
    engine::plan::{Graph, Guidance, LowerOptions, Network},
    image::Image,
    kernels::{Limits, Precision},
    models::{
        embeddings::timestep_sinusoid,
        names::Component,
        plan::{ModelConfigs, ModelPlan, PlanRequest},
        record::{record_text_encoder, record_unet, record_vae_decoder},
    },
    rng::TorchCpuGenerator,
    schedulers::{self, SchedulerConfig},
    tokenizer::ClipTokenizer,
};
use latent_canvas_tests::fixture::{psnr, relative_error};
use pollster::block_on;
use serde::Deserialize;

use super::networks::{gpu, network, new_gpu};

const MODEL: &str = "../www/models/emoji";

fn path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(file)
}

fn text(file: &str) -> String {
    fs::read_to_string(path(MODEL).join(file)).unwrap()
}

fn weights(file: &str) -> Vec<u8> {
    fs::read(path(MODEL).join(file)).unwrap()
}

#[derive(Deserialize)]
struct Images {
    images: Vec<Picture>,
}

#[derive(Deserialize)]
struct Picture {
    name: String,
    file: String,
    prompt: String,
    negative_prompt: String,
    scheduler: String,
    steps: usize,
    guidance_scale: f32,
    seed: u64,
    width: usize,
    height: usize,
}

fn picture(name: &str) -> Picture {
    let list = fs::read_to_string(path("golden/images/images.json")).unwrap();
    let list: Images = serde_json::from_str(&list).unwrap();
    let mut images = list.images.into_iter();
    images.find(|picture| picture.name == name).unwrap()
}

fn pixels(file: &str) -> Vec<f32> {
    let file = File::open(path("golden/images").join(file)).unwrap();
    let mut reader = png::Decoder::new(BufReader::new(file)).read_info().unwrap();
    let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
    reader.next_frame(&mut bytes).unwrap();
    bytes.iter().map(|&byte| f32::from(byte) / 255.0).collect()
}

fn configs() -> ModelConfigs {
    ModelConfigs {
        text_encoder: ClipTextConfig::from_json(&text("text_encoder/config.json")).unwrap(),
        unet: UNetConfig::from_json(&text("unet/config.json")).unwrap(),
        vae: VaeConfig::from_json(&text("vae/config.json")).unwrap(),
    }
}

/// `[rows, columns]` to `[columns, rows]`.
fn transpose(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    let places = (0..columns).flat_map(|column| (0..rows).map(move |row| row * columns + column));
    places.map(|place| values[place]).collect()
}

struct Times {
    load: Duration,
    text: Duration,
    once: Duration,
    steps: Vec<Duration>,
    vae: Duration,
    /// Multiply-adds of a step and of the decoder.
    macs: [u64; 2],
}

/// Draws stage by stage: one network at a time is in GPU memory, and its peak is the plan's.
fn draw(picture: &Picture, guidance: Guidance, precision: Precision) -> (Vec<f32>, Times) {
    let gpu = Arc::new(new_gpu());
    let configs = configs();
    let tokenizer = ClipTokenizer::from_vocab_and_merges(
        &text("tokenizer/vocab.json"),
        &text("tokenizer/merges.txt"),
        &text("tokenizer/tokenizer_config.json"),
        Some(&text("tokenizer/special_tokens_map.json")),
    )
    .unwrap();
    let scheduler_config = SchedulerConfig::from_json(&text("scheduler/scheduler_config.json"))
        .unwrap()
        .for_stable_diffusion();
    let kind = picture.scheduler.parse().unwrap();
    let mut scheduler = schedulers::create(kind, &scheduler_config, picture.steps).unwrap();
    let timesteps = scheduler.timesteps().to_vec();
    let options = LowerOptions {
        hoist_schedule: Some(timesteps.len()),
        ..LowerOptions::new(precision)
    };
    let memory = ModelPlan::new(
        &configs,
        &PlanRequest {
            width: picture.width,
            height: picture.height,
            guidance,
            options,
            limits: Limits::DEFAULT,
        },
    )
    .unwrap()
    .memory;
    let mut load = Duration::ZERO;
    let mut open = |graph: Graph, passes: usize, component: Component, file: &str| -> Network {
        let start = Instant::now();
        let network = network(&gpu, graph, &options, passes, component, &weights(file));
        load += start.elapsed();
        network
    };

    let graph = record_text_encoder(&configs.text_encoder, 2).unwrap();
    let file = "text_encoder/model.safetensors";
    let mut encoder = open(graph, 1, Component::TextEncoder, file);
    let prompts = [&picture.negative_prompt, &picture.prompt];
    let ids: Vec<u32> = prompts
        .iter()
        .flat_map(|prompt| tokenizer.encode(prompt).input_ids)
        .collect();
    let start = Instant::now();
    encoder.write_ids("input_ids", &ids).unwrap();
    let hidden = block_on(async {
        encoder.run_step(0, 0).await.unwrap();
        encoder.read_output("encoder_hidden_states").await.unwrap()
    });
    let text_took = start.elapsed();
    drop(encoder);

    let (height, width) = (picture.height / 8, picture.width / 8);
    let channels = configs.unet.in_channels;
    let (batch, passes) = (guidance.batch(), guidance.passes());
    let tokens = configs.text_encoder.max_position_embeddings;
    let graph = record_unet(&configs.unet, batch, height, width, tokens).unwrap();
    let file = "unet/diffusion_pytorch_model.safetensors";
    let mut unet = open(graph, passes, Component::UNet, file);
    let sinusoids = timesteps.iter().flat_map(|&timestep| {
        timestep_sinusoid(
            timestep,
            configs.unet.levels[0].channels,
            configs.unet.flip_sin_to_cos,
            configs.unet.freq_shift,
        )
    });
    let sinusoids: Vec<f32> = sinusoids.collect();
    let start = Instant::now();
    block_on(async {
        unet.write_input("timestep_sinusoid", 0, &sinusoids)
            .unwrap();
        unet.run_schedule().await.unwrap();
        for (pass, hidden) in hidden.chunks(hidden.len() / passes).enumerate() {
            unet.write_input("encoder_hidden_states", pass, hidden)
                .unwrap();
            unet.run_image(pass).await.unwrap();
        }
        unet.finish().await.unwrap();
    });
    let once = start.elapsed();
    let mut latents = TorchCpuGenerator::new(picture.seed).randn(channels * height * width);
    let sigma = scheduler.init_noise_sigma();
    latents.iter_mut().for_each(|value| *value *= sigma);
    let mut steps = Vec::new();
    for step in 0..timesteps.len() {
        let mut scaled = latents.clone();
        scheduler.scale_model_input(&mut scaled, step);
        let sample = transpose(&scaled, channels, height * width).repeat(batch);
        let start = Instant::now();
        let prediction = block_on(async {
            unet.write_input("sample", 0, &sample).unwrap();
            for pass in 0..passes {
                unet.run_step(pass, step).await.unwrap();
            }
            unet.read_output("noise_pred").await.unwrap()
        });
        steps.push(start.elapsed());
        let (uncond, cond) = prediction.split_at(prediction.len() / 2);
        let guided = uncond.iter().zip(cond);
        let guided: Vec<f32> = guided
            .map(|(uncond, cond)| uncond + picture.guidance_scale * (cond - uncond))
            .collect();
        let noise_pred = transpose(&guided, height * width, channels);
        latents = scheduler.step(&noise_pred, step, &latents).unwrap();
    }
    drop(unet);

    let graph = record_vae_decoder(&configs.vae, 1, height, width).unwrap();
    let file = "vae/diffusion_pytorch_model.safetensors";
    let mut vae = open(graph, 1, Component::Vae, file);
    let unscaled: Vec<f32> = transpose(&latents, channels, height * width)
        .iter()
        .map(|value| value / configs.vae.scaling_factor as f32)
        .collect();
    let start = Instant::now();
    let sample = block_on(async {
        vae.write_input("latents", 0, &unscaled).unwrap();
        vae.run_step(0, 0).await.unwrap();
        vae.read_output("sample").await.unwrap()
    });
    let vae_took = start.elapsed();
    drop(vae);
    assert_eq!(gpu.memory().live_bytes(), 0);
    assert_eq!(
        gpu.memory().peak_bytes(),
        memory.stage_by_stage.peak_bytes,
        "counted and promised"
    );
    for stage in &memory.stages {
        println!(
            "{:12} weights {} arena {} staging {} bytes, {} dispatches once, {} a run",
            stage.stage,
            stage.weights_bytes,
            stage.arena_bytes,
            stage.staging_bytes,
            stage.once.dispatches,
            stage.run.dispatches
        );
    }
    let image = Image::from_decoder(picture.width, picture.height, &sample).unwrap();
    let rgb = image.rgba.chunks_exact(4).flat_map(|pixel| &pixel[..3]);
    (
        rgb.map(|&byte| f32::from(byte) / 255.0).collect(),
        Times {
            load,
            text: text_took,
            once,
            steps,
            vae: vae_took,
            macs: [
                passes as u64 * memory.stages[1].run.macs,
                memory.stages[2].run.macs,
            ],
        },
    )
}

fn check(name: &str, guidance: Guidance, precision: Precision, least_decibels: f64) {
    let picture = picture(name);
    let (got, times) = draw(&picture, guidance, precision);
    let decibels = psnr(&got, &pixels(&picture.file));
    let all: Duration = times.steps.iter().sum();
    println!(
        "{name} {precision:?} {guidance:?}: {decibels:.1} dB; load {:.0?}, text {:.0?}, once {:.0?}, step {:.0?} x {} (fastest {:.0?}), vae {:.0?}; {:.1} and {:.1} G multiply-adds a second",
        times.load,
        times.text,
        times.once,
        all / times.steps.len() as u32,
        times.steps.len(),
        times.steps.iter().min().unwrap(),
        times.vae,
        times.macs[0] as f64 / 1e9 / times.steps.iter().min().unwrap().as_secs_f64(),
        times.macs[1] as f64 / 1e9 / times.vae.as_secs_f64(),
    );
    assert!(
        decibels >= least_decibels,
        "{name} {precision:?} {guidance:?}: {decibels:.1} dB"
    );
}

#[test]
fn float32_pictures_are_those_of_diffusers() {
    check("red-apple-pndm", Guidance::TwoPasses, Precision::F32, 45.0);
    check("rocket-euler", Guidance::OneBatch, Precision::F32, 45.0);
}

#[test]
fn float16_pictures_are_close_to_those_of_diffusers() {
    check("red-apple-pndm", Guidance::OneBatch, Precision::F16, 35.0);
    check("rocket-euler", Guidance::TwoPasses, Precision::F16, 35.0);
}

/// Sums of this network are long enough to be cut into slices that run side by side.
#[test]
fn sliced_sums_are_the_same_sums() {
    let configs = configs();
    let file = weights("unet/diffusion_pytorch_model.safetensors");
    let all = LowerOptions::new(Precision::F32);
    let whole = LowerOptions {
        split_k: false,
        ..all
    };
    let predictions = [all, whole].map(|options| {
        let graph = record_unet(&configs.unet, 1, 16, 16, 77).unwrap();
        let mut unet = network(gpu(), graph, &options, 1, Component::UNet, &file);
        let values = |count: usize| TorchCpuGenerator::new(count as u64).randn(count);
        block_on(async {
            unet.write_input("sample", 0, &values(16 * 16 * 4)).unwrap();
            let sinusoid = timestep_sinusoid(501.0, 64, true, 0.0);
            unet.write_input("timestep_sinusoid", 0, &sinusoid).unwrap();
            unet.write_input("encoder_hidden_states", 0, &values(77 * 192))
                .unwrap();
            unet.run_image(0).await.unwrap();
            unet.run_step(0, 0).await.unwrap();
            let prediction = unet.read_output("noise_pred").await.unwrap();
            (unet.promised().run.dispatches, prediction)
        })
    });
    let [(sliced_dispatches, sliced), (dispatches, whole)] = predictions;
    assert!(sliced_dispatches > dispatches);
    let error = relative_error(&sliced, &whole);
    println!("sliced sums: {error:.2e}");
    assert!(error > 0.0 && error <= 1e-5, "{error:.2e}");
}

/// Where the time of a step goes, by module: the GPU's own clock, a pass for each call.
#[test]
fn every_call_of_a_step_is_timed() {
    let configs = configs();
    let file = weights("unet/diffusion_pytorch_model.safetensors");
    let graph = record_unet(&configs.unet, 2, 16, 16, 77).unwrap();
    let options = LowerOptions::new(Precision::F32);
    let mut unet = network(gpu(), graph, &options, 1, Component::UNet, &file);
    block_on(unet.run_image(0)).unwrap();
    let times = block_on(unet.time_step(0, 0)).unwrap();
    let calls = &unet.plan().program.step;
    assert_eq!(times.len(), calls.len());
    let mut rows: Vec<_> = times.iter().zip(calls).collect();
    rows.sort_by(|a, b| b.0.total_cmp(a.0));
    for (nanoseconds, call) in rows.iter().take(8) {
        let rate = call.kernel.macs() as f64 / *nanoseconds;
        println!(
            "{:8.2} ms {rate:6.2} G/s {:11} {}",
            *nanoseconds / 1e6,
            call.kernel.name(),
            call.module
        );
    }
    let mut kernels: BTreeMap<&str, f64> = BTreeMap::new();
    for (nanoseconds, call) in &rows {
        *kernels.entry(call.kernel.name()).or_default() += *nanoseconds / 1e6;
    }
    println!("ms by kernel: {kernels:.1?}");
    let total: f64 = times.iter().sum();
    println!("{:.1} ms in {} calls", total / 1e6, calls.len());
    assert!(total > 0.0);
    // a run with timestamps is a run
    let timed = block_on(unet.read_output("noise_pred")).unwrap();
    let start = Instant::now();
    block_on(unet.run_step(0, 0)).unwrap();
    println!(
        "{:.1?} of this thread to encode and submit; {} pipelines on the device so far",
        start.elapsed(),
        gpu().pipelines()
    );
    assert!(timed == block_on(unet.read_output("noise_pred")).unwrap());
}
