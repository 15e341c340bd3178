//! What the lowering may do. Each fusion can be switched off, to measure what it brings.

use crate::kernels::{Limits, Precision};

/// The choices of a lowering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LowerOptions {
    /// How activations are stored. Network inputs and outputs, the time embedding, and values with an odd number of channels are
    /// float32 in any case.
    pub activations: Precision,
    /// Which operations share a kernel.
    pub fusions: Fusions,
    /// Whether a kernel may write over an operand that nobody reads afterwards.
    pub in_place: bool,
    /// Whether keys and values of the text are computed once a picture instead of at each step.
    pub hoist_text: bool,
    /// With a number of steps: whether the time embeddings of all steps are computed once a picture.
    pub hoist_schedule: Option<usize>,
    /// Whether long sums with few outputs are cut into slices that run side by side.
    pub split_k: bool,
    /// How attention is computed.
    pub attention: AttentionChoice,
    /// Most bytes of scores that the sliced form may hold.
    pub score_bytes: u64,
    /// Whether large pictures are computed in strips of rows.
    pub strips: Option<Strips>,
}

/// How large pictures are computed in strips of rows: what a norm gives is then never there as a whole, and no call binds more than a strip.
/// The result is the same up to the order in which a norm's statistics are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strips {
    /// Most bytes of values that are computed for a strip alone. A picture that is smaller is not cut.
    pub bytes: u64,
    /// An upsampled picture of more bytes is computed twice, for its statistics and for the convolution that reads its norm, and never stored.
    pub recompute_above: u64,
    /// Most bytes of one binding.
    pub binding_bytes: u64,
    /// What a strip's first byte must be a multiple of.
    pub alignment_bytes: u64,
}

impl Strips {
    /// Strips of at most `bytes` within `limits`, with nothing computed twice.
    #[must_use]
    pub const fn new(bytes: u64, limits: &Limits) -> Self {
        Self {
            bytes,
            recompute_above: u64::MAX,
            binding_bytes: limits.max_storage_buffer_binding_bytes,
            alignment_bytes: limits.offset_alignment_bytes,
        }
    }
}

/// Which form of attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttentionChoice {
    /// Flash where a head fits workgroup memory (`head_dim` up to 160), sliced elsewhere.
    Auto,
    /// Sliced everywhere.
    Sliced,
    /// With the scores of all heads at once, everywhere: to measure what the others save.
    AllHeads,
}

/// Which operations share a kernel with the one before or after them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fusions {
    /// Residual sums into the matrix product or convolution before them.
    pub residual: bool,
    /// SiLU, GELU and quick GELU into the linear layer before them.
    pub activation: bool,
    /// SiLU into the group norm before it.
    pub group_norm_silu: bool,
    /// GEGLU into the linear layer before it: its doubled output is never stored.
    pub geglu: bool,
    /// The time embedding's sum into the convolution before it.
    pub channel_add: bool,
    /// Concatenations into the group norms and linear layers that read them.
    pub concat: bool,
    /// Upsampling into the convolution that reads it.
    pub upsample: bool,
}

impl Fusions {
    /// All of them.
    pub const ALL: Self = Self {
        residual: true,
        activation: true,
        group_norm_silu: true,
        geglu: true,
        channel_add: true,
        concat: true,
        upsample: true,
    };
    /// None of them.
    pub const NONE: Self = Self {
        residual: false,
        activation: false,
        group_norm_silu: false,
        geglu: false,
        channel_add: false,
        concat: false,
        upsample: false,
    };
}

impl LowerOptions {
    /// Everything on, for activations of `precision`; the schedule is not hoisted, as its length is not known.
    #[must_use]
    pub const fn new(precision: Precision) -> Self {
        Self {
            activations: precision,
            fusions: Fusions::ALL,
            in_place: true,
            hoist_text: true,
            hoist_schedule: None,
            split_k: true,
            attention: AttentionChoice::Auto,
            score_bytes: 16 << 20,
            strips: None,
        }
    }
}
