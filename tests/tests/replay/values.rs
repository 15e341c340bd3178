//! Every network of the tiny models equals diffusers, in every form of the plan.

use latent_canvas::{
    engine::plan::{AttentionChoice, Fusions, LowerOptions, lower},
    kernels::Precision,
    models::names::Component,
};
use latent_canvas_tests::{
    fixture::{Fixture, relative_error},
    tiny::{TINY_DEEP, TINY_MODEL, TINY_SD2, Tiny},
};

use super::networks::{
    TIMESTEPS, fill, fill_whole, gpu, run_text, run_unet, run_vae, text_network, unet_graph,
    unet_network, vae_network,
};

const TINIES: [Tiny; 3] = [TINY_MODEL, TINY_SD2, TINY_DEEP];

/// Sums in another order than torch's, and weights of [`TINY_DEEP`] rounded to float16 on their way.
const F32: f64 = 1e-4;
/// Activations of 11 bits; a rounding error is 2^-12 and a network has a few hundred of them.
const F16: f64 = 2e-2;

fn tolerance(precision: Precision) -> f64 {
    match precision {
        Precision::F32 => F32,
        Precision::F16 => F16,
    }
}

fn planned(precision: Precision) -> LowerOptions {
    LowerOptions {
        hoist_schedule: Some(TIMESTEPS.len()),
        ..LowerOptions::new(precision)
    }
}

/// Nothing fused, hoisted, in place or sliced along the sums.
fn bare(precision: Precision) -> LowerOptions {
    LowerOptions {
        fusions: Fusions::NONE,
        in_place: false,
        hoist_text: false,
        hoist_schedule: None,
        split_k: false,
        ..LowerOptions::new(precision)
    }
}

fn check(title: &str, got: &[f32], expected: &[f32], tolerance: f64) {
    let error = relative_error(got, expected);
    println!("{title:56} {error:.2e}");
    assert!(
        error <= tolerance,
        "{title}: {error:.2e} of the largest value from diffusers, {tolerance:.0e} allowed"
    );
}

/// The predictions of all timesteps, one after another, after a check of each.
fn unet(tiny: &Tiny, fixture: &Fixture, options: &LowerOptions, passes: usize) -> Vec<f32> {
    let mut network = unet_network(gpu(), tiny, fixture, options, passes);
    let mut all = Vec::new();
    for (got, timestep) in run_unet(&mut network, tiny, fixture)
        .into_iter()
        .zip(TIMESTEPS)
    {
        let name = format!("noise_pred.{timestep}");
        let precision = options.activations;
        check(
            &format!("{} {name} {precision:?} {passes}", tiny.name),
            &got,
            &fixture.get(&name).channels_last(),
            tolerance(precision),
        );
        all.extend(got);
    }
    all
}

#[test]
fn unet_equals_diffusers() {
    for precision in [Precision::F32, Precision::F16] {
        for tiny in &TINIES {
            unet(tiny, &tiny.unet_fixture(), &planned(precision), 1);
            unet(tiny, &tiny.odd_unet_fixture(), &planned(precision), 2);
        }
    }
}

#[test]
fn text_encoder_equals_diffusers() {
    for precision in [Precision::F32, Precision::F16] {
        for tiny in &TINIES {
            let fixture = tiny.text_fixture();
            let mut network = text_network(gpu(), tiny, &fixture, &planned(precision));
            let got = run_text(&mut network, &fixture);
            check(
                &format!("{} text {precision:?}", tiny.name),
                &got,
                &fixture.get("text.last_hidden_state").values,
                tolerance(precision),
            );
        }
    }
}

#[test]
fn vae_decoder_equals_diffusers() {
    for precision in [Precision::F32, Precision::F16] {
        for tiny in &TINIES {
            let fixture = tiny.vae_fixture();
            let mut network = vae_network(gpu(), tiny, &fixture, &planned(precision));
            let got = run_vae(&mut network, tiny, &fixture);
            check(
                &format!("{} vae {precision:?}", tiny.name),
                &got,
                &fixture.get("vae.sample").channels_last(),
                tolerance(precision),
            );
        }
    }
}

/// Without fusions, in-place writes and hoisting every operation has a kernel and a place of its own: the same values up to the order of sums.
#[test]
fn all_choices_off_gives_the_same_unet() {
    let tiny = &TINY_DEEP;
    let fixture = tiny.odd_unet_fixture();
    let on = unet(tiny, &fixture, &planned(Precision::F32), 1);
    let bare = bare(Precision::F32);
    let [calls, bare_calls] = [planned(Precision::F32), bare].map(|options| {
        let program = lower(&unet_graph(tiny, &fixture, 1), &options).unwrap();
        program.dispatches().count()
    });
    assert!(bare_calls > calls + 50, "{calls} calls, {bare_calls} bare");
    let off = unet(tiny, &fixture, &bare, 1);
    check("on against off", &on, &off, 1e-5);
}

/// Each choice alone, against everything on.
#[test]
fn each_choice_off_gives_the_same_unet() {
    let tiny = &TINY_SD2;
    let fixture = tiny.odd_unet_fixture();
    let all = planned(Precision::F32);
    let on = unet(tiny, &fixture, &all, 1);
    let without = |change: fn(&mut Fusions)| {
        let mut fusions = Fusions::ALL;
        change(&mut fusions);
        LowerOptions { fusions, ..all }
    };
    for (name, options) in [
        ("residual", without(|fusions| fusions.residual = false)),
        ("activation", without(|fusions| fusions.activation = false)),
        ("silu", without(|fusions| fusions.group_norm_silu = false)),
        ("geglu", without(|fusions| fusions.geglu = false)),
        (
            "channel add",
            without(|fusions| fusions.channel_add = false),
        ),
        ("concat", without(|fusions| fusions.concat = false)),
        ("upsample", without(|fusions| fusions.upsample = false)),
        (
            "in place",
            LowerOptions {
                in_place: false,
                ..all
            },
        ),
        (
            "sliced attention",
            LowerOptions {
                attention: AttentionChoice::Sliced,
                ..all
            },
        ),
        (
            "sliced attention, few rows",
            LowerOptions {
                attention: AttentionChoice::Sliced,
                score_bytes: 4 * 77 * 5,
                ..all
            },
        ),
    ] {
        let [with, without] =
            [all, options].map(|options| lower(&unet_graph(tiny, &fixture, 1), &options).unwrap());
        assert!(with != without, "{name} changes nothing here");
        let off = unet(tiny, &fixture, &options, 1);
        check(&format!("without {name}"), &on, &off, 1e-5);
    }
}

/// Hoisting computes the same numbers with the same kernels, only at another time: not one bit differs.
#[test]
fn hoisting_changes_no_bit() {
    let tiny = &TINY_DEEP;
    let fixture = tiny.unet_fixture();
    let all = planned(Precision::F32);
    let hoisted = unet(tiny, &fixture, &all, 1);
    for options in [
        LowerOptions {
            hoist_text: false,
            ..all
        },
        LowerOptions {
            hoist_schedule: None,
            ..all
        },
    ] {
        let repeated = unet(tiny, &fixture, &options, 1);
        assert!(hoisted == repeated, "hoisting changes a bit");
    }
}

#[test]
fn running_twice_gives_the_same_bits() {
    for tiny in &TINIES {
        let fixture = tiny.unet_fixture();
        let mut network = unet_network(gpu(), tiny, &fixture, &planned(Precision::F16), 1);
        let mut run = || {
            run_unet(&mut network, tiny, &fixture)
                .into_iter()
                .flatten()
                .map(f32::to_bits)
                .collect::<Vec<u32>>()
        };
        assert!(run() == run(), "{}: a second picture differs", tiny.name);
    }
}

/// A file that arrives in pieces and one whose tensors are handed over whole give the same network, also over one that is there.
#[test]
fn weights_in_pieces_are_the_weights() {
    for tiny in &TINIES {
        let fixture = tiny.text_fixture();
        let mut network = text_network(gpu(), tiny, &fixture, &planned(Precision::F32));
        let streamed = run_text(&mut network, &fixture);
        fill_whole(&mut network, Component::TextEncoder, tiny.text);
        let whole = run_text(&mut network, &fixture);
        fill(&mut network, Component::TextEncoder, tiny.text);
        let again = run_text(&mut network, &fixture);
        assert!(streamed == whole && whole == again, "{}", tiny.name);
    }
}
