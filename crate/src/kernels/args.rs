//! The arguments of each kernel: shapes and variants, the operands in binding order with their sizes, and the scratch memory.
//!
//! `m`, `n`, `k` and all sizes are counts of values, not bytes. An `Args` holds everything its kernel's WGSL depends on.

mod attention;
mod elementwise;
mod gemm;
pub(super) mod norms;

pub use attention::{AttentionArgs, AttentionForm, EmbeddingArgs};
pub use elementwise::{ElementwiseArgs, ElementwiseOp};
pub use gemm::{Conv2dArgs, ConvStrip, GemmArgs};
pub use norms::{
    GroupApplyArgs, GroupCombineArgs, GroupNormArgs, GroupStatisticsArgs, LayerNormArgs,
};

use super::{Access, Operand, Role, Storage};

/// Applied to a matrix product after its bias and before its residual.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// Nothing.
    None,
    /// `x * sigmoid(x)`
    Silu,
    /// `x * (1 + erf(x / sqrt 2)) / 2`
    Gelu,
    /// `x * sigmoid(1.702 x)`
    QuickGelu,
}

/// A second term of the result, of its shape and precision, added last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Residual {
    /// None.
    None,
    /// An operand of its own.
    Separate,
    /// The output holds it before the call and the sum after it: one operand, [`Access::ReadWrite`].
    InPlace,
}

/// Which row of `[rows, channels]` is added at every position of a picture. The rows are float32 whatever the activations are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelRows {
    /// One row for the whole batch.
    One,
    /// One row per picture.
    PerPicture,
    /// Row `step.x` of a table with a row for each step of the schedule; adds the operand [`Role::Step`].
    Step {
        /// Rows of the table.
        steps: usize,
    },
}

impl ChannelRows {
    /// Rows of the operand.
    #[must_use]
    pub const fn rows(self, batch: usize) -> usize {
        match self {
            Self::One => 1,
            Self::PerPicture => batch,
            Self::Step { steps } => steps,
        }
    }
}

/// Bytes of the uniform that tells the step.
pub const STEP_BYTES: u64 = 16;

const fn arena(role: Role, access: Access, bytes: u64) -> Operand {
    Operand {
        role,
        storage: Storage::Arena,
        access,
        // float16 rows have an even number of values, so this rounds nothing but single odd values away from a word
        bytes: bytes.next_multiple_of(4),
    }
}

const fn weight(role: Role, bytes: u64) -> Operand {
    Operand {
        role,
        storage: Storage::Weight,
        access: Access::Read,
        bytes,
    }
}

const STEP: Operand = Operand {
    role: Role::Step,
    storage: Storage::Step,
    access: Access::Read,
    bytes: STEP_BYTES,
};
