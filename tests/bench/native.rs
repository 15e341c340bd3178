//! The engines side by side on the native adapter, interleaved, in one process.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use latent_canvas::{
    engine::plan::Gpu,
    kernels::{Tile, Tuning},
};
use latent_canvas_bench::{
    cpu::process_seconds,
    report::{Figures, Report, RowReport},
    rows::{Job, Row, Task},
    subject::{PlanSubject, Settings, Subject, request},
};

use crate::export;

/// A sample is so long at least, that the clocks can tell it.
const SAMPLE_SECONDS: f64 = 0.3;
/// Most calls in a sample.
const MOST_CALLS: f64 = 500.0;
/// Side of the square product that tells the adapter's best rate: long enough for a clock, and no longer.
const BEST_SIDE: usize = 4096;
const SOFTWARE_BEST_SIDE: usize = 1024;
/// Runs of it with each tile.
const BEST_RUNS: usize = 3;

pub(crate) async fn measure(rows: &[Row], rounds: usize) -> Report {
    let gpu = request().await.unwrap();
    let mut report = Report {
        place: "native".to_owned(),
        adapter: gpu.adapter().to_owned(),
        software: gpu.is_software(),
        best_gflops: Some(best_gflops(&gpu).await),
        rows: Vec::new(),
    };
    for row in rows {
        eprintln!("{}", row.title);
        report.rows.push(measure_row(row, rounds).await);
    }
    report
}

/// An engine under measurement.
struct Lane {
    name: &'static str,
    subject: Subject,
    figures: Figures,
    output: Vec<f32>,
    times: usize,
    cpu_ms: Vec<f64>,
}

async fn measure_row(row: &Row, rounds: usize) -> RowReport {
    let job = row.job(&export::config(row)).unwrap();
    let weights = export::weights(row);
    let mut engines = BTreeMap::new();
    let mut lanes: Vec<Lane> = Vec::new();
    for &name in Subject::NAMES {
        match lane(name, &job, &weights).await {
            Ok(lane) => lanes.push(lane),
            Err(error) => {
                // whole chains of causes, over many lines, become a cell of a table
                let text: Vec<_> = error
                    .to_string()
                    .split_whitespace()
                    .map(str::to_owned)
                    .collect();
                let error = Some(text.join(" ").chars().take(300).collect());
                engines.insert(
                    name.to_owned(),
                    Figures {
                        error,
                        ..Figures::default()
                    },
                );
            }
        }
    }
    for _ in 0..rounds {
        for lane in &mut lanes {
            let (wall, cpu) = sample(&mut lane.subject, lane.times).await;
            lane.figures.samples_ms.push(wall);
            lane.cpu_ms.push(cpu);
        }
    }
    let reference = lanes.first().map(|lane| lane.output.clone());
    for mut lane in lanes {
        lane.figures.wall_ms = median(&lane.figures.samples_ms);
        lane.figures.cpu_ms = median(&lane.cpu_ms);
        lane.figures.peak_bytes = lane.subject.peak_bytes();
        lane.figures.difference = reference
            .as_deref()
            .map(|reference| difference(&lane.output, reference));
        engines.insert(lane.name.to_owned(), lane.figures);
    }
    RowReport {
        name: row.name.to_owned(),
        title: row.title.to_owned(),
        macs: job.macs().unwrap(),
        engines,
    }
}

async fn lane(name: &'static str, job: &Job, weights: &[u8]) -> latent_canvas::Result<Lane> {
    let start = Instant::now();
    let mut subject = Subject::new(name, job, weights).await?;
    let load_ms = ms(start);
    let start = Instant::now();
    subject.begin().await?;
    let output = subject.run(1).await?;
    let first_ms = ms(start);
    let start = Instant::now();
    subject.begin().await?;
    let begin_ms = ms(start);
    let (warm, _) = sample(&mut subject, 1).await;
    let figures = Figures {
        load_ms,
        first_ms,
        begin_ms,
        ..Figures::default()
    };
    Ok(Lane {
        name,
        subject,
        figures,
        output,
        times: (1e3 * SAMPLE_SECONDS / warm).ceil().clamp(1.0, MOST_CALLS) as usize,
        cpu_ms: Vec::new(),
    })
}

/// Wall and CPU time of one call, ms.
async fn sample(subject: &mut Subject, times: usize) -> (f64, f64) {
    let (start, cpu) = (Instant::now(), process_seconds());
    subject.run(times).await.unwrap();
    let calls = times as f64;
    (ms(start) / calls, 1e3 * (process_seconds() - cpu) / calls)
}

pub(crate) fn ms(start: Instant) -> f64 {
    1e3 * start.elapsed().as_secs_f64()
}

pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

/// The largest difference as a part of the largest value; NaN stays NaN.
fn difference(got: &[f32], reference: &[f32]) -> f64 {
    assert_eq!(got.len(), reference.len());
    let largest = reference
        .iter()
        .fold(0.0_f32, |most, value| most.max(value.abs()));
    let worst = got.iter().zip(reference).map(|(a, b)| (a - b).abs());
    let worst = worst.fold(0.0_f32, |most, value| {
        if value > most || value.is_nan() {
            value
        } else {
            most
        }
    });
    f64::from(worst / largest)
}

/// The best rate of a large matrix product over all tiles.
async fn best_gflops(gpu: &Arc<Gpu>) -> f64 {
    let side = if gpu.is_software() {
        SOFTWARE_BEST_SIDE
    } else {
        BEST_SIDE
    };
    let row = Row {
        name: "best",
        title: "best",
        task: Task::Linear {
            rows: side,
            k: side,
            n: side,
        },
        folder: None,
    };
    let job = row.job("").unwrap();
    let mut best: f64 = 0.0;
    for tile in Tile::ALL {
        let mut settings = Settings::exact(gpu);
        settings.replay.tuning = Tuning::by_rule(Some(tile));
        let mut subject = PlanSubject::new(gpu, &job, &row.made_weights(), &settings)
            .await
            .unwrap();
        subject.begin().await.unwrap();
        subject.steps(1).await.unwrap();
        for _ in 0..BEST_RUNS {
            let (start, cpu) = (Instant::now(), process_seconds());
            subject.steps(1).await.unwrap();
            let cpu_ms = 1e3 * (process_seconds() - cpu);
            let cost = if gpu.is_software() && cpu_ms > 0.0 {
                cpu_ms
            } else {
                ms(start)
            };
            best = best.max(2.0 * job.macs().unwrap() as f64 / 1e6 / cost);
        }
    }
    best
}
