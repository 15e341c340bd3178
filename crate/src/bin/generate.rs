//! `generate`: draws a picture with the plan engine on the system's own graphics API, without a browser.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use latent_canvas::{
    Error,
    cli::print,
    engine::plan::{CallRow, Gpu, calls::table},
    kernels::Limits,
    models::choose::PlanWishes,
    observer::{Event, Observer},
    pipeline::{self, GenerateOptions, folder::DiskFolder, stages::Stages},
    schedulers::SchedulerKind,
};
use serde_json::json;

const HELP: &str = "\
generate --native --prompt TEXT --out FILE [options]

Draws a picture with the plan engine on this machine's graphics API (Vulkan, Metal or DirectX 12), without a browser.

  --prompt TEXT            what the picture shows
  --negative-prompt TEXT   what it does not show
  --seed N                 0 to 4294967295 (0)
  --steps N                1 to 1000 (20)
  --guidance-scale X       0 to 1000 (the model's own, else 7.5)
  --width N, --height N    pixels, a multiple of 8, at most 1024 (the model's own size)
  --scheduler NAME         pndm, ddim or euler (the model's own)
  --model DIR              a folder in diffusers' layout (the bundled model)
  --out FILE               the PNG
  --report FILE            engine, adapter, times and memory, as JSON
  --ops ORDER              after the picture, list every kernel call with module, shapes, bytes and time: by time, or in order
                           (with --report they are in it too)
  --budget BYTES           most GPU memory to take: 900MiB, 1.8GiB, none (none)
  --activations HOW        f32, f16 or auto: float16 where float32 does not fit (auto)
  --guidance HOW           one-batch, two-passes or auto: two passes where a batch does not fit (auto)
  --vae HOW                whole, exact (in strips, the same picture up to rounding), blended (in tiles that overlap), or auto: the first
                           of them that fits (auto)
  --autotune HOW           on, off or auto: tiles are measured while the model loads, but for software on a CPU (auto)
  --attention HOW          sliced or auto: the memory-efficient form where there is a kernel for it (auto)
  --help
";

const BUNDLED: &str = "www/models/emoji";

struct Arguments {
    model: PathBuf,
    options: GenerateOptions,
    size: [Option<usize>; 2],
    guidance_scale: Option<f32>,
    wishes: PlanWishes,
    out: PathBuf,
    report: Option<PathBuf>,
    ops: Option<OpsOrder>,
}

/// How the kernel calls are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpsOrder {
    Time,
    Order,
}

/// Tells the terminal and measures the stages.
struct Terminal {
    stage: &'static str,
    since: Instant,
    took: Vec<(&'static str, Duration)>,
}

impl Terminal {
    fn enter(&mut self, stage: &'static str) {
        if stage == self.stage {
            return;
        }
        let now = Instant::now();
        self.took.push((self.stage, now - self.since));
        (self.stage, self.since) = (stage, now);
    }

    fn milliseconds(&self, stage: &str) -> u128 {
        let took = self.took.iter().filter(|(name, _)| *name == stage);
        took.map(|(_, took)| took.as_millis()).sum()
    }
}

impl Observer for Terminal {
    fn notify(&mut self, event: Event<'_>) {
        match event {
            Event::Download { .. } => self.enter("load"),
            Event::Prepare => self.enter("prepare"),
            Event::Encode => self.enter("encode"),
            Event::Denoise { step, steps, .. } => {
                self.enter("denoise");
                eprintln!("denoise {step}/{steps}");
            }
            Event::Decode => self.enter("decode"),
        }
    }

    fn is_cancelled(&self) -> bool {
        false
    }

    async fn breathe(&mut self) {}
}

fn main() -> ExitCode {
    let arguments = match parse(lexopt::Parser::from_env()) {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            return match print(HELP) {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::FAILURE,
            };
        }
        Err(error) => {
            eprintln!("{HELP}\ngenerate: {error}");
            return ExitCode::from(2);
        }
    };
    match pollster::block_on(draw(arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

async fn draw(arguments: Arguments) -> Result<(), String> {
    let told = |error: Error| format!("{}: {}", error.code(), error.sentence());
    let start = Instant::now();
    let mut terminal = Terminal {
        stage: "start",
        since: start,
        took: Vec::new(),
    };
    let gpu = Arc::new(Gpu::request(&Limits::DEFAULT).await.map_err(told)?);
    let engine = pipeline::PlanEngine::new(Arc::clone(&gpu), arguments.wishes);
    let folder = DiskFolder::new(arguments.model.display().to_string());
    let mut pipeline = pipeline::load(engine, folder, &mut terminal)
        .await
        .map_err(told)?;
    let own = pipeline.default_size();
    let [width, height] = arguments.size.map(|side| side.unwrap_or(own));
    let options = GenerateOptions {
        width,
        height,
        guidance_scale: arguments
            .guidance_scale
            .unwrap_or_else(|| pipeline.default_guidance_scale()),
        ..arguments.options
    };
    let generated = pipeline
        .generate(&options, &mut terminal)
        .await
        .map_err(told)?;
    terminal.enter("save");
    let png = generated
        .image
        .to_png(&generated.parameters)
        .map_err(told)?;
    let save = |path: &Path, bytes: &[u8]| {
        fs::write(path, bytes).map_err(|error| format!("{}: {error}", path.display()))
    };
    save(&arguments.out, &png)?;
    let total = start.elapsed().as_millis();
    let memory = gpu.memory();
    let (peak, live) = (memory.peak_bytes(), memory.live_bytes());
    let mut calls = Vec::new();
    if let Some(order) = arguments.ops {
        let stages = pipeline.stages_mut();
        calls = stages.time_calls(&mut terminal).await.map_err(told)?;
        if order == OpsOrder::Time {
            let time = |row: &CallRow| row.nanoseconds.unwrap_or_default();
            calls.sort_by(|a, b| time(b).total_cmp(&time(a)));
        }
        print(&table(&calls))?;
    }
    if let Some(path) = &arguments.report {
        let stages = ["load", "prepare", "encode", "denoise", "decode"];
        let milliseconds = stages.map(|stage| (stage, terminal.milliseconds(stage)));
        let mut milliseconds: std::collections::BTreeMap<_, _> = milliseconds.into_iter().collect();
        milliseconds.insert("total", total);
        let report = json!({
            "model": pipeline.name(),
            "prompt": options.prompt,
            "seed": options.seed,
            "width": width,
            "height": height,
            "engine": pipeline.stages().engine(),
            "adapter": gpu.adapter(),
            "milliseconds": milliseconds,
            "weightBytes": pipeline.stages().weight_bytes(),
            "gpuBytesPeak": peak,
            "gpuBytesLive": live,
            "ops": calls,
            "plan": pipeline.stages().memory_plan(),
        });
        let text = serde_json::to_string_pretty(&report).map_err(|error| error.to_string())?;
        save(path, format!("{text}\n").as_bytes())?;
    }
    print(&format!(
        "{}: {width} x {height}, seed {}, plan on {}, {total} ms, {} MiB of GPU memory\n",
        arguments.out.display(),
        options.seed,
        gpu.adapter(),
        peak.div_ceil(1 << 20)
    ))
}

fn parse(mut parser: lexopt::Parser) -> Result<Option<Arguments>, lexopt::Error> {
    use lexopt::prelude::{Long, Short, ValueExt};
    let mut arguments = Arguments {
        model: PathBuf::from(BUNDLED),
        options: GenerateOptions {
            prompt: String::new(),
            negative_prompt: String::new(),
            seed: 0,
            num_inference_steps: 20,
            guidance_scale: 7.5,
            width: 0,
            height: 0,
            scheduler: None,
        },
        size: [None, None],
        guidance_scale: None,
        wishes: PlanWishes::default(),
        out: PathBuf::new(),
        report: None,
        ops: None,
    };
    let options = &mut arguments.options;
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(None),
            Long("native") => {}
            Long("prompt") => options.prompt = parser.value()?.string()?,
            Long("negative-prompt") => options.negative_prompt = parser.value()?.string()?,
            Long("seed") => options.seed = number("seed", &parser.value()?)?,
            Long("steps") => options.num_inference_steps = number("steps", &parser.value()?)?,
            Long("guidance-scale") => {
                arguments.guidance_scale = Some(number("guidance-scale", &parser.value()?)?);
            }
            Long("width") => arguments.size[0] = Some(number("width", &parser.value()?)?),
            Long("height") => arguments.size[1] = Some(number("height", &parser.value()?)?),
            Long("scheduler") => {
                options.scheduler = Some(parser.value()?.parse::<SchedulerKind>()?);
            }
            Long("model") => arguments.model = parser.value()?.into(),
            Long("out") => arguments.out = parser.value()?.into(),
            Long("report") => arguments.report = Some(parser.value()?.into()),
            Long("ops") => {
                arguments.ops = Some(match parser.value()?.to_str() {
                    Some("time") => OpsOrder::Time,
                    Some("order") => OpsOrder::Order,
                    _ => return Err("--ops must be time or order".into()),
                });
            }
            Long(name) if PlanWishes::NAMES.contains(&name) => {
                let name = name.to_owned();
                let value = parser.value()?.string()?;
                let set = arguments.wishes.set(&name, &value);
                set.map_err(|error| error.to_string())?;
            }
            other => return Err(other.unexpected()),
        }
    }
    if arguments.out.as_os_str().is_empty() {
        return Err("--out is missing".into());
    }
    Ok(Some(arguments))
}

fn number<T: std::str::FromStr>(option: &str, value: &OsString) -> Result<T, String> {
    let text = value.to_str().and_then(|text| text.parse().ok());
    text.ok_or_else(|| format!("--{option} {}: give a number", value.display()))
}
