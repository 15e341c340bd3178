//! Decoders in strips of rows on the kernels' CPU twins: the values of the whole.

use latent_canvas::{
    config::VaeConfig,
    engine::plan::{LowerOptions, Plan, Strips},
    kernels::{Kernel, Limits, Precision},
    models::names::Component,
};
use latent_canvas_tests::{
    fixture::relative_error,
    tiny::{TINY_DEEP, TINY_MODEL, TINY_SD2, Tiny},
};

use super::{
    brute_force,
    machine::{Machine, weights},
    networks::{Network, TINY},
};

/// The decoder of a tiny model, its latents cut to `rows` and `columns` where the fixture has more.
fn decoded(network: &Network, tiny: &Tiny, options: &LowerOptions) -> (Plan, Vec<f32>) {
    let fixture = tiny.vae_fixture();
    let latents = fixture.get("latents");
    let config = VaeConfig::from_json(tiny.vae_config).unwrap();
    let [_, _, height, width] = latents.shape[..] else {
        panic!("latents are no image")
    };
    // the first picture, cut to odd sides
    let (rows, columns) = (height - 1, width - 1);
    let channels = config.latent_channels;
    let unscaled: Vec<f32> = (0..rows * columns * channels)
        .map(|at| {
            (
                at / channels % columns,
                at / channels / columns,
                at % channels,
            )
        })
        .map(|(x, y, c)| latents.channels_last()[(y * width + x) * channels + c])
        .map(|value| value / config.scaling_factor as f32)
        .collect();
    let graph = network.vae_decoder(1, rows, columns);
    let plan = Plan::new(graph, options, 1, &Limits::DEFAULT).unwrap();
    let weights = weights(&plan.graph, Component::Vae, tiny.vae);
    let mut machine = Machine::new(&plan, weights);
    machine.input("latents", 0, &unscaled);
    machine.run(&plan.program.step, 0, 0);
    let values = machine.output("sample", 0);
    (plan, values)
}

/// Strips of many heights, with and without rows that are made twice, down to bindings of a few rows: the values of the whole.
#[test]
fn vae_decoder_in_strips() {
    for (network, tiny) in TINY.iter().zip([TINY_MODEL, TINY_SD2, TINY_DEEP]) {
        for precision in [Precision::F32, Precision::F16] {
            let (whole, expected) = decoded(network, &tiny, &LowerOptions::new(precision));
            for (bytes, recompute_above, binding_bytes) in [
                (0, 0, u64::MAX),
                (6_000, u64::MAX, u64::MAX),
                (8_000, 15_000, 20_000),
                (6_000, 0, 8_000),
            ] {
                let options = LowerOptions {
                    strips: Some(Strips {
                        bytes,
                        recompute_above,
                        binding_bytes,
                        alignment_bytes: 256,
                    }),
                    ..LowerOptions::new(precision)
                };
                let (plan, got) = decoded(network, &tiny, &options);
                brute_force::check(&plan.program, &plan.arena).unwrap();
                let strips = plan.program.dispatches().filter(
                    |call| matches!(call.kernel, Kernel::Conv2d(args) if args.strip.is_some()),
                );
                println!(
                    "{} {precision:?} {bytes} {recompute_above}: {} of {} calls are strips, arena {} of {}",
                    tiny.name,
                    strips.count(),
                    plan.program.dispatches().count(),
                    plan.arena.bytes(),
                    whole.arena.bytes()
                );
                assert!(plan.program != whole.program);
                let tolerance = match precision {
                    Precision::F32 => 1e-6,
                    Precision::F16 => 5e-3,
                };
                let error = relative_error(&got, &expected);
                println!("    {error:.2e}");
                assert!(error <= tolerance, "{}: {error:.2e}", tiny.name);
            }
        }
    }
}
