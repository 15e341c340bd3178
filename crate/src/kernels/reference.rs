//! The CPU twin of every kernel: the same formula, written as plainly as possible, with sums in float64.
//!
//! A twin sees values, not bytes: activations and weights as `f32` in the order of [`Kernel::operands`](super::Kernel::operands), a weight matrix
//! `[n][k]` without its padding.

mod attention;
mod conv2d;
mod elementwise;
mod embedding;
mod gemm;
mod group_norm;
mod layer_norm;
mod repack;

pub use repack::repack;

use super::{Activation, ChannelRows, Kernel, Role};

/// Values of a kernel's operands before the call.
#[derive(Debug, Clone, Default)]
pub struct Values {
    list: Vec<(Role, Vec<f32>)>,
    /// Token ids.
    pub ids: Vec<u32>,
    /// The step of the schedule.
    pub step: usize,
}

impl Values {
    /// No values yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives the operand its values. A kernel in place finds its input under [`Role::Output`].
    #[must_use]
    pub fn with(mut self, role: Role, values: Vec<f32>) -> Self {
        self.list.push((role, values));
        self
    }

    /// The operand's values; nothing where the kernel has no such operand.
    #[must_use]
    pub fn get(&self, role: Role) -> &[f32] {
        let found = self.list.iter().find(|(known, _)| *known == role);
        found.map_or(&[], |(_, values)| values)
    }

    /// The value at `at`, 0 outside.
    fn at(&self, role: Role, at: usize) -> f64 {
        f64::from(self.get(role).get(at).copied().unwrap_or(0.0))
    }

    /// The value at `at` of the input, which in place is what the output holds before the call.
    fn input_at(&self, role: Role, in_place: bool, at: usize) -> f64 {
        self.at(if in_place { Role::Output } else { role }, at)
    }
}

/// What the kernel leaves in its output.
#[must_use]
pub fn run(kernel: &Kernel, values: &Values) -> Vec<f64> {
    match kernel {
        Kernel::Gemm(args) => gemm::gemm(args, values),
        Kernel::Conv2d(args) => conv2d::conv2d(args, values),
        Kernel::GroupNorm(args) => group_norm::group_norm(args, values),
        Kernel::GroupStatistics(args) => group_norm::statistics(args, values),
        Kernel::GroupCombine(args) => group_norm::combine(args, values),
        Kernel::GroupApply(args) => group_norm::apply(args, values),
        Kernel::LayerNorm(args) => layer_norm::layer_norm(args, values),
        Kernel::Attention(args) => attention::attention(args, values),
        Kernel::Embedding(args) => embedding::embedding(args, values),
        Kernel::Elementwise(args) => elementwise::elementwise(args, values),
    }
}

/// `x * sigmoid(x)`
fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

/// `x * sigmoid(1.702 x)`
fn quick_gelu(x: f64) -> f64 {
    x / (1.0 + (-1.702 * x).exp())
}

/// `x * (1 + erf(x / sqrt 2)) / 2`
fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + libm::erf(x * std::f64::consts::FRAC_1_SQRT_2))
}

fn activate(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::None => x,
        Activation::Silu => silu(x),
        Activation::Gelu => gelu(x),
        Activation::QuickGelu => quick_gelu(x),
    }
}

/// The row that is added to the channels of a picture.
fn channel_row(rows: ChannelRows, picture: usize, step: usize) -> usize {
    match rows {
        ChannelRows::One => 0,
        ChannelRows::PerPicture => picture,
        ChannelRows::Step { .. } => step,
    }
}
