//! Decoders in strips of rows on the kernels' CPU twins: the values of the whole.

use latent_canvas::{
    config::VaeConfig,
    engine::plan::{Dispatch, LowerOptions, Plan, PlanFault, Program, Strips, verify},
    kernels::{ConvStrip, Kernel, Limits, Precision},
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

/// What is wrong with a plan after a change of its calls.
fn fault(plan: &Plan, change: impl Fn(&mut Program) -> bool) -> PlanFault {
    let mut program = plan.program.clone();
    assert!(change(&mut program), "there is nothing to change");
    verify(&program, &plan.arena, &plan.weights, &Limits::DEFAULT).unwrap_err()
}

/// The strips of convolutions, in order.
fn strips(program: &mut Program) -> impl Iterator<Item = (usize, &mut Dispatch)> {
    let calls = program.step.iter_mut().enumerate();
    calls.filter(|(_, call)| matches!(call.kernel, Kernel::Conv2d(args) if args.strip.is_some()))
}

/// The proof finds each call that is left out, comes too early, or is about other rows than it binds.
#[test]
fn wrong_strips_are_found() {
    let options = LowerOptions {
        strips: Some(Strips {
            recompute_above: 0,
            ..Strips::new(8_000, &Limits::DEFAULT)
        }),
        ..LowerOptions::new(Precision::F32)
    };
    let graph = TINY[2].vae_decoder(1, 9, 6);
    let plan = Plan::new(graph, &options, 1, &Limits::DEFAULT).unwrap();
    let calls = plan.program.step.len();
    let mut lost = 0;
    for index in 0..calls {
        let fault = fault(&plan, |program| {
            program.step.remove(index);
            true
        });
        assert!(matches!(fault, PlanFault::Lost { .. }), "{index}: {fault}");
        lost += 1;
    }
    assert!(lost > 100);
    let mut moved = 0;
    for index in 1..calls {
        let (before, call) = (&plan.program.step[index - 1], &plan.program.step[index]);
        let written = |call: &Dispatch| call.arena().find_map(|(_, _, writes)| writes);
        let read = call
            .arena()
            .any(|(_, reads, _)| reads.is_some() && reads == written(before));
        if read {
            let fault = fault(&plan, |program| {
                program.step.swap(index - 1, index);
                true
            });
            assert!(matches!(fault, PlanFault::Lost { .. }), "{index}: {fault}");
            moved += 1;
        }
    }
    assert!(moved > 100);
    type Change = fn(&mut ConvStrip);
    let changes: [(&str, Change); 4] = [
        ("an output row further", |strip| strip.first += 1),
        ("an input row further", |strip| strip.input_first += 1),
        ("an input row before", |strip| {
            strip.input_first = strip.input_first.saturating_sub(1);
        }),
        ("an input row less", |strip| strip.input_rows -= 1),
    ];
    for (what, change) in changes {
        let fault = fault(&plan, |program| {
            // the second strip of its layer: neither the first nor the last row of the picture
            let Some((_, call)) = strips(program).nth(1) else {
                return false;
            };
            let Kernel::Conv2d(args) = &mut call.kernel else {
                return false;
            };
            args.strip.as_mut().is_some_and(|strip| {
                change(strip);
                true
            })
        });
        println!("{what}: {fault}");
        assert!(
            matches!(fault, PlanFault::Rows { .. } | PlanFault::Range { .. }),
            "{what}: {fault}"
        );
    }
    // another part of the same value
    let fault = fault(&plan, |program| {
        let parts = program
            .slots
            .iter_mut()
            .filter_map(|slot| slot.part.as_mut());
        let mut later = parts.filter(|part| part.offset > 0);
        later.next().is_some_and(|part| {
            part.value_at += 256;
            true
        })
    });
    println!("another part: {fault}");
    assert!(matches!(
        fault,
        PlanFault::Rows { .. } | PlanFault::Lost { .. }
    ));
}
