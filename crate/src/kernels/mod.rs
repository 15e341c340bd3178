//! The GPU kernels as plain data: what each computes, which operands it binds in which order, and how large they are.
//!
//! Kernels take shapes and buffers, never configs or models. The planner in `engine::plan` needs only what is in [`args`];
//! the WGSL and its launchers live in one file per kernel.
//!
//! # Layout
//! - An activation is channels-last, `[batch, positions, channels]` with `positions = height * width`, in the arena, at an
//!   offset that is a multiple of 256 bytes. [`Precision`] says how one value is stored. All sums are float32.
//! - A matrix of weights (linear or convolution) is `[n][kp]` row-major, float16 packed two to a `u32` (the even index in the low half),
//!   `kp` = `k` rounded up to a multiple of 8, padded with zeros. `k` of a convolution runs over `ky, kx, channels_in`, channels fastest.
//! - A bias, and a norm's scale and shift, are float32.
//! - An embedding table is `[rows][cp]`, float16 packed, `cp` = channels rounded up to a multiple of 2.
//!
//! # Binding rules
//! Every arena operand is bound `var<storage, read_write>`, even where it is only read: WebGPU tracks usage per whole buffer, and a buffer
//! may not be `read` and `read_write` in one dispatch. The planner proves that the ranges of one dispatch do not overlap.
//! Weights are in buffers of their own and bound `read`. A kernel in place has one binding for both roles, so it has one operand less.

pub mod args;
mod attention;
mod builder;
mod conv2d;
mod elementwise;
mod embedding;
mod gemm;
mod group_norm;
mod launch;
mod layer_norm;
mod limits;
pub mod reference;
mod repack;
mod template;
mod tuning;

pub use args::{
    Activation, AttentionArgs, AttentionForm, ChannelRows, Conv2dArgs, ConvStrip, ElementwiseArgs,
    ElementwiseOp, EmbeddingArgs, GemmArgs, GroupApplyArgs, GroupCombineArgs, GroupNormArgs,
    GroupStatisticsArgs, LayerNormArgs, Residual,
};
pub use limits::Limits;
pub use repack::{RepackArgs, RepackLayout, SourceType};
pub use tuning::{Product, ShapeClass, Tile, Tuning};

/// How an activation is stored in the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// One value a `u32` (bits of a float32).
    F32,
    /// Two values a `u32`, the even channel in the low half. The number of channels must be even, so a row starts on a word.
    F16,
}

impl Precision {
    /// Bytes of `values` activation values.
    #[must_use]
    pub const fn bytes(self, values: usize) -> u64 {
        match self {
            Self::F32 => 4 * values as u64,
            Self::F16 => 2 * values as u64,
        }
    }
}

/// What an operand is to its kernel. The order of a kernel's operands is fixed, see `operands` of each `Args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// The activation that is read.
    Input,
    /// A second activation: channels behind those of `Input`, or the other term of a sum.
    SecondInput,
    /// Attention's queries.
    Query,
    /// Attention's keys.
    Key,
    /// Attention's values.
    Value,
    /// Token ids, `u32`.
    Ids,
    /// Matrix of weights.
    Weight,
    /// Bias of a matrix.
    Bias,
    /// Scale of a norm.
    Scale,
    /// Shift of a norm.
    Shift,
    /// Table of token embeddings.
    TokenTable,
    /// Table of position embeddings.
    PositionTable,
    /// Values added per channel, see [`ChannelRows`].
    ChannelAdd,
    /// Added to the result.
    Residual,
    /// Mean and deviation of each group.
    Statistics,
    /// Memory of the kernel's own; holds nothing before and after it.
    Scratch,
    /// The result.
    Output,
    /// The step of the schedule, see [`Storage::Step`].
    Step,
}

/// Which memory an operand lives in, and with that how it is bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    /// A range of the arena: `var<storage, read_write>`.
    Arena,
    /// A range of a buffer of weights: `var<storage, read>`.
    Weight,
    /// A uniform of 16 bytes that the replay writes before each step: `var<uniform> step: vec4<u32>`, the index of the step in `x`.
    Step,
}

/// What a kernel does with an operand. It is about the planner's proof, not about the binding type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Only read.
    Read,
    /// Every value is written before it is read, if it is read.
    Write,
    /// Read, then replaced: a kernel in place.
    ReadWrite,
}

/// One operand of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operand {
    /// Its part in the kernel.
    pub role: Role,
    /// Where it lives.
    pub storage: Storage,
    /// Read or written.
    pub access: Access,
    /// Exact size, a multiple of 4.
    pub bytes: u64,
}

/// One call of a kernel, fully described but for the places of its operands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kernel {
    /// Matrix product with epilogues.
    Gemm(GemmArgs),
    /// 3x3 convolution with epilogues.
    Conv2d(Conv2dArgs),
    /// Group norm.
    GroupNorm(GroupNormArgs),
    /// Group norm in parts: statistics of some positions.
    GroupStatistics(GroupStatisticsArgs),
    /// Group norm in parts: statistics of all positions from those of some.
    GroupCombine(GroupCombineArgs),
    /// Group norm in parts: the norm of some positions.
    GroupApply(GroupApplyArgs),
    /// Layer norm.
    LayerNorm(LayerNormArgs),
    /// Multi-head attention.
    Attention(AttentionArgs),
    /// Rows of the token table plus rows of the position table.
    Embedding(EmbeddingArgs),
    /// Everything that works value by value.
    Elementwise(ElementwiseArgs),
}

impl Kernel {
    /// The kernel's name: its file, its entry point, its CPU twin; with the part of a group norm in parts.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Gemm(_) => "gemm",
            Self::Conv2d(_) => "conv2d",
            Self::GroupNorm(_) => "group_norm",
            Self::GroupStatistics(_) => "group_norm.statistics",
            Self::GroupCombine(_) => "group_norm.combine",
            Self::GroupApply(_) => "group_norm.apply",
            Self::LayerNorm(_) => "layer_norm",
            Self::Attention(_) => "attention",
            Self::Embedding(_) => "embedding",
            Self::Elementwise(_) => "elementwise",
        }
    }

    /// The operands in binding order.
    #[must_use]
    pub fn operands(&self) -> Vec<Operand> {
        match self {
            Self::Gemm(args) => args.operands(),
            Self::Conv2d(args) => args.operands(),
            Self::GroupNorm(args) => args.operands(),
            Self::GroupStatistics(args) => args.operands(),
            Self::GroupCombine(args) => args.operands(),
            Self::GroupApply(args) => args.operands(),
            Self::LayerNorm(args) => args.operands(),
            Self::Attention(args) => args.operands(),
            Self::Embedding(args) => args.operands(),
            Self::Elementwise(args) => args.operands(),
        }
    }

    /// Multiply-adds of matrix products and convolutions; norms and sums count as none, as in the usual figures.
    #[must_use]
    pub fn macs(&self) -> u64 {
        match self {
            Self::Gemm(args) => args.macs(),
            Self::Conv2d(args) => args.macs(),
            Self::Attention(args) => args.macs(),
            Self::GroupNorm(_)
            | Self::GroupStatistics(_)
            | Self::GroupCombine(_)
            | Self::GroupApply(_)
            | Self::LayerNorm(_)
            | Self::Embedding(_)
            | Self::Elementwise(_) => 0,
        }
    }
}

/// One dispatch of a kernel; a kernel has several where a sum has to be finished before it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// The kernel's name, with the stage where there are several: `group_norm.statistics`.
    pub label: &'static str,
    /// Entry point in `source`.
    pub entry_point: &'static str,
    /// Complete WGSL. Equal sources mean one pipeline, so every value substituted into it is part of the key.
    pub source: String,
    /// Bindings 0, 1, ... of group 0. The uniform with `params` is the last binding, after these.
    pub bindings: Vec<Binding>,
    /// Words of the uniform; the length is a multiple of 4 (16 bytes).
    pub params: Vec<u32>,
    /// Workgroups in x, y, z.
    pub workgroups: [u32; 3],
}

/// A binding of a [`Launch`]: a range of one of the kernel's operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binding {
    /// Index into [`Kernel::operands`]; the operand's [`Storage`] decides the binding type.
    pub operand: usize,
    /// Start within the operand, a multiple of [`Limits::offset_alignment_bytes`]; 0 for the whole operand.
    pub offset_bytes: u64,
    /// Size of the binding, always given explicitly.
    pub bytes: u64,
}

/// `k` padded as the rows of a weight matrix are.
#[must_use]
pub const fn padded_k(k: usize) -> usize {
    k.next_multiple_of(8)
}

/// Bytes of a weight matrix `[n][kp]`.
#[must_use]
pub const fn matrix_bytes(n: usize, k: usize) -> u64 {
    2 * n as u64 * padded_k(k) as u64
}

/// Bytes of an embedding table `[rows][cp]`.
#[must_use]
pub const fn table_bytes(rows: usize, channels: usize) -> u64 {
    2 * rows as u64 * channels.next_multiple_of(2) as u64
}

/// Bytes of a float32 vector.
#[must_use]
pub const fn vector_bytes(channels: usize) -> u64 {
    4 * channels as u64
}
