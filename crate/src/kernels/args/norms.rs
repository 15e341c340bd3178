//! Group norm and layer norm.

use super::{arena, weight};
use crate::kernels::{Access, Operand, Precision, Role, vector_bytes};

/// Group norm over the positions of a picture and the channels of each group, then optionally SiLU.
///
/// The mean and the biased variance are taken over `positions * channels / groups` values; `(x - mean) / sqrt(variance + eps) * scale + shift`.
/// Groups are cut from the channels of both sources together, so a group may lie across the seam.
///
/// Operands in order: `Input [batch, positions, channels - c2]`, `[SecondInput [batch, positions, c2]]`, `Scale [channels]`, `Shift [channels]`,
/// `Scratch`, `Output [batch, positions, channels]`. In place there is no `Input`: the output holds it before the call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupNormArgs {
    /// Pictures.
    pub batch: usize,
    /// `height * width`.
    pub positions: usize,
    /// Channels, of both sources together.
    pub channels: usize,
    /// The last `c2` channels come from a second tensor. Never together with `in_place`.
    pub second_source: Option<usize>,
    /// Divides `channels`.
    pub groups: usize,
    /// Added to the variance.
    pub eps: f32,
    /// SiLU after the norm.
    pub silu: bool,
    /// Of both sources.
    pub input: Precision,
    /// Of the output; in place equal to `input`.
    pub output: Precision,
    /// The output replaces the input.
    pub in_place: bool,
}

impl GroupNormArgs {
    /// Values whose sum one workgroup takes.
    const SLICE_VALUES: usize = 8192;
    /// More slices would make their combination the slow part.
    const MAX_SLICES: usize = 128;

    /// Slices of the positions over which partial statistics are taken; slice `i` covers the positions from
    /// `i * ceil(positions / slices)` on.
    #[must_use]
    pub fn slices(&self) -> usize {
        (self.positions * (self.channels / self.groups))
            .div_ceil(Self::SLICE_VALUES)
            .clamp(1, Self::MAX_SLICES)
            .min(self.positions)
    }

    /// Partial statistics, two float32 each, `[batch, slices, groups]`, then the finished ones, `[batch, groups]`.
    #[must_use]
    pub fn scratch_bytes(&self) -> u64 {
        8 * (self.batch * self.groups * (self.slices() + 1)) as u64
    }

    /// The operands in binding order.
    #[must_use]
    pub fn operands(&self) -> Vec<Operand> {
        let rows = self.batch * self.positions;
        let c2 = self.second_source.unwrap_or(0);
        let mut list = Vec::with_capacity(6);
        if !self.in_place {
            list.push(arena(
                Role::Input,
                Access::Read,
                self.input.bytes(rows * (self.channels - c2)),
            ));
        }
        if c2 > 0 {
            list.push(arena(
                Role::SecondInput,
                Access::Read,
                self.input.bytes(rows * c2),
            ));
        }
        list.push(weight(Role::Scale, vector_bytes(self.channels)));
        list.push(weight(Role::Shift, vector_bytes(self.channels)));
        list.push(arena(Role::Scratch, Access::Write, self.scratch_bytes()));
        list.push(arena(
            Role::Output,
            output_access(self.in_place),
            self.output.bytes(rows * self.channels),
        ));
        list
    }
}

/// The statistics of some positions of one picture: the first part of a group norm whose input is never there as a whole.
///
/// Operands in order: `Input [positions, channels]`, `Output [slices, stride, 2]` float32: mean, and sum of squared distances from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupStatisticsArgs {
    /// Positions that are there.
    pub positions: usize,
    /// Positions of a slice; the last may have fewer.
    pub slice_positions: usize,
    /// Channels.
    pub channels: usize,
    /// Divides `channels`.
    pub groups: usize,
    /// Of the input.
    pub input: Precision,
}

impl GroupStatisticsArgs {
    /// Slices of the positions.
    #[must_use]
    pub const fn slices(&self) -> usize {
        self.positions.div_ceil(self.slice_positions)
    }

    /// Bytes of the output.
    #[must_use]
    pub const fn output_bytes(&self) -> u64 {
        statistics_bytes(self.slices(), self.groups)
    }

    /// The operands in binding order.
    #[must_use]
    pub fn operands(&self) -> Vec<Operand> {
        let input = self.input.bytes(self.positions * self.channels);
        vec![
            arena(Role::Input, Access::Read, input),
            arena(Role::Output, Access::Write, self.output_bytes()),
        ]
    }
}

/// The statistics of all slices as one: the second part.
///
/// Operands in order: `Input [slices, stride, 2]` float32, what [`GroupStatisticsArgs`] gave for all positions, one slice after another;
/// `Output [stride, 2]` float32: mean, and one by the deviation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupCombineArgs {
    /// Positions of the picture.
    pub positions: usize,
    /// Positions of a slice; the last may have fewer.
    pub slice_positions: usize,
    /// Channels.
    pub channels: usize,
    /// Divides `channels`.
    pub groups: usize,
    /// Added to the variance.
    pub eps: f32,
}

impl GroupCombineArgs {
    /// Slices of the positions.
    #[must_use]
    pub const fn slices(&self) -> usize {
        self.positions.div_ceil(self.slice_positions)
    }

    /// The operands in binding order.
    #[must_use]
    pub fn operands(&self) -> Vec<Operand> {
        let bytes = |slices| statistics_bytes(slices, self.groups);
        vec![
            arena(Role::Input, Access::Read, bytes(self.slices())),
            arena(Role::Output, Access::Write, bytes(1)),
        ]
    }
}

/// The norm of some positions of one picture by statistics that are there: the last part.
///
/// Operands in order: `Input [positions, channels]`, `Statistics [stride, 2]` float32, `Scale [channels]`, `Shift [channels]`,
/// `Output [positions, channels]`. In place there is no `Input`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupApplyArgs {
    /// Positions that are there.
    pub positions: usize,
    /// Channels.
    pub channels: usize,
    /// Divides `channels`.
    pub groups: usize,
    /// SiLU after the norm.
    pub silu: bool,
    /// Of the input.
    pub input: Precision,
    /// Of the output; in place equal to `input`.
    pub output: Precision,
    /// The output replaces the input.
    pub in_place: bool,
}

impl GroupApplyArgs {
    /// The operands in binding order.
    #[must_use]
    pub fn operands(&self) -> Vec<Operand> {
        let values = self.positions * self.channels;
        let mut list = Vec::with_capacity(5);
        if !self.in_place {
            list.push(arena(Role::Input, Access::Read, self.input.bytes(values)));
        }
        let statistics = statistics_bytes(1, self.groups);
        list.push(arena(Role::Statistics, Access::Read, statistics));
        list.push(weight(Role::Scale, vector_bytes(self.channels)));
        list.push(weight(Role::Shift, vector_bytes(self.channels)));
        let access = output_access(self.in_place);
        list.push(arena(Role::Output, access, self.output.bytes(values)));
        list
    }
}

/// Pairs of a slice's statistics: one a group, and as many more as let the next slice begin at a multiple of 256 bytes.
#[must_use]
pub(in crate::kernels) const fn statistics_stride(groups: usize) -> usize {
    groups.next_multiple_of(32)
}

const fn statistics_bytes(slices: usize, groups: usize) -> u64 {
    8 * (slices * statistics_stride(groups)) as u64
}

/// Layer norm over the channels of each row.
///
/// Operands in order: `Input [rows, channels]`, `Scale [channels]`, `Shift [channels]`, `Output [rows, channels]`.
/// In place there is no `Input`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerNormArgs {
    /// `batch * positions`.
    pub rows: usize,
    /// Channels.
    pub channels: usize,
    /// Added to the biased variance.
    pub eps: f32,
    /// Of the input.
    pub input: Precision,
    /// Of the output; in place equal to `input`.
    pub output: Precision,
    /// The output replaces the input.
    pub in_place: bool,
}

impl LayerNormArgs {
    /// The operands in binding order.
    #[must_use]
    pub fn operands(&self) -> Vec<Operand> {
        let values = self.rows * self.channels;
        let mut list = Vec::with_capacity(4);
        if !self.in_place {
            list.push(arena(Role::Input, Access::Read, self.input.bytes(values)));
        }
        list.push(weight(Role::Scale, vector_bytes(self.channels)));
        list.push(weight(Role::Shift, vector_bytes(self.channels)));
        list.push(arena(
            Role::Output,
            output_access(self.in_place),
            self.output.bytes(values),
        ));
        list
    }
}

pub(super) const fn output_access(in_place: bool) -> Access {
    if in_place {
        Access::ReadWrite
    } else {
        Access::Write
    }
}
