//! The kernel calls of a plan as rows of a table: what is called, for which module, on which shapes, how much it moves and computes, and,
//! where it was measured, how long it took.

use std::fmt::Write as _;

use serde::Serialize;

use super::{Dispatch, Plan, graph::ValueId, program::Program};
use crate::{
    engine::Shape,
    kernels::{Limits, Storage, Tuning},
};

/// When a list of calls runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Once a picture: what depends on the schedule alone.
    Schedule,
    /// Once a picture and pass: what depends on the text alone.
    Image,
    /// The rest: at each step and pass where the network has steps.
    Step,
}

impl Part {
    /// All of them, in the order in which they run.
    pub const ALL: [Self; 3] = [Self::Schedule, Self::Image, Self::Step];

    const fn name(self) -> &'static str {
        match self {
            Self::Schedule => "schedule",
            Self::Image => "image",
            Self::Step => "step",
        }
    }
}

impl Program {
    /// The calls of a part, in their order.
    #[must_use]
    pub fn calls(&self, part: Part) -> &[Dispatch] {
        match part {
            Part::Schedule => &self.schedule,
            Part::Image => &self.image,
            Part::Step => &self.step,
        }
    }
}

/// A kernel call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CallRow {
    /// The network.
    pub stage: &'static str,
    /// When it runs.
    pub part: Part,
    /// Its place in the part's list.
    pub index: usize,
    /// Checkpoint name of the module.
    pub module: String,
    /// The kernel.
    pub kernel: &'static str,
    /// The recorded operations that it does.
    pub operations: Vec<&'static str>,
    /// Shapes of the activations that its operations read, `[batch, height, width, channels]`; of the whole where it does a part.
    pub inputs: Vec<[usize; 4]>,
    /// Shape of what its operations write.
    pub output: Option<[usize; 4]>,
    /// Bytes of activations that are bound.
    pub arena_bytes: u64,
    /// Bytes of weights that are bound.
    pub weight_bytes: u64,
    /// Multiply-adds.
    pub macs: u64,
    /// Dispatches.
    pub dispatches: usize,
    /// How long it took on the GPU, where that was measured.
    pub nanoseconds: Option<f64>,
}

impl Plan {
    /// The calls of a part as rows without times.
    #[must_use]
    pub fn call_rows(&self, part: Part, limits: &Limits, tuning: &Tuning) -> Vec<CallRow> {
        let calls = self.program.calls(part).iter().enumerate();
        calls
            .map(|(index, call)| {
                let operands = call.kernel.operands();
                let bound = |storage: Storage| {
                    let bound = operands.iter().filter(|operand| operand.storage == storage);
                    bound.map(|operand| operand.bytes).sum()
                };
                let (inputs, output) = self.shapes(call);
                let launches = call.kernel.launches(limits, tuning);
                CallRow {
                    stage: self.graph.name,
                    part,
                    index,
                    module: call.module.clone(),
                    kernel: call.kernel.name(),
                    operations: call
                        .nodes
                        .iter()
                        .map(|&node| self.graph.nodes[node].op.name())
                        .collect(),
                    inputs,
                    output,
                    arena_bytes: bound(Storage::Arena),
                    weight_bytes: bound(Storage::Weight),
                    macs: call.kernel.macs(),
                    dispatches: launches.map_or(1, |launches| launches.len()),
                    nanoseconds: None,
                }
            })
            .collect()
    }

    /// What the operations of a call read from others, and what the last of them writes.
    fn shapes(&self, call: &Dispatch) -> (Vec<[usize; 4]>, Option<[usize; 4]>) {
        let nodes = || call.nodes.iter().map(|&node| &self.graph.nodes[node]);
        let shape = |value: ValueId| {
            let Shape {
                batch,
                height,
                width,
                channels,
            } = self.graph.value(value).shape;
            [batch, height, width, channels]
        };
        let own: Vec<ValueId> = nodes().map(|node| node.output).collect();
        let inputs = nodes().flat_map(|node| node.inputs.iter().copied());
        let inputs = inputs.filter(|input| !own.contains(input)).map(shape);
        (inputs.collect(), own.last().copied().map(shape))
    }
}

/// The rows as text, one a line, with a line that names the columns.
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub fn table(rows: &[CallRow]) -> String {
    let mut text = format!(
        "{:>9} {:>8} {:>9} {:>9} {:>9} {:12} {:8} {:16} shapes, operations, module\n",
        "ms", "GMAC/s", "MMAC", "MiB act.", "MiB wgt.", "stage", "part", "kernel"
    );
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let shape = |shape: &[usize; 4]| shape.map(|side| side.to_string()).join("x");
    for row in rows {
        let inputs: Vec<_> = row.inputs.iter().map(shape).collect();
        let [ms, rate] = match row.nanoseconds {
            Some(ns) => [
                format!("{:.3}", ns / 1e6),
                format!("{:.1}", row.macs as f64 / ns.max(1.0)),
            ],
            None => ["-".to_owned(), "-".to_owned()],
        };
        // writing to a String cannot fail
        let _ = writeln!(
            text,
            "{ms:>9} {rate:>8} {:9.2} {:9.3} {:9.3} {:12} {:8} {:16} {} -> {} {} {}",
            row.macs as f64 / 1e6,
            mib(row.arena_bytes),
            mib(row.weight_bytes),
            row.stage,
            row.part.name(),
            row.kernel,
            inputs.join(" "),
            row.output.as_ref().map_or("-".to_owned(), shape),
            row.operations.join("+"),
            row.module
        );
    }
    text
}
