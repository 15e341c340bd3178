//! From a checkpoint's layout to that of the kernels, on the GPU. Not a [`Kernel`](super::Kernel): it runs while weights arrive, never in a plan.

use super::{
    Access, Launch, Limits, Operand, Role, Storage,
    builder::{Builder, fold, word},
    launch::check,
    matrix_bytes, padded_k, table_bytes, vector_bytes,
};
use crate::Result;

const REPACK: &str = include_str!("repack.wgsl");

/// How the checkpoint stores a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceType {
    /// IEEE float32.
    F32,
    /// IEEE float16.
    F16,
    /// The upper half of a float32.
    Bf16,
}

impl SourceType {
    /// Bytes of one value.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }
}

/// The tensor that is repacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepackLayout {
    /// `[rows, k]` to `[rows][kp]` float16.
    Matrix {
        /// Values of a row.
        k: usize,
    },
    /// `[rows, channels, kernel, kernel]` to `[rows][kp]` float16, channels fastest.
    Conv2d {
        /// Channels of the input.
        channels: usize,
        /// Side of the kernel.
        kernel: usize,
    },
    /// `[rows, channels]` to `[rows][cp]` float16: an embedding table.
    Table {
        /// Values of a row.
        channels: usize,
    },
    /// `[rows]` to float32.
    Vector,
}

/// Some rows of a tensor, from a buffer that starts with the first of them into the place of the whole tensor.
///
/// Operands in order: `Input`, the checkpoint's bytes of `rows` rows, padded to a multiple of 4 and bound `read`; `Output`, the whole tensor.
/// Rows of float16 whose length is already that of the layout need no repacking at all, see [`RepackArgs::is_copy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepackArgs {
    /// The tensor.
    pub layout: RepackLayout,
    /// How the checkpoint stores a value.
    pub source: SourceType,
    /// Rows of the whole tensor.
    pub all_rows: usize,
    /// The first row that is written.
    pub first_row: usize,
    /// Rows that are written.
    pub rows: usize,
}

impl RepackArgs {
    /// Values of a row, in the checkpoint.
    #[must_use]
    pub const fn k(&self) -> usize {
        match self.layout {
            RepackLayout::Matrix { k } => k,
            RepackLayout::Conv2d { channels, kernel } => channels * kernel * kernel,
            RepackLayout::Table { channels } => channels,
            RepackLayout::Vector => 1,
        }
    }

    /// Values of a row in the kernels' layout.
    #[must_use]
    pub const fn padded(&self) -> usize {
        match self.layout {
            RepackLayout::Matrix { .. } | RepackLayout::Conv2d { .. } => padded_k(self.k()),
            RepackLayout::Table { channels } => channels.next_multiple_of(2),
            RepackLayout::Vector => 1,
        }
    }

    /// Whether both layouts are the same bytes, so that the checkpoint's can be written to their place as they are.
    #[must_use]
    pub const fn is_copy(&self) -> bool {
        match (self.layout, self.source) {
            (RepackLayout::Vector, SourceType::F32) => true,
            (RepackLayout::Matrix { .. } | RepackLayout::Table { .. }, SourceType::F16) => {
                self.k() == self.padded()
            }
            (RepackLayout::Conv2d { kernel, .. }, SourceType::F16) => {
                kernel == 1 && self.k() == self.padded()
            }
            _ => false,
        }
    }

    /// The operands in binding order.
    #[must_use]
    pub const fn operands(&self) -> [Operand; 2] {
        let source = (self.rows * self.k() * self.source.bytes()).next_multiple_of(4);
        let output = match self.layout {
            RepackLayout::Vector => vector_bytes(self.all_rows),
            RepackLayout::Table { channels } => table_bytes(self.all_rows, channels),
            RepackLayout::Matrix { .. } | RepackLayout::Conv2d { .. } => {
                matrix_bytes(self.all_rows, self.k())
            }
        };
        [
            Operand {
                role: Role::Input,
                storage: Storage::Weight,
                access: Access::Read,
                bytes: source as u64,
            },
            Operand {
                role: Role::Output,
                storage: Storage::Arena,
                access: Access::ReadWrite,
                bytes: output,
            },
        ]
    }

    /// The one dispatch.
    ///
    /// # Errors
    /// [`Error::LimitTooSmall`](crate::Error::LimitTooSmall) when the rows or the tensor are more than one binding holds.
    pub fn launch(&self, limits: &Limits) -> Result<Launch> {
        let operands = self.operands();
        let (channels, places) = match self.layout {
            RepackLayout::Conv2d { channels, kernel } => (channels, kernel * kernel),
            _ => (self.k(), 1),
        };
        let is_vector = self.layout == RepackLayout::Vector;
        let threads = if is_vector {
            self.rows
        } else {
            self.rows * self.padded() / 2
        };
        let launch = Builder::new(&operands)
            .set("VECTOR", is_vector)
            .set("SOURCE_F32", self.source == SourceType::F32)
            .set("SOURCE_F16", self.source == SourceType::F16)
            .bind(Role::Input, "INPUT", "B_INPUT")
            .bind(Role::Output, "OUTPUT", "B_OUTPUT")
            .launch(
                "repack",
                "repack",
                &[REPACK],
                &[
                    self.first_row,
                    self.rows,
                    self.k(),
                    self.padded(),
                    channels,
                    places,
                ]
                .map(word),
                fold(threads, limits),
            );
        check(&launch, &operands, limits)?;
        Ok(launch)
    }
}
