//! Plans run call by call on the kernels' CPU twins, in an arena of real bytes: the same values as diffusers. So recording, fusions,
//! hoisting, in-place writes and offsets are right before any GPU is there.

use std::{collections::BTreeMap, fs};

use half::f16;
use latent_canvas::{
    config::{UNetConfig, VaeConfig},
    engine::{
        WeightRole,
        plan::{AttentionChoice, Dispatch, Fusions, Graph, LowerOptions, Place, Plan, Port},
    },
    kernels::{
        Kernel, Limits, Precision, Role,
        reference::{Values, run},
    },
    models::{
        embeddings::timestep_sinusoid,
        names::{Component, Name, checkpoint_name},
    },
};
use latent_canvas_tests::{
    fixture::{Fixture, relative_error},
    tiny::{TINY_DEEP, TINY_MODEL, TINY_SD2, Tiny},
};
use weights_loader::{SafetensorsIndex, decode_f32};

use super::networks::{Network, TINY};

const TIMESTEPS: [f32; 2] = [981.0, 481.0];

/// Weights as the kernels' twins see them, by name.
fn weights(graph: &Graph, component: Component, bytes: &[u8]) -> BTreeMap<String, Vec<f32>> {
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let index = SafetensorsIndex::parse("weights", &bytes[8..8 + header], Some(bytes.len() as u64))
        .unwrap();
    let mut all = BTreeMap::new();
    for tensor in &index.tensors {
        let Name::Weight(name) = checkpoint_name(component, &tensor.name) else {
            continue;
        };
        let range = tensor.range.start as usize..tensor.range.end as usize;
        let mut values = Vec::new();
        decode_f32(tensor, &bytes[range], &mut values).unwrap();
        let info = graph.weights.iter().find(|w| w.name == name).unwrap();
        if info.role == WeightRole::Conv2d {
            values = channels_last(&values, &info.shape);
        }
        if info.role != WeightRole::Vector {
            // stored as float16
            for value in &mut values {
                *value = f16::from_f32(*value).to_f32();
            }
        }
        all.insert(name, values);
    }
    all
}

/// `[out, in, ky, kx]` to `[out, ky, kx, in]`.
fn channels_last(values: &[f32], shape: &[usize]) -> Vec<f32> {
    let (channels, taps) = (shape[1], shape[2] * shape[3]);
    let mut to = vec![0.0; values.len()];
    for (i, value) in values.iter().enumerate() {
        let (tap, channel, out) = (i % taps, i / taps % channels, i / taps / channels);
        to[(out * taps + tap) * channels + channel] = *value;
    }
    to
}

/// The arena as bytes, and the weights.
struct Machine<'a> {
    plan: &'a Plan,
    buffers: Vec<Vec<u8>>,
    weights: BTreeMap<String, Vec<f32>>,
}

impl<'a> Machine<'a> {
    fn new(plan: &'a Plan, weights: BTreeMap<String, Vec<f32>>) -> Self {
        // not zeros: reading what nobody wrote must show
        let buffers = plan.arena.buffers.iter();
        let buffers = buffers.map(|&bytes| vec![0xff; bytes as usize]).collect();
        Self {
            plan,
            buffers,
            weights,
        }
    }

    fn range(
        &self,
        slot: latent_canvas::engine::plan::SlotId,
        pass: usize,
    ) -> (usize, std::ops::Range<usize>) {
        let place = self.plan.arena.place(slot, pass);
        let start = place.offset as usize;
        let bytes = self.plan.program.slot(slot).bytes as usize;
        (place.buffer, start..start + bytes)
    }

    fn bytes(&self, slot: latent_canvas::engine::plan::SlotId, pass: usize) -> &[u8] {
        let (buffer, range) = self.range(slot, pass);
        &self.buffers[buffer][range]
    }

    fn store(
        &mut self,
        slot: latent_canvas::engine::plan::SlotId,
        pass: usize,
        precision: Precision,
        values: &[f32],
    ) {
        let (buffer, range) = self.range(slot, pass);
        let to = &mut self.buffers[buffer][range];
        match precision {
            Precision::F32 => {
                for (to, value) in to.chunks_exact_mut(4).zip(values) {
                    to.copy_from_slice(&value.to_le_bytes());
                }
            }
            Precision::F16 => {
                for (to, value) in to.chunks_exact_mut(2).zip(values) {
                    to.copy_from_slice(&f16::from_f32(*value).to_le_bytes());
                }
            }
        }
    }

    fn port(&self, name: &str) -> Port {
        let ports = &self.plan.program;
        *ports
            .inputs
            .iter()
            .chain(&ports.outputs)
            .find(|port| port.name == name)
            .unwrap()
    }

    fn input(&mut self, name: &str, pass: usize, values: &[f32]) {
        let port = self.port(name);
        assert_eq!(
            4 * values.len() as u64,
            self.plan.program.slot(port.slot).bytes
        );
        self.store(port.slot, pass, Precision::F32, values);
    }

    fn output(&self, name: &str, pass: usize) -> Vec<f32> {
        load(self.bytes(self.port(name).slot, pass), Precision::F32)
    }

    fn run(&mut self, calls: &[Dispatch], pass: usize, step: usize) {
        for call in calls {
            let mut values = Values::new();
            values.step = step;
            let mut target = None;
            for (operand, place) in call.kernel.operands().iter().zip(&call.operands) {
                match (*place, operand.role) {
                    (Place::Arena { slot, .. }, Role::Ids) => {
                        let words = self.bytes(slot, pass).chunks_exact(4);
                        values.ids = words
                            .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
                            .collect();
                    }
                    (Place::Arena { .. }, Role::Scratch) | (Place::Step, _) => {}
                    (Place::Arena { slot, reads, .. }, role) => {
                        let precision = precision(&call.kernel, role);
                        if reads.is_some() {
                            let list = load(self.bytes(slot, pass), precision);
                            values = values.with(role, list);
                        }
                        if role == Role::Output {
                            target = Some((slot, precision));
                        }
                    }
                    (Place::Weight(weight), role) => {
                        let name = &self.plan.graph.weights[weight.0].name;
                        values = values.with(role, self.weights[name].clone());
                    }
                }
            }
            let result: Vec<f32> = run(&call.kernel, &values)
                .iter()
                .map(|&x| x as f32)
                .collect();
            let (slot, precision) = target.unwrap();
            self.store(slot, pass, precision, &result);
        }
    }
}

fn load(bytes: &[u8], precision: Precision) -> Vec<f32> {
    match precision {
        Precision::F32 => bytes
            .chunks_exact(4)
            .map(|word| f32::from_le_bytes(word.try_into().unwrap()))
            .collect(),
        Precision::F16 => bytes
            .chunks_exact(2)
            .map(|half| f16::from_le_bytes(half.try_into().unwrap()).to_f32())
            .collect(),
    }
}

/// How a kernel's operand is stored, as its arguments say.
fn precision(kernel: &Kernel, role: Role) -> Precision {
    let (input, output) = match *kernel {
        Kernel::Gemm(args) => (args.input, args.output),
        Kernel::Conv2d(args) => (args.input, args.output),
        Kernel::GroupNorm(args) => (args.input, args.output),
        Kernel::GroupStatistics(args) => (args.input, Precision::F32),
        Kernel::GroupCombine(_) => (Precision::F32, Precision::F32),
        Kernel::GroupApply(args) => (args.input, args.output),
        Kernel::LayerNorm(args) => (args.input, args.output),
        Kernel::Attention(args) => (args.precision, args.precision),
        Kernel::Embedding(args) => (Precision::F32, args.output),
        Kernel::Elementwise(args) => (args.input, args.output),
    };
    match role {
        Role::ChannelAdd | Role::Statistics => Precision::F32,
        Role::Output | Role::Residual => output,
        _ => input,
    }
}

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
