//! Plans run call by call on the kernels' CPU twins: the same values as diffusers. So recording, fusions,
//! hoisting, in-place writes and offsets are right before any GPU is there.

use std::fs;

use latent_canvas::{
    config::{UNetConfig, VaeConfig},
    engine::plan::{AttentionChoice, Fusions, Graph, LowerOptions, Plan},
    kernels::{Limits, Precision},
    models::{embeddings::timestep_sinusoid, names::Component},
};
use latent_canvas_tests::{
    fixture::{Fixture, relative_error},
    tiny::{TINY_DEEP, TINY_MODEL, TINY_SD2, Tiny},
};

use super::{
    machine::{Machine, weights},
    networks::{Network, TINY},
};

const TIMESTEPS: [f32; 2] = [981.0, 481.0];

fn check(name: &str, got: &[f32], expected: &[f32], tolerance: f64) {
    let error = relative_error(got, expected);
    println!("{name:40} {error:.2e}");
    assert!(error <= tolerance, "{name}: {error:.2e} > {tolerance:.0e}");
}

fn plan(graph: Graph, options: &LowerOptions, passes: usize) -> Plan {
    Plan::new(graph, options, passes, &Limits::DEFAULT).unwrap()
}

/// All predictions of the fixture; with two passes each picture of the batch is a pass of its own.
fn unet(
    network: &Network,
    tiny: &Tiny,
    fixture: &Fixture,
    options: &LowerOptions,
    passes: usize,
    tolerance: f64,
) {
    let sample = fixture.get("sample");
    let text = fixture.get("encoder_hidden_states");
    let [batch, _, height, width] = sample.shape[..] else {
        panic!("sample is no image")
    };
    assert_eq!(batch % passes, 0);
    let plan = plan(network.unet(batch / passes, height, width), options, passes);
    let weights = weights(&plan.graph, Component::UNet, tiny.unet);
    let mut machine = Machine::new(&plan, weights);
    let config = UNetConfig::from_json(tiny.unet_config).unwrap();
    let sinusoids = TIMESTEPS.map(|timestep| {
        let channels = config.levels[0].channels;
        timestep_sinusoid(
            timestep,
            channels,
            config.flip_sin_to_cos,
            config.freq_shift,
        )
    });
    let hoisted = plan.program.steps.is_some();
    if hoisted {
        machine.input("timestep_sinusoid", 0, &sinusoids.concat());
    }
    machine.run(&plan.program.schedule, 0, 0);
    let text_length = text.values.len() / passes;
    for (pass, text) in text.values.chunks(text_length).enumerate() {
        machine.input("encoder_hidden_states", pass, text);
        machine.run(&plan.program.image, pass, 0);
    }
    let latents = sample.channels_last();
    let length = latents.len() / passes;
    for (step, sinusoid) in sinusoids.iter().enumerate() {
        if !hoisted {
            machine.input("timestep_sinusoid", 0, sinusoid);
        }
        // the two pictures are different samples, so each pass has its own
        let mut predictions = Vec::new();
        for pass in 0..passes {
            machine.input("sample", pass, &latents[pass * length..(pass + 1) * length]);
            machine.run(&plan.program.step, pass, step);
        }
        for pass in 0..passes {
            predictions.extend(machine.output("noise_pred", pass));
        }
        let name = format!("noise_pred.{}", TIMESTEPS[step]);
        let expected = fixture.get(&name).channels_last();
        check(
            &format!("{} {name}", tiny.name),
            &predictions,
            &expected,
            tolerance,
        );
    }
}

fn planned(precision: Precision) -> LowerOptions {
    LowerOptions {
        hoist_schedule: Some(TIMESTEPS.len()),
        ..LowerOptions::new(precision)
    }
}

const TINIES: [Tiny; 3] = [TINY_MODEL, TINY_SD2, TINY_DEEP];

#[test]
fn unet_with_everything_on() {
    for (network, tiny) in TINY.iter().zip(&TINIES) {
        unet(
            network,
            tiny,
            &tiny.unet_fixture(),
            &planned(Precision::F32),
            1,
            1e-5,
        );
    }
}

#[test]
fn unet_of_odd_size_in_two_passes() {
    for (network, tiny) in TINY.iter().zip(&TINIES) {
        unet(
            network,
            tiny,
            &tiny.odd_unet_fixture(),
            &planned(Precision::F32),
            2,
            1e-5,
        );
    }
}

#[test]
fn unet_with_everything_off() {
    let options = LowerOptions {
        fusions: Fusions::NONE,
        in_place: false,
        hoist_text: false,
        hoist_schedule: None,
        split_k: false,
        attention: AttentionChoice::Sliced,
        ..LowerOptions::new(Precision::F32)
    };
    for (network, tiny) in TINY.iter().zip(&TINIES).skip(2) {
        unet(network, tiny, &tiny.odd_unet_fixture(), &options, 1, 1e-5);
    }
}

#[test]
fn unet_with_float16_activations() {
    for (network, tiny) in TINY.iter().zip(&TINIES).skip(1) {
        unet(
            network,
            tiny,
            &tiny.odd_unet_fixture(),
            &planned(Precision::F16),
            1,
            5e-3,
        );
    }
}

#[test]
fn text_encoder() {
    for (network, tiny) in TINY.iter().zip(&TINIES) {
        let fixture = tiny.text_fixture();
        let ids = fixture.get("input_ids");
        for (precision, tolerance) in [(Precision::F32, 1e-5), (Precision::F16, 5e-3)] {
            let plan = plan(network.text_encoder(ids.shape[0]), &planned(precision), 1);
            let weights = weights(&plan.graph, Component::TextEncoder, tiny.text);
            let mut machine = Machine::new(&plan, weights);
            // ids are u32 words: their bits go in as those of a float
            let words: Vec<f32> = ids
                .values
                .iter()
                .map(|&id| f32::from_bits(id as u32))
                .collect();
            machine.input("input_ids", 0, &words);
            machine.run(&plan.program.step, 0, 0);
            let got = machine.output("encoder_hidden_states", 0);
            let expected = &fixture.get("text.last_hidden_state").values;
            check(
                &format!("{} text {precision:?}", tiny.name),
                &got,
                expected,
                tolerance,
            );
        }
    }
}

#[test]
fn vae_decoder() {
    for (network, tiny) in TINY.iter().zip(&TINIES) {
        let fixture = tiny.vae_fixture();
        let latents = fixture.get("latents");
        let config = VaeConfig::from_json(tiny.vae_config).unwrap();
        let unscaled: Vec<f32> = latents
            .channels_last()
            .iter()
            .map(|value| value / config.scaling_factor as f32)
            .collect();
        let [batch, _, height, width] = latents.shape[..] else {
            panic!("latents are no image")
        };
        let plan = plan(
            network.vae_decoder(batch, height, width),
            &planned(Precision::F32),
            1,
        );
        let weights = weights(&plan.graph, Component::Vae, tiny.vae);
        let mut machine = Machine::new(&plan, weights);
        machine.input("latents", 0, &unscaled);
        machine.run(&plan.program.step, 0, 0);
        let expected = fixture.get("vae.sample").channels_last();
        check(
            &format!("{} vae", tiny.name),
            &machine.output("sample", 0),
            &expected,
            1e-5,
        );
    }
}

/// The folders of the two lists above are the same models.
#[test]
fn networks_are_the_tiny_models() {
    for (network, tiny) in TINY.iter().zip(&TINIES) {
        assert!(network.0.ends_with(tiny.name));
        let config = fs::read_to_string(network.path("unet/config.json")).unwrap();
        assert_eq!(config, tiny.unet_config);
    }
}
