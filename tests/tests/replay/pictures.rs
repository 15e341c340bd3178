//! Whole pictures of the bundled model: prompt to pixels with the plan's three networks, against diffusers' PNGs.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::BufReader,
    path::PathBuf,
    sync::Arc,
    time::Instant,
};

use latent_canvas::{
    config::UNetConfig,
    engine::plan::{
        AttentionChoice, CallRow, Guidance, LowerOptions, MemoryPlan, Part, calls::table,
    },
    kernels::Precision,
    models::{
        choose::PlanWishes, embeddings::timestep_sinusoid, names::Component, record::record_unet,
    },
    observer::Unobserved,
    pipeline::{self, GenerateOptions, PlanEngine, folder::DiskFolder, stages::Stages},
    rng::TorchCpuGenerator,
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
    seed: u32,
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

/// A picture through the pipeline, and what the engine says of it.
fn draw(picture: &Picture, wishes: PlanWishes) -> (Vec<f32>, MemoryPlan, GpuMemoryFigures) {
    let gpu = Arc::new(new_gpu());
    let options = GenerateOptions {
        prompt: picture.prompt.clone(),
        negative_prompt: picture.negative_prompt.clone(),
        seed: picture.seed,
        num_inference_steps: picture.steps,
        guidance_scale: picture.guidance_scale,
        width: picture.width,
        height: picture.height,
        scheduler: Some(picture.scheduler.parse().unwrap()),
    };
    let folder = DiskFolder::new(path(MODEL).display().to_string());
    let engine = PlanEngine::new(Arc::clone(&gpu), wishes);
    let mut pipeline = block_on(pipeline::load(engine, folder, &mut Unobserved)).unwrap();
    let weights = gpu.memory().live_bytes();
    let generated = block_on(pipeline.generate(&options, &mut Unobserved)).unwrap();
    let figures = GpuMemoryFigures {
        after_load: weights,
        after_picture: gpu.memory().live_bytes(),
        peak: gpu.memory().peak_bytes(),
    };
    let plan = pipeline.stages().memory_plan().unwrap().clone();
    drop(pipeline);
    assert_eq!(gpu.memory().live_bytes(), 0);
    let rgb = generated.image.rgba.chunks_exact(4);
    let rgb = rgb
        .flat_map(|pixel| &pixel[..3])
        .map(|&byte| f32::from(byte) / 255.0);
    (rgb.collect(), plan, figures)
}

/// Bytes as the engine counted them.
struct GpuMemoryFigures {
    after_load: u64,
    after_picture: u64,
    peak: u64,
}

fn check(name: &str, wishes: PlanWishes, least_decibels: f64) {
    let picture = picture(name);
    let (got, plan, figures) = draw(&picture, wishes);
    let decibels = psnr(&got, &pixels(&picture.file));
    println!("{name} {wishes:?}: {decibels:.1} dB");
    assert!(decibels >= least_decibels, "{name}: {decibels:.1} dB");
    let weights: u64 = plan.stages.iter().map(|stage| stage.weights_bytes).sum();
    let all_fit = wishes
        .budget_bytes
        .is_none_or(|budget| plan.all_stages.peak_bytes <= budget);
    if all_fit {
        assert_eq!(figures.after_load, weights);
        assert_eq!(figures.after_picture, weights);
    } else {
        // the model's own size was planned with the same budget
        assert_eq!(figures.after_load, 0);
        assert_eq!(figures.after_picture, plan.stages[2].weights_bytes);
        assert_eq!(
            figures.peak, plan.stage_by_stage.peak_bytes,
            "counted and promised"
        );
    }
    println!(
        "peak {} bytes, promised {} resident, {} stage by stage",
        figures.peak, plan.all_stages.peak_bytes, plan.stage_by_stage.peak_bytes
    );
}

#[test]
fn float32_pictures_are_those_of_diffusers() {
    let wishes = PlanWishes {
        activations: Some(Precision::F32),
        guidance: Some(Guidance::TwoPasses),
        ..PlanWishes::default()
    };
    check("red-apple-pndm", wishes, 45.0);
    check("rocket-euler", PlanWishes::default(), 45.0);
}

#[test]
fn float16_pictures_are_close_to_those_of_diffusers() {
    let wishes = PlanWishes {
        activations: Some(Precision::F16),
        ..PlanWishes::default()
    };
    check("red-apple-pndm", wishes, 35.0);
    check(
        "rocket-euler",
        PlanWishes {
            guidance: Some(Guidance::TwoPasses),
            attention: Some(AttentionChoice::Sliced),
            ..wishes
        },
        35.0,
    );
}

/// A budget that holds no two stages: each stage's weights come with it and go before the next, and the peak is the plan's to the byte.
#[test]
fn a_small_budget_holds_one_stage_at_a_time() {
    let wishes = PlanWishes {
        budget_bytes: Some(21 << 20),
        ..PlanWishes::default()
    };
    check("rocket-euler", wishes, 35.0);
    // measuring tiles takes no memory beyond the promise
    let tuned = PlanWishes {
        autotune: Some(true),
        ..wishes
    };
    check("rocket-euler", tuned, 35.0);
}

/// Sums of this network are long enough to be cut into slices that run side by side.
#[test]
fn sliced_sums_are_the_same_sums() {
    let config = UNetConfig::from_json(&text("unet/config.json")).unwrap();
    let file = weights("unet/diffusion_pytorch_model.safetensors");
    let all = LowerOptions::new(Precision::F32);
    let whole = LowerOptions {
        split_k: false,
        ..all
    };
    let predictions = [all, whole].map(|options| {
        let graph = record_unet(&config, 1, 16, 16, 77).unwrap();
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
    let config = UNetConfig::from_json(&text("unet/config.json")).unwrap();
    let file = weights("unet/diffusion_pytorch_model.safetensors");
    let graph = record_unet(&config, 2, 16, 16, 77).unwrap();
    let options = LowerOptions::new(Precision::F32);
    let mut unet = network(gpu(), graph, &options, 1, Component::UNet, &file);
    block_on(unet.run_image(0)).unwrap();
    let mut rows = block_on(unet.time_calls(Part::Step, 0, 0)).unwrap();
    assert_eq!(rows.len(), unet.plan().program.step.len());
    let time = |row: &CallRow| row.nanoseconds.unwrap();
    rows.sort_by(|a, b| time(b).total_cmp(&time(a)));
    print!("{}", table(&rows[..8]));
    let mut kernels: BTreeMap<&str, f64> = BTreeMap::new();
    for row in &rows {
        *kernels.entry(row.kernel).or_default() += time(row) / 1e6;
    }
    println!("ms by kernel: {kernels:.1?}");
    let total: f64 = rows.iter().map(time).sum();
    println!("{:.1} ms in {} calls", total / 1e6, rows.len());
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
