//! What each form of attention takes in GPU memory: the first attention block of Stable Diffusion 1.5 (8 heads of 40 channels, a batch of two
//! for guidance), from the plan and counted when it runs.
//!
//! `./build.sh attention-memory` prints the table for pictures of 512, 640 and 768 px.
#![cfg(all(feature = "plan", not(target_family = "wasm")))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{sync::Arc, time::Instant};

use latent_canvas::{
    Error,
    engine::{
        Shape,
        plan::{
            AttentionChoice, Gpu, Graph, LowerOptions, Network, Plan, Rate, Recorder,
            ReplayOptions, StageMemory,
        },
    },
    kernels::{Kernel, Limits, Precision},
    models::{
        names::Component,
        transformer_2d::{Transformer2D, Transformer2DSizes},
        weights::Weights,
    },
    rng::TorchCpuGenerator,
};
use latent_canvas_tests::{fixture::relative_error, full_size};
use pollster::block_on;

const BATCH: usize = 2;
const CHANNELS: usize = 320;
const MIB: f64 = 1_048_576.0;

/// How attention is computed, and the most bytes of scores.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    AllHeads,
    OneHead,
    SomeQueries,
    MemoryEfficient,
}

impl Form {
    const ALL: [Self; 4] = [
        Self::AllHeads,
        Self::OneHead,
        Self::SomeQueries,
        Self::MemoryEfficient,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::AllHeads => "all heads at once",
            Self::OneHead => "one head at a time",
            Self::SomeQueries => "a slice of a head's queries (16 MiB of scores)",
            Self::MemoryEfficient => "memory-efficient",
        }
    }

    /// Of the study that this project began with, for the block in PyTorch: MiB at 512, 640 and 768 px where it tells them.
    const fn study(self) -> [&'static str; 3] {
        match self {
            Self::AllHeads => ["2241", "", ""],
            Self::OneHead => ["387", "795", "1390"],
            _ => ["", "", ""],
        }
    }

    fn options(self, tokens: usize) -> LowerOptions {
        let usual = LowerOptions::new(Precision::F32);
        let (attention, score_bytes) = match self {
            Self::AllHeads => (AttentionChoice::AllHeads, usual.score_bytes),
            Self::OneHead => (AttentionChoice::Sliced, 4 * (tokens * tokens) as u64),
            Self::SomeQueries => (AttentionChoice::Sliced, usual.score_bytes),
            Self::MemoryEfficient => (AttentionChoice::Auto, usual.score_bytes),
        };
        LowerOptions {
            attention,
            score_bytes,
            ..usual
        }
    }
}

/// `down_blocks.0.attentions.0` of the UNet for latents of a side.
fn block(side: usize) -> Graph {
    let recorder = Recorder::new("attention_block");
    let weights = Weights::new(&recorder).pp("down_blocks.0.attentions.0");
    let sizes = Transformer2DSizes {
        channels: CHANNELS,
        context_channels: 768,
        num_heads: 8,
        layers: 1,
        groups: 32,
        use_linear_projection: false,
    };
    let block = Transformer2D::new(&weights, sizes);
    let image = Shape::image(BATCH, side, side, CHANNELS);
    let hidden = recorder.input("hidden_states", image, Rate::Step);
    let text = Shape::tokens(BATCH, 77, 768);
    let text = recorder.input("encoder_hidden_states", text, Rate::Image);
    let output = block.forward(&recorder, &hidden, &text);
    recorder.finish(&[("sample", output)]).unwrap()
}

/// The largest score matrix of a plan.
fn scores_bytes(plan: &Plan) -> u64 {
    let calls = plan.program.step.iter();
    let scores = calls.filter_map(|call| match call.kernel {
        Kernel::Attention(args) => Some(args.scratch_bytes()),
        _ => None,
    });
    scores.max().unwrap()
}

struct Counted {
    output: Vec<f32>,
    peak_bytes: u64,
    seconds: f64,
}

/// Runs a planned block once.
fn run(side: usize, plan: Plan, limits: &Limits) -> latent_canvas::Result<(Counted, String)> {
    let gpu = Arc::new(block_on(Gpu::request(limits))?);
    let mut network = block_on(Network::new(&gpu, plan, ReplayOptions::new(&gpu)))?;
    block_on(full_size::fill(&mut network, Component::UNet));
    let hidden = TorchCpuGenerator::new(1).randn(BATCH * side * side * CHANNELS);
    let text = TorchCpuGenerator::new(2).randn(BATCH * 77 * 768);
    block_on(async {
        network.write_input("encoder_hidden_states", 0, &text)?;
        network.run_image(0).await?;
        network.write_input("hidden_states", 0, &hidden)?;
        network.finish().await
    })?;
    let start = Instant::now();
    block_on(async {
        network.run_step(0, 0).await?;
        network.finish().await
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let output = block_on(network.read_output("sample"))?;
    let counted = Counted {
        output,
        peak_bytes: gpu.memory().peak_bytes(),
        seconds,
    };
    Ok((counted, gpu.adapter().to_owned()))
}

/// Fewer scores at a time: fewer bytes, and not one bit of the output changes. Without scores the last bits do.
#[test]
fn the_forms_agree_and_take_what_was_promised() {
    let side = 32;
    let mut outputs = Vec::new();
    let mut promises = Vec::new();
    for form in Form::ALL {
        let limits = Limits::DEFAULT;
        let plan = Plan::new(block(side), &form.options(side * side), 1, &limits).unwrap();
        let promised = StageMemory::new(&plan, &limits).peak_bytes;
        let (counted, _) = run(side, plan, &limits).unwrap();
        assert_eq!(counted.peak_bytes, promised, "{}", form.name());
        outputs.push(counted.output);
        promises.push(promised);
    }
    let [all_heads, one_head, some_queries, memory_efficient] = &outputs[..] else {
        panic!("four forms")
    };
    assert!(all_heads == one_head, "one head at a time changes bits");
    assert!(all_heads == some_queries, "slices change bits");
    let distance = relative_error(memory_efficient, all_heads);
    assert!(distance <= 1e-5, "{distance:e}");
    assert!(
        promises[0] > promises[1] && promises[1] >= promises[3],
        "{promises:?}"
    );
    println!("{promises:?}, {distance:e}");
}

/// What there is to run on: WebGPU's default limits, raised to what the form asks for.
fn raised(bytes: u64) -> Limits {
    let usual = Limits::DEFAULT;
    Limits {
        max_storage_buffer_binding_bytes: usual.max_storage_buffer_binding_bytes.max(bytes),
        max_buffer_bytes: usual.max_buffer_bytes.max(bytes),
        ..usual
    }
}

#[test]
#[ignore = "takes minutes on a software adapter: ./build.sh attention-memory"]
fn table() {
    // with a blank line first: the harness may have begun a line of its own
    println!(
        "\n| picture | attention | largest score matrix, MiB | peak of the block, MiB | counted when run, MiB | fits WebGPU's default limits | seconds | the study, MiB |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let mut adapter = String::new();
    for (at, side) in [64, 80, 96].into_iter().enumerate() {
        for form in Form::ALL {
            let options = form.options(side * side);
            let usual = Plan::new(block(side), &options, 1, &Limits::DEFAULT).unwrap();
            let scores = scores_bytes(&usual);
            let limits = raised(scores);
            let plan = Plan::new(block(side), &options, 1, &limits).unwrap();
            let promised = StageMemory::new(&plan, &limits);
            let fits = StageMemory::new(&plan, &Limits::DEFAULT).refused.is_none()
                && promised.largest_buffer_bytes <= Limits::DEFAULT.max_buffer_bytes;
            let (counted, took) = match run(side, plan, &limits) {
                Ok((counted, name)) => {
                    assert_eq!(counted.peak_bytes, promised.peak_bytes, "{}", form.name());
                    adapter = name;
                    (mib(counted.peak_bytes), format!("{:.1}", counted.seconds))
                }
                Err(Error::LimitTooSmall { limit, .. }) => {
                    (format!("more than the adapter's {limit}"), String::new())
                }
                Err(error) => panic!("{}: {error}", form.name()),
            };
            println!(
                "| {} px | {} | {} | {} | {counted} | {} | {took} | {} |",
                8 * side,
                form.name(),
                mib(scores),
                mib(promised.peak_bytes),
                if fits { "yes" } else { "no" },
                form.study()[at],
            );
        }
    }
    println!("\nfloat32 activations, batch {BATCH}, weights included; run on {adapter}");
}

fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / MIB)
}
