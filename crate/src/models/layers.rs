//! The layers that hold weights: `Linear`, `Conv2d`, `GroupNorm`, `LayerNorm`, with their checkpoint leaves.

use super::weights::Weights;
use crate::engine::{Engine, WeightRole};

/// `y = x W^T + b` over the channels; `weight` `[out, in]`, `bias` `[out]`.
pub struct Linear<E: Engine> {
    weight: E::Weight,
    bias: Option<E::Weight>,
}

impl<E: Engine> Linear<E> {
    /// Declares `weight` and `bias`.
    pub fn new(vs: &Weights<E>, channels_in: usize, channels_out: usize) -> Self {
        Self {
            bias: Some(vs.declare("bias", WeightRole::Vector, &[channels_out])),
            ..Self::without_bias(vs, channels_in, channels_out)
        }
    }

    /// Declares `weight` alone.
    pub fn without_bias(vs: &Weights<E>, channels_in: usize, channels_out: usize) -> Self {
        Self {
            weight: vs.declare("weight", WeightRole::Linear, &[channels_out, channels_in]),
            bias: None,
        }
    }

    /// A 1x1 convolution, `weight` `[out, in, 1, 1]`: channels-last it is a linear layer.
    pub fn pointwise_conv(vs: &Weights<E>, channels_in: usize, channels_out: usize) -> Self {
        Self {
            weight: vs.declare(
                "weight",
                WeightRole::Linear,
                &[channels_out, channels_in, 1, 1],
            ),
            bias: Some(vs.declare("bias", WeightRole::Vector, &[channels_out])),
        }
    }

    /// `[batch, h, w, in]` to `[batch, h, w, out]`.
    pub fn forward(&self, engine: &E, x: &E::Tensor) -> E::Tensor {
        engine.linear(x, &self.weight, self.bias.as_ref())
    }
}

/// Square convolution with bias; `weight` `[out, in, k, k]`.
pub struct Conv2d<E: Engine> {
    weight: E::Weight,
    bias: E::Weight,
    stride: usize,
    padding: usize,
}

impl<E: Engine> Conv2d<E> {
    /// A 3x3 convolution that keeps the size.
    pub fn new(vs: &Weights<E>, channels_in: usize, channels_out: usize) -> Self {
        Self::with(vs, channels_in, channels_out, 1, 1)
    }

    /// A 3x3 convolution with `stride` and `padding`.
    pub fn with(
        vs: &Weights<E>,
        channels_in: usize,
        channels_out: usize,
        stride: usize,
        padding: usize,
    ) -> Self {
        Self {
            weight: vs.declare(
                "weight",
                WeightRole::Conv2d,
                &[channels_out, channels_in, 3, 3],
            ),
            bias: vs.declare("bias", WeightRole::Vector, &[channels_out]),
            stride,
            padding,
        }
    }

    /// `[batch, h, w, in]` to `[batch, h', w', out]`.
    pub fn forward(&self, engine: &E, x: &E::Tensor) -> E::Tensor {
        engine.conv2d(x, &self.weight, &self.bias, self.stride, self.padding)
    }
}

/// A norm's scale and shift, `[channels]` each.
struct ScaleShift<E: Engine> {
    weight: E::Weight,
    bias: E::Weight,
}

impl<E: Engine> ScaleShift<E> {
    fn new(vs: &Weights<E>, channels: usize) -> Self {
        Self {
            weight: vs.declare("weight", WeightRole::Vector, &[channels]),
            bias: vs.declare("bias", WeightRole::Vector, &[channels]),
        }
    }
}

/// Group norm over positions and the channels of each group.
pub struct GroupNorm<E: Engine> {
    affine: ScaleShift<E>,
    groups: usize,
    eps: f64,
}

impl<E: Engine> GroupNorm<E> {
    /// Declares scale and shift.
    pub fn new(vs: &Weights<E>, groups: usize, channels: usize, eps: f64) -> Self {
        Self {
            affine: ScaleShift::new(vs, channels),
            groups,
            eps,
        }
    }

    /// Shape unchanged.
    pub fn forward(&self, engine: &E, x: &E::Tensor) -> E::Tensor {
        engine.group_norm(
            x,
            &self.affine.weight,
            &self.affine.bias,
            self.groups,
            self.eps,
        )
    }

    /// The norm, then SiLU: the head of every resnet half.
    pub fn forward_silu(&self, engine: &E, x: &E::Tensor) -> E::Tensor {
        engine.silu(&self.forward(engine, x))
    }
}

/// Layer norm over the channels.
pub struct LayerNorm<E: Engine> {
    affine: ScaleShift<E>,
    eps: f64,
}

impl<E: Engine> LayerNorm<E> {
    /// Declares scale and shift.
    pub fn new(vs: &Weights<E>, channels: usize, eps: f64) -> Self {
        Self {
            affine: ScaleShift::new(vs, channels),
            eps,
        }
    }

    /// Shape unchanged.
    pub fn forward(&self, engine: &E, x: &E::Tensor) -> E::Tensor {
        engine.layer_norm(x, &self.affine.weight, &self.affine.bias, self.eps)
    }
}
