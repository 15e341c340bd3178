//! What each optimisation brings: one thing off at a time, on the bundled model, on the native adapter. All forms are alive at once and take
//! turns, so that a machine that grows slower does so for all of them.

use std::{fmt::Write as _, sync::Arc, time::Instant};

use latent_canvas::{
    engine::plan::{
        AttentionChoice, Fusions, Gpu, Guidance, LowerOptions, MemoryPlan, Network, StageMemory,
        Strips,
    },
    kernels::{Precision, Tile, Tuning},
    models::vae_tiling::TileGrid,
};
use latent_canvas_bench::{
    cpu::process_seconds,
    rows::{Job, Task, row},
    subject::{PlanSubject, STEPS, Settings, request},
};
use serde::Serialize;

use crate::{
    export,
    native::{median, ms},
};

/// What was measured.
#[derive(Serialize)]
pub(crate) struct Ablation {
    adapter: String,
    /// Whether it is software on a CPU: then CPU time is the figure that others on the machine do not disturb.
    software: bool,
    /// Steps of a picture.
    steps: usize,
    /// Of the UNet.
    unet: Vec<Line>,
    /// What the autotuner chose: class of products, times of the tiles in microseconds, tile.
    tiles: Vec<String>,
    /// Of the decoder, per picture.
    vae: Vec<Line>,
    /// Where the weights of the stages are.
    residency: Vec<ResidencyLine>,
}

/// One form. Times are medians, per step or per picture of the decoder.
#[derive(Serialize)]
struct Line {
    title: String,
    wall_ms: f64,
    cpu_ms: f64,
    /// Work done once a picture.
    begin_ms: f64,
    dispatches: usize,
    arena_bytes: u64,
    peak_bytes: u64,
}

#[derive(Serialize)]
struct ResidencyLine {
    title: String,
    peak_bytes: u64,
    /// Uploading the weights of the UNet and the VAE anew for each picture.
    upload_ms: f64,
}

pub(crate) async fn measure(rounds: usize) -> Ablation {
    let gpu = request().await.unwrap();
    let unet = job("emoji-step");
    let vae = job("emoji-decode");
    let (tuning, tiles) = autotuned(&gpu, &unet).await;
    Ablation {
        adapter: gpu.adapter().to_owned(),
        software: gpu.is_software(),
        steps: STEPS,
        unet: compare(&gpu, unet_forms(&gpu, &unet, tuning), rounds).await,
        tiles,
        vae: compare(&gpu, vae_forms(&gpu, &vae), rounds).await,
        residency: residency(&gpu, &[unet, vae]).await,
    }
}

fn job(name: &str) -> Job {
    let row = row(name).unwrap();
    row.job(&export::config(&row)).unwrap()
}

/// How a form differs from everything on.
struct Form {
    title: String,
    job: Job,
    settings: Settings,
    /// Pictures of one run, or a part of one.
    pictures: f64,
    /// Whether the network is recorded, planned and bound anew for each step.
    anew: bool,
}

impl Form {
    fn new(title: &str, job: &Job, settings: Settings) -> Self {
        Self {
            title: title.to_owned(),
            job: job.clone(),
            settings,
            pictures: 1.0,
            anew: false,
        }
    }
}

/// The tiles that the autotuner chooses for a network, and what it measured.
async fn autotuned(gpu: &Arc<Gpu>, job: &Job) -> (Tuning, Vec<String>) {
    const BUDGET_MS: f64 = 5_000.0;
    let settings = Settings::new(gpu, Precision::F16);
    let plan = settings.plan(gpu, job).unwrap();
    let network = Network::new(gpu, plan, settings.replay).await;
    let known = gpu.tuning();
    let (tuning, times) = network.unwrap().autotune(known, BUDGET_MS).await.unwrap();
    let tiles = times.iter().map(|times| {
        let micros = times.nanoseconds.iter().zip(Tile::ALL);
        let micros: Vec<_> = micros
            .map(|(nanoseconds, tile)| format!("{tile:?} {:.0}", nanoseconds / 1e3))
            .collect();
        let class = times.class.name();
        format!(
            "{class}, {}: {} us; {:?}",
            times.module,
            micros.join(", "),
            times.tile
        )
    });
    (tuning, tiles.collect())
}

fn unet_forms(gpu: &Gpu, job: &Job, tuning: Tuning) -> Vec<Form> {
    let all = Settings::new(gpu, Precision::F16);
    let mut forms = Vec::new();
    let mut form = |title: &str, change: fn(&mut Settings)| {
        let mut settings = all;
        change(&mut settings);
        forms.push(Form::new(title, job, settings));
    };
    form("everything on", |_| {});
    form("float32 activations", |s| {
        s.lower.activations = Precision::F32;
    });
    form("no fusion at all", |s| s.lower.fusions = Fusions::NONE);
    form("no fused residual", |s| s.lower.fusions.residual = false);
    form("no fused activation", |s| {
        s.lower.fusions.activation = false;
    });
    form("no fused SiLU in group norms", |s| {
        s.lower.fusions.group_norm_silu = false;
    });
    form("no fused GEGLU", |s| s.lower.fusions.geglu = false);
    form("no fused time embedding", |s| {
        s.lower.fusions.channel_add = false;
    });
    form("no reading of two sources", |s| {
        s.lower.fusions.concat = false;
    });
    form("no fused upsampling", |s| s.lower.fusions.upsample = false);
    form("text computed at each step", |s| {
        s.lower.hoist_text = false;
    });
    form("time embedding computed at each step", |s| {
        s.lower.hoist_schedule = None;
    });
    form("nothing in place", |s| s.lower.in_place = false);
    form("sums never sliced", |s| s.lower.split_k = false);
    form("attention sliced", |s| {
        s.lower.attention = AttentionChoice::Sliced;
    });
    form("attention sliced, 32 KiB of scores at once", |s| {
        s.lower.attention = AttentionChoice::Sliced;
        s.lower.score_bytes = 32 << 10;
    });
    form("guidance in two passes", |s| s.passes = 2);
    form("tiles by rule", |s| s.replay.tuning = Tuning::default());
    let mut tiles = |title: &str, tuning| {
        let mut settings = all;
        settings.replay.tuning = tuning;
        forms.push(Form::new(title, job, settings));
    };
    tiles("tiles by autotuning", tuning);
    for tile in Tile::ALL {
        let title = format!("tile {tile:?} everywhere");
        tiles(&title, Tuning::by_rule(Some(tile)));
    }
    forms.push(Form {
        anew: true,
        ..Form::new("recorded and bound anew at each step", job, all)
    });
    forms
}

fn vae_forms(gpu: &Gpu, job: &Job) -> Vec<Form> {
    const PICTURES: usize = 4;
    const TILE: usize = 10;
    let Task::Vae { side, .. } = job.task else {
        return Vec::new();
    };
    let of = |precision| Settings {
        lower: LowerOptions::new(precision),
        ..Settings::new(gpu, precision)
    };
    let all = of(Precision::F16);
    let mut strips = all;
    strips.lower.strips = Some(Strips::new(32 << 10, gpu.limits()));
    let with = |batch, side| Job {
        task: Task::Vae { batch, side },
        ..job.clone()
    };
    // as the planner of tiles lays them: a quarter is shared
    let overlap = TILE.div_ceil(4);
    let grid = TileGrid::new(side, side, [TILE; 2], [overlap; 2]).unwrap();
    vec![
        Form::new("whole", job, all),
        Form::new("whole, float32 activations", job, of(Precision::F32)),
        Form::new("exact, in strips of 32 KiB", job, strips),
        Form {
            pictures: 1.0 / grid.len() as f64,
            ..Form::new(
                &format!(
                    "blended, {} tiles of {TILE}x{TILE}, without the blending",
                    grid.len()
                ),
                &with(1, TILE),
                all,
            )
        },
        Form {
            pictures: PICTURES as f64,
            ..Form::new("whole, four pictures at once", &with(PICTURES, side), all)
        },
    ]
}

/// A form under measurement.
struct Lane {
    form: Form,
    subject: PlanSubject,
    begin_ms: f64,
    wall_ms: Vec<f64>,
    cpu_ms: Vec<f64>,
}

async fn compare(gpu: &Arc<Gpu>, forms: Vec<Form>, rounds: usize) -> Vec<Line> {
    let mut lanes = Vec::new();
    for form in forms {
        let weights = export::weights(&form.job.row);
        let mut subject = PlanSubject::new(gpu, &form.job, &weights, &form.settings)
            .await
            .unwrap();
        // compiles
        subject.begin().await.unwrap();
        subject.steps(1).await.unwrap();
        let start = Instant::now();
        subject.begin().await.unwrap();
        lanes.push(Lane {
            begin_ms: ms(start),
            form,
            subject,
            wall_ms: Vec::new(),
            cpu_ms: Vec::new(),
        });
    }
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        for lane in &mut lanes {
            let (start, cpu) = (Instant::now(), process_seconds());
            if lane.form.anew {
                let plan = lane.form.settings.plan(gpu, &lane.form.job).unwrap();
                let weights = lane.subject.network().weights();
                let again = Network::with_weights(gpu, plan, weights, lane.form.settings.replay);
                drop(again.await.unwrap());
            }
            lane.subject.steps(1).await.unwrap();
            lane.wall_ms.push(ms(start));
            lane.cpu_ms.push(1e3 * (process_seconds() - cpu));
        }
    }
    lanes.into_iter().map(Lane::line).collect()
}

impl Lane {
    fn line(mut self) -> Line {
        let counted = self.subject.network().counted();
        let promised = self.subject.network().promised();
        Line {
            title: self.form.title,
            wall_ms: median(&self.wall_ms) / self.form.pictures,
            cpu_ms: median(&self.cpu_ms) / self.form.pictures,
            begin_ms: self.begin_ms,
            dispatches: promised.run.dispatches * promised.passes,
            arena_bytes: counted.arena_bytes,
            peak_bytes: counted.arena_bytes + counted.weights_bytes + counted.staging_bytes,
        }
    }
}

/// The weights of UNet and decoder together on the GPU, or one stage after the other.
async fn residency(gpu: &Arc<Gpu>, jobs: &[Job]) -> Vec<ResidencyLine> {
    let settings = Settings::new(gpu, Precision::F16);
    let mut stages = Vec::new();
    let mut upload_ms = 0.0;
    for job in jobs {
        let weights = export::weights(&job.row);
        let start = Instant::now();
        let mut subject = PlanSubject::new(gpu, job, &weights, &settings)
            .await
            .unwrap();
        subject.network().finish().await.unwrap();
        upload_ms += ms(start);
        stages.push(StageMemory::new(subject.network().plan(), gpu.limits()));
    }
    let memory = MemoryPlan::new(Guidance::OneBatch, Precision::F16, stages);
    vec![
        ResidencyLine {
            title: "weights of UNet and decoder stay".to_owned(),
            peak_bytes: memory.all_stages.peak_bytes,
            upload_ms: 0.0,
        },
        ResidencyLine {
            title: "weights stage by stage".to_owned(),
            peak_bytes: memory.stage_by_stage.peak_bytes,
            upload_ms,
        },
    ]
}

impl Ablation {
    /// The tables, in Markdown.
    pub(crate) fn table(&self) -> String {
        let mut out = format!(
            "Adapter: {}. Forms are compared by {}.\n\n",
            self.adapter,
            if self.software {
                "CPU time"
            } else {
                "wall time"
            }
        );
        let steps = self.steps as f64;
        let _ = writeln!(
            out,
            "| UNet of the bundled model, two at 16x16 | ms a step | CPU ms a step | of all on | once, ms | {steps} steps, ms | dispatches | arena MiB | peak MiB |"
        );
        out += "|---|--:|--:|--:|--:|--:|--:|--:|--:|\n";
        let cost = |line: &Line| {
            if self.software {
                line.cpu_ms
            } else {
                line.wall_ms
            }
        };
        let first = self.unet.first().map_or(1.0, cost);
        for line in &self.unet {
            let _ = writeln!(
                out,
                "| {} | {:.1} | {:.0} | {:.2} | {:.1} | {:.0} | {} | {:.2} | {:.2} |",
                line.title,
                line.wall_ms,
                line.cpu_ms,
                cost(line) / first,
                line.begin_ms,
                line.begin_ms + steps * line.wall_ms,
                line.dispatches,
                mib(line.arena_bytes),
                mib(line.peak_bytes)
            );
        }
        out += "\nThe autotuner's choices:\n";
        for tile in &self.tiles {
            let _ = writeln!(out, "- {tile}");
        }
        out += "\n| decoder of the bundled model, 16x16 | ms a picture | CPU ms | dispatches | arena MiB | peak MiB |\n|---|--:|--:|--:|--:|--:|\n";
        for line in &self.vae {
            let _ = writeln!(
                out,
                "| {} | {:.1} | {:.0} | {} | {:.2} | {:.2} |",
                line.title,
                line.wall_ms,
                line.cpu_ms,
                line.dispatches,
                mib(line.arena_bytes),
                mib(line.peak_bytes)
            );
        }
        out += "\n| residency | peak MiB | uploads a picture, ms |\n|---|--:|--:|\n";
        for line in &self.residency {
            let _ = writeln!(
                out,
                "| {} | {:.2} | {:.0} |",
                line.title,
                mib(line.peak_bytes),
                line.upload_ms
            );
        }
        out
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
