//! Rows of values in memory: how many a strip may have, where they begin, and the ranges of slots that hold them.

use std::{collections::BTreeMap, ops::Range};

use super::{
    fuse::Group,
    graph::ValueId,
    lower::Lowering,
    options::Strips,
    program::{Dispatch, Keep, Place, Slot, SlotId, SlotPart},
};
use crate::{engine::Shape, kernels::GroupNormArgs};

/// Rows of a value in memory.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) slot: SlotId,
    pub(super) first: usize,
    pub(super) rows: usize,
    /// Whether they are there for the current strip alone.
    pub(super) is_scratch: bool,
}

/// What a strip takes at most.
#[derive(Default)]
pub(super) struct Needed {
    /// Of values that are computed for it alone.
    pub(super) scratch_bytes: u64,
    binding_bytes: u64,
}

impl Needed {
    pub(super) fn bind(&mut self, bytes: u64) {
        self.binding_bytes = self.binding_bytes.max(bytes);
    }

    pub(super) fn fits(&self, strips: &Strips) -> bool {
        self.scratch_bytes <= strips.bytes && self.binding_bytes <= strips.binding_bytes
    }
}

pub(super) fn row_bytes(lowering: &Lowering<'_>, value: ValueId) -> u64 {
    let Shape {
        width, channels, ..
    } = lowering.shape(value);
    lowering.precisions[value.0].bytes(width * channels)
}

/// Rows of which a number of rows of every value is a multiple, so that each begins where a binding may begin.
pub(super) fn quantum(lowering: &Lowering<'_>, strips: &Strips, values: &[ValueId]) -> usize {
    let of = |&value: &ValueId| {
        let (mut a, mut b) = (strips.alignment_bytes, row_bytes(lowering, value));
        while b > 0 {
            (a, b) = (b, a % b);
        }
        (strips.alignment_bytes / a) as usize
    };
    // the alignment is a power of two, and so are its quotients: the largest is a multiple of all
    values.iter().map(of).max().unwrap_or(1)
}

/// The most rows of a strip that fit, all strips alike but for the last; with at least `quantum` rows even if those do not fit.
pub(super) fn strip_rows(height: usize, quantum: usize, fits: impl Fn(usize) -> bool) -> usize {
    let mut strips = 1;
    loop {
        let rows = height.div_ceil(strips).next_multiple_of(quantum);
        if rows >= height && fits(height) {
            return height;
        }
        if rows <= quantum || fits(rows) {
            return rows.min(height);
        }
        strips += 1;
    }
}

/// The strips of a picture.
pub(super) fn cut(height: usize, rows: usize) -> impl Iterator<Item = Range<usize>> {
    let firsts = (0..height).step_by(rows.max(1));
    firsts.map(move |first| first..height.min(first + rows))
}

/// Rows of a strip and of a slice of its statistics, about as many slices as the whole norm has; a strip has whole slices.
pub(super) fn slice_rows(
    args: &GroupNormArgs,
    shape: Shape,
    rows: usize,
    quantum: usize,
) -> (usize, usize) {
    let slice = shape.height.div_ceil(args.slices());
    if rows >= shape.height {
        return (rows, slice);
    }
    let mut unit = slice;
    while !unit.is_multiple_of(quantum) {
        unit += slice;
    }
    match rows / unit * unit {
        0 => (rows, rows),
        whole => (whole, slice),
    }
}

/// What a convolution reads for some rows of its result, at most.
pub(super) fn conv_input(group: &Group, rows: usize) -> (ValueId, usize) {
    let seen = rows + 2;
    let stored = match group.upsample {
        Some(_) => seen / 2 + 1,
        None => seen,
    };
    (group.input, stored)
}

/// Ranges of slots, each made once.
#[derive(Default)]
pub(super) struct Parts(BTreeMap<(SlotPart, u64), SlotId>);

impl Parts {
    /// A range of a slot.
    pub(super) fn of(&mut self, lowering: &mut Lowering<'_>, part: SlotPart, bytes: u64) -> SlotId {
        *self.0.entry((part, bytes)).or_insert_with(|| {
            let keep = lowering.slots[part.of.0].keep;
            lowering.slots.push(Slot {
                bytes,
                keep,
                part: Some(part),
            });
            SlotId(lowering.slots.len() - 1)
        })
    }
}

/// The calls of one group, and the memory that its strips share.
#[derive(Default)]
pub(super) struct Pass {
    pub(super) calls: Vec<Dispatch>,
    scratch: Vec<SlotId>,
    used: usize,
}

impl Pass {
    /// The next strip uses the same memory.
    pub(super) fn next_strip(&mut self) {
        self.used = 0;
    }

    /// Memory for the current strip.
    pub(super) fn take(
        &mut self,
        lowering: &mut Lowering<'_>,
        parts: &mut Parts,
        bytes: u64,
        value_at: u64,
    ) -> SlotId {
        let bytes = bytes.next_multiple_of(4);
        if self.used == self.scratch.len() {
            self.scratch.push(lowering.push_slot(0, Keep::No));
        }
        let of = self.scratch[self.used];
        self.used += 1;
        let owner = &mut lowering.slots[of.0];
        owner.bytes = owner.bytes.max(bytes);
        let part = SlotPart {
            of,
            offset: 0,
            value_at,
        };
        parts.of(lowering, part, bytes)
    }
}

pub(super) const fn reads(slot: SlotId, value: ValueId) -> Place {
    Place::Arena {
        slot,
        reads: Some(value),
        writes: None,
    }
}

pub(super) const fn writes(slot: SlotId, value: ValueId) -> Place {
    Place::Arena {
        slot,
        reads: None,
        writes: Some(value),
    }
}
