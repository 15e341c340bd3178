//! Where everything of a program lies: slots in the arena's buffers, weights in buffers of their own.

use super::{
    arena::{Item, Offset, pack},
    graph::{Graph, WeightId},
    liveness::{lifetimes, live_bytes},
    program::{Keep, Program, SlotId},
};
use crate::{
    engine::WeightRole,
    kernels::{Limits, matrix_bytes, table_bytes, vector_bytes},
};

/// Places of all slots. Buffers `0..transient_buffers` hold what is overwritten during a run, the rest what is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArenaLayout {
    /// Size of each buffer.
    pub buffers: Vec<u64>,
    /// How many of them are for values that are overwritten.
    pub transient_buffers: usize,
    /// Passes of guidance.
    pub passes: usize,
    /// What no layout of this program can be below.
    pub lower_bound_bytes: u64,
    /// The heuristic that found the offsets.
    pub heuristic: &'static str,
    places: Vec<Vec<Offset>>,
}

impl ArenaLayout {
    /// Places the slots of a program that runs its step `passes` times, each with its own text.
    #[must_use]
    pub fn new(program: &Program, passes: usize, limits: &Limits) -> Self {
        let align = |bytes: u64| bytes.next_multiple_of(limits.offset_alignment_bytes);
        let lifetimes = lifetimes(program);
        let (mut owners, mut items): (Vec<usize>, Vec<Item>) = (Vec::new(), Vec::new());
        for (slot, lifetime) in lifetimes.iter().enumerate() {
            if let Some(lifetime) = lifetime {
                owners.push(slot);
                items.push((align(program.slots[slot].bytes), *lifetime));
            }
        }
        let packing = pack(&items, limits.max_buffer_bytes);
        let mut places = vec![Vec::new(); program.slots.len()];
        for (&slot, &place) in owners.iter().zip(&packing.places) {
            places[slot] = vec![place; passes];
        }
        let mut buffers = packing.buffers;
        let transient_buffers = buffers.len();
        let mut kept = Sequence::after(&mut buffers, limits.max_buffer_bytes);
        for (slot, info) in program.slots.iter().enumerate() {
            if info.part.is_some() {
                continue;
            }
            let bytes = align(info.bytes);
            places[slot] = match info.keep {
                Keep::No => continue,
                Keep::Shared => vec![kept.place(bytes); passes],
                Keep::PerPass => (0..passes).map(|_| kept.place(bytes)).collect(),
            };
        }
        for (slot, info) in program.slots.iter().enumerate() {
            if let Some(part) = info.part {
                let moved = |place: &Offset| Offset {
                    offset: place.offset + part.offset,
                    ..*place
                };
                places[slot] = places[part.of.0].iter().map(moved).collect();
            }
        }
        let kept_bytes: u64 = buffers[transient_buffers..].iter().sum();
        Self {
            buffers,
            transient_buffers,
            passes,
            lower_bound_bytes: packing.lower_bound_bytes + kept_bytes,
            heuristic: packing.heuristic,
            places,
        }
    }

    /// What no layout of a program can be below, found without looking for one.
    #[must_use]
    pub fn least_bytes(program: &Program, passes: usize, limits: &Limits) -> u64 {
        let align = |bytes: u64| bytes.next_multiple_of(limits.offset_alignment_bytes);
        let lifetimes = lifetimes(program);
        let slots = program.slots.iter().zip(&lifetimes);
        let items: Vec<Item> = slots
            .filter_map(|(slot, lifetime)| Some((align(slot.bytes), (*lifetime)?)))
            .collect();
        let kept = program.slots.iter().filter(|slot| slot.part.is_none());
        let kept = kept.map(|slot| match slot.keep {
            Keep::No => 0,
            Keep::Shared => align(slot.bytes),
            Keep::PerPass => passes as u64 * align(slot.bytes),
        });
        live_bytes(&items).into_iter().max().unwrap_or(0) + kept.sum::<u64>()
    }

    /// Where a slot is in a pass.
    #[must_use]
    pub fn place(&self, slot: SlotId, pass: usize) -> Offset {
        self.places[slot.0][pass]
    }

    /// The same layout with one slot moved, to test the proof against wrong layouts.
    #[must_use]
    pub fn with_place(mut self, slot: SlotId, place: Offset) -> Self {
        self.places[slot.0] = vec![place; self.passes];
        self
    }

    /// Bytes of all buffers.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.buffers.iter().sum()
    }
}

/// Ranges one after another, in buffers that are opened as they are needed.
struct Sequence<'a> {
    buffers: &'a mut Vec<u64>,
    first: usize,
    capacity: u64,
}

impl<'a> Sequence<'a> {
    fn after(buffers: &'a mut Vec<u64>, capacity: u64) -> Self {
        let first = buffers.len();
        Self {
            buffers,
            first,
            capacity,
        }
    }

    fn place(&mut self, bytes: u64) -> Offset {
        let fits = self.buffers.len() > self.first
            && self
                .buffers
                .last()
                .is_some_and(|used| used + bytes <= self.capacity);
        if !fits {
            self.buffers.push(0);
        }
        let buffer = self.buffers.len() - 1;
        let offset = self.buffers[buffer];
        self.buffers[buffer] += bytes;
        Offset { buffer, offset }
    }
}

/// Places of all weights, in the order they were declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeightLayout {
    /// Size of each buffer.
    pub buffers: Vec<u64>,
    places: Vec<(Offset, u64)>,
}

impl WeightLayout {
    /// Places the weights of a network.
    #[must_use]
    pub fn new(graph: &Graph, limits: &Limits) -> Self {
        let mut buffers = Vec::new();
        let mut sequence = Sequence::after(&mut buffers, limits.max_buffer_bytes);
        let places = graph
            .weights
            .iter()
            .map(|weight| {
                let bytes = stored_bytes(weight.role, &weight.shape);
                let place = sequence.place(bytes.next_multiple_of(limits.offset_alignment_bytes));
                (place, bytes)
            })
            .collect();
        Self { buffers, places }
    }

    /// Where a weight is, and its size.
    #[must_use]
    pub fn place(&self, weight: WeightId) -> (Offset, u64) {
        self.places[weight.0]
    }

    /// Bytes of all buffers.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.buffers.iter().sum()
    }

    /// Size of the largest weight.
    #[must_use]
    pub fn largest_bytes(&self) -> u64 {
        self.places
            .iter()
            .map(|&(_, bytes)| bytes)
            .max()
            .unwrap_or(0)
    }
}

/// Bytes that a weight takes in GPU memory, in the layout of [`crate::kernels`].
#[must_use]
pub fn stored_bytes(role: WeightRole, shape: &[usize]) -> u64 {
    let first = shape.first().copied().unwrap_or(0);
    let rest: usize = shape.iter().skip(1).product();
    match role {
        WeightRole::Linear | WeightRole::Conv2d => matrix_bytes(first, rest),
        WeightRole::Vector => vector_bytes(first),
        WeightRole::Embedding => table_bytes(first, rest),
    }
}
