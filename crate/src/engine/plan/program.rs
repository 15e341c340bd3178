//! A lowered network: kernel calls in order, with their operands as slots of the arena, weights, or the step.

use super::graph::{ValueId, WeightId};
use crate::kernels::{Kernel, Precision};

/// A range of the arena that has no offset yet, by index into [`Program::slots`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId(pub usize);

/// How long a slot holds its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// From the dispatch that writes it to the last that reads it.
    No,
    /// For the whole picture, one for all passes: what depends on latents or schedule.
    Shared,
    /// For the whole picture, one for each pass of guidance: what depends on the text, and the prediction.
    PerPass,
}

/// A range of the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Size.
    pub bytes: u64,
    /// How long it is kept.
    pub keep: Keep,
    /// For a range within another slot: which one. It has no place of its own, and lives as long as that one.
    pub part: Option<SlotPart>,
}

/// A range within a slot: some rows of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotPart {
    /// The slot, which is no part itself.
    pub of: SlotId,
    /// Bytes from that slot's start.
    pub offset: u64,
    /// Which byte of the value is the range's first.
    pub value_at: u64,
}

impl Slot {
    /// Which byte of the value that it holds is its first: 0 but for a part.
    #[must_use]
    pub fn value_at(&self) -> u64 {
        self.part.map_or(0, |part| part.value_at)
    }
}

/// What stands behind an operand of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A slot, with the value that is read from it and the one that is written to it. Neither: scratch. Both: in place.
    Arena {
        /// Where.
        slot: SlotId,
        /// The value that must be there before the call.
        reads: Option<ValueId>,
        /// The value that is there after it.
        writes: Option<ValueId>,
    },
    /// A weight.
    Weight(WeightId),
    /// The uniform that tells the step.
    Step,
}

/// One kernel call.
#[derive(Debug, Clone, PartialEq)]
pub struct Dispatch {
    /// What is called.
    pub kernel: Kernel,
    /// One place for each of [`Kernel::operands`], in that order.
    pub operands: Vec<Place>,
    /// Checkpoint name of the module.
    pub module: String,
    /// The recorded operations that it does, by index into the graph's nodes.
    pub nodes: Vec<usize>,
}

/// An input or output of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port {
    /// diffusers' name.
    pub name: &'static str,
    /// The value.
    pub value: ValueId,
    /// Where it is.
    pub slot: SlotId,
    /// How it is stored. Ids are `u32`.
    pub precision: Precision,
}

/// The kernel calls of a network. Order: `schedule` once a picture; `image` once a picture and pass; `step` at each step and pass.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    /// The graph's name.
    pub name: &'static str,
    /// What depends on the schedule alone.
    pub schedule: Vec<Dispatch>,
    /// What depends on the text alone.
    pub image: Vec<Dispatch>,
    /// The rest. Networks without steps have all their calls here.
    pub step: Vec<Dispatch>,
    /// Steps of the schedule, where time embeddings are computed once a picture.
    pub steps: Option<usize>,
    /// All ranges of the arena.
    pub slots: Vec<Slot>,
    /// Inputs, in the graph's order.
    pub inputs: Vec<Port>,
    /// Outputs, in the graph's order.
    pub outputs: Vec<Port>,
}

impl Program {
    /// All calls, in the order of their first run.
    pub fn dispatches(&self) -> impl Iterator<Item = &Dispatch> {
        self.schedule.iter().chain(&self.image).chain(&self.step)
    }

    /// Whether a call reads the uniform that tells the step.
    #[must_use]
    pub fn reads_step(&self) -> bool {
        self.dispatches()
            .any(|dispatch| dispatch.operands.contains(&Place::Step))
    }

    /// The slot that has a place of its own: this one, or the one that it is a part of.
    #[must_use]
    pub fn owner(&self, id: SlotId) -> SlotId {
        self.slots[id.0].part.map_or(id, |part| part.of)
    }

    /// A slot by its id.
    #[must_use]
    pub fn slot(&self, id: SlotId) -> Slot {
        self.slots[id.0]
    }
}

impl Dispatch {
    /// The arena's slots that are bound, with what is read and written, in binding order.
    pub fn arena(&self) -> impl Iterator<Item = (SlotId, Option<ValueId>, Option<ValueId>)> {
        self.operands.iter().filter_map(|place| match *place {
            Place::Arena {
                slot,
                reads,
                writes,
            } => Some((slot, reads, writes)),
            Place::Weight(_) | Place::Step => None,
        })
    }
}

/// Multiply-adds of a list of calls.
#[must_use]
pub fn macs(dispatches: &[Dispatch]) -> u64 {
    dispatches
        .iter()
        .map(|dispatch| dispatch.kernel.macs())
        .sum()
}
