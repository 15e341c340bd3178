//! What works value by value: mostly what a fusion leaves over.

use super::{ChannelRows, STEP, arena, norms::output_access};
use crate::kernels::{Access, Operand, Precision, Role};

/// The operation of an [`ElementwiseArgs`]; `C` is the output's number of channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementwiseOp {
    /// `input + second_input`, both of the output's shape.
    Add,
    /// `input + channel_add[row]` at every position.
    AddChannels {
        /// Which row.
        rows: ChannelRows,
    },
    /// `x * sigmoid(x)`
    Silu,
    /// `x * sigmoid(1.702 x)`
    QuickGelu,
    /// Exact GELU.
    Gelu,
    /// First half of the `2 C` input channels times the exact GELU of the second half.
    Geglu,
    /// Channels of `input`, then those of `second_input`.
    ConcatChannels {
        /// Channels of `input`; the second has `C - first`.
        first: usize,
    },
    /// Place `(y, x)` of the output is place `(y / 2, x / 2)` of the input.
    UpsampleNearest2d {
        /// Rows of the input; the output has the double, or one less.
        height: usize,
        /// Columns of the input.
        width: usize,
    },
}

/// One element-wise operation.
///
/// Operands in order: `Input`, `[SecondInput]`, `[ChannelAdd [rows, channels] float32]`, `[Step]`, `Output [batch, height, width, channels]`.
/// In place (all but `Geglu`, `ConcatChannels` and `UpsampleNearest2d`) there is no `Input`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ElementwiseArgs {
    /// What is computed.
    pub op: ElementwiseOp,
    /// Pictures.
    pub batch: usize,
    /// Rows of the output; 1 for tokens.
    pub height: usize,
    /// Columns of the output, or tokens.
    pub width: usize,
    /// Channels of the output.
    pub channels: usize,
    /// Of `Input` and `SecondInput`.
    pub input: Precision,
    /// Of the output; in place equal to `input`.
    pub output: Precision,
    /// The output replaces the input.
    pub in_place: bool,
}

impl ElementwiseArgs {
    /// Values of the output.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.batch * self.height * self.width * self.channels
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The operands in binding order.
    #[must_use]
    pub fn operands(&self) -> Vec<Operand> {
        let rows = self.batch * self.height * self.width;
        let read = |role, values| arena(role, Access::Read, self.input.bytes(values));
        let mut list = Vec::with_capacity(4);
        if !self.in_place {
            let values = match self.op {
                ElementwiseOp::Geglu => 2 * self.len(),
                ElementwiseOp::ConcatChannels { first } => rows * first,
                ElementwiseOp::UpsampleNearest2d { height, width } => {
                    self.batch * height * width * self.channels
                }
                ElementwiseOp::Add
                | ElementwiseOp::AddChannels { .. }
                | ElementwiseOp::Silu
                | ElementwiseOp::QuickGelu
                | ElementwiseOp::Gelu => self.len(),
            };
            list.push(read(Role::Input, values));
        }
        match self.op {
            ElementwiseOp::Add => list.push(read(Role::SecondInput, self.len())),
            ElementwiseOp::ConcatChannels { first } => {
                list.push(read(Role::SecondInput, rows * (self.channels - first)));
            }
            ElementwiseOp::AddChannels { rows } => {
                list.push(arena(
                    Role::ChannelAdd,
                    Access::Read,
                    Precision::F32.bytes(rows.rows(self.batch) * self.channels),
                ));
                if matches!(rows, ChannelRows::Step { .. }) {
                    list.push(STEP);
                }
            }
            ElementwiseOp::Silu
            | ElementwiseOp::QuickGelu
            | ElementwiseOp::Gelu
            | ElementwiseOp::Geglu
            | ElementwiseOp::UpsampleNearest2d { .. } => {}
        }
        list.push(arena(
            Role::Output,
            output_access(self.in_place),
            self.output.bytes(self.len()),
        ));
        list
    }
}
