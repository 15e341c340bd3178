//! `ResnetBlock2D`, `Downsample2D` and `Upsample2D` of diffusers (`models/resnet.py`, `downsampling.py`, `upsampling.py`).

use super::{
    layers::{Conv2d, GroupNorm, Linear},
    weights::Weights,
};
use crate::engine::Engine;

/// Two normed 3x3 convolutions beside a shortcut; the timestep enters between them.
pub struct ResnetBlock2D<E: Engine> {
    norm1: GroupNorm<E>,
    conv1: Conv2d<E>,
    time_emb_proj: Option<Linear<E>>,
    norm2: GroupNorm<E>,
    conv2: Conv2d<E>,
    conv_shortcut: Option<Linear<E>>,
}

/// The numbers of a [`ResnetBlock2D`].
#[derive(Debug, Clone, Copy)]
pub struct ResnetSizes {
    /// Channels of the input.
    pub channels_in: usize,
    /// Channels of the output.
    pub channels_out: usize,
    /// Width of the time embedding; none in the VAE.
    pub time_channels: Option<usize>,
    /// Groups of both norms.
    pub groups: usize,
    /// Epsilon of both norms.
    pub eps: f64,
}

impl<E: Engine> ResnetBlock2D<E> {
    /// Declares the weights; there is a `conv_shortcut` where the channels change.
    pub fn new(vs: &Weights<E>, sizes: ResnetSizes) -> Self {
        let ResnetSizes {
            channels_in,
            channels_out,
            time_channels,
            groups,
            eps,
        } = sizes;
        Self {
            norm1: GroupNorm::new(&vs.pp("norm1"), groups, channels_in, eps),
            conv1: Conv2d::new(&vs.pp("conv1"), channels_in, channels_out),
            time_emb_proj: time_channels
                .map(|width| Linear::new(&vs.pp("time_emb_proj"), width, channels_out)),
            norm2: GroupNorm::new(&vs.pp("norm2"), groups, channels_out, eps),
            conv2: Conv2d::new(&vs.pp("conv2"), channels_out, channels_out),
            conv_shortcut: (channels_in != channels_out).then(|| {
                Linear::pointwise_conv(&vs.pp("conv_shortcut"), channels_in, channels_out)
            }),
        }
    }

    /// `x` `[batch, h, w, channels_in]`, `temb` `[batch, 1, 1, time_channels]` after its SiLU; `[batch, h, w, channels_out]`.
    pub fn forward(&self, engine: &E, x: &E::Tensor, temb: Option<&E::Tensor>) -> E::Tensor {
        let mut hidden = self
            .conv1
            .forward(engine, &self.norm1.forward_silu(engine, x));
        if let (Some(projection), Some(temb)) = (&self.time_emb_proj, temb) {
            hidden = engine.add_channels(&hidden, &projection.forward(engine, temb));
        }
        let hidden = self
            .conv2
            .forward(engine, &self.norm2.forward_silu(engine, &hidden));
        match &self.conv_shortcut {
            Some(shortcut) => engine.add(&shortcut.forward(engine, x), &hidden),
            None => engine.add(x, &hidden),
        }
    }
}

/// A stride-2 convolution: half the size, rounded up.
pub struct Downsample2D<E: Engine> {
    conv: Conv2d<E>,
}

impl<E: Engine> Downsample2D<E> {
    /// Declares `conv`.
    pub fn new(vs: &Weights<E>, channels: usize, padding: usize) -> Self {
        Self {
            conv: Conv2d::with(&vs.pp("conv"), channels, channels, 2, padding),
        }
    }

    /// `[batch, h, w, c]` to `[batch, ceil(h/2), ceil(w/2), c]`.
    pub fn forward(&self, engine: &E, x: &E::Tensor) -> E::Tensor {
        self.conv.forward(engine, x)
    }
}

/// Nearest-neighbour doubling to a given size, then a convolution.
pub struct Upsample2D<E: Engine> {
    conv: Conv2d<E>,
}

impl<E: Engine> Upsample2D<E> {
    /// Declares `conv`.
    pub fn new(vs: &Weights<E>, channels: usize) -> Self {
        Self {
            conv: Conv2d::new(&vs.pp("conv"), channels, channels),
        }
    }

    /// `[batch, h, w, c]` to `[batch, height, width, c]`; each side is the double, or one less.
    pub fn forward(&self, engine: &E, x: &E::Tensor, height: usize, width: usize) -> E::Tensor {
        self.conv
            .forward(engine, &engine.upsample_nearest2d(x, height, width))
    }
}
