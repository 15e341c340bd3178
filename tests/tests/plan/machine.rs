//! The kernels' CPU twins run the calls of a plan, one after another, in an arena of real bytes.

use std::collections::BTreeMap;

use half::f16;
use latent_canvas::{
    engine::{
        WeightRole,
        plan::{Dispatch, Graph, Place, Plan, Port, SlotId},
    },
    kernels::{
        Kernel, Precision, Role,
        reference::{Values, run},
    },
    models::names::{Component, Name, checkpoint_name},
};
use weights_loader::{SafetensorsIndex, decode_f32};

/// Weights as the kernels' twins see them, by name.
pub(super) fn weights(
    graph: &Graph,
    component: Component,
    bytes: &[u8],
) -> BTreeMap<String, Vec<f32>> {
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
pub(super) struct Machine<'a> {
    plan: &'a Plan,
    buffers: Vec<Vec<u8>>,
    weights: BTreeMap<String, Vec<f32>>,
}

impl<'a> Machine<'a> {
    pub(super) fn new(plan: &'a Plan, weights: BTreeMap<String, Vec<f32>>) -> Self {
        // not zeros: reading what nobody wrote must show
        let buffers = plan.arena.buffers.iter();
        let buffers = buffers.map(|&bytes| vec![0xff; bytes as usize]).collect();
        Self {
            plan,
            buffers,
            weights,
        }
    }

    fn range(&self, slot: SlotId, pass: usize) -> (usize, std::ops::Range<usize>) {
        let place = self.plan.arena.place(slot, pass);
        let start = place.offset as usize;
        let bytes = self.plan.program.slot(slot).bytes as usize;
        (place.buffer, start..start + bytes)
    }

    fn bytes(&self, slot: SlotId, pass: usize) -> &[u8] {
        let (buffer, range) = self.range(slot, pass);
        &self.buffers[buffer][range]
    }

    fn store(&mut self, slot: SlotId, pass: usize, precision: Precision, values: &[f32]) {
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

    pub(super) fn input(&mut self, name: &str, pass: usize, values: &[f32]) {
        let port = self.port(name);
        assert_eq!(
            4 * values.len() as u64,
            self.plan.program.slot(port.slot).bytes
        );
        self.store(port.slot, pass, Precision::F32, values);
    }

    pub(super) fn output(&self, name: &str, pass: usize) -> Vec<f32> {
        load(self.bytes(self.port(name).slot, pass), Precision::F32)
    }

    pub(super) fn run(&mut self, calls: &[Dispatch], pass: usize, step: usize) {
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
