//! `Transformer2DModel` of diffusers (`models/transformers/transformer_2d.py`), continuous input.

use super::{
    attention::BasicTransformerBlock,
    layers::{GroupNorm, Linear},
    weights::Weights,
};
use crate::engine::Engine;

/// Epsilon of the group norm; unlike the resnets' it is not in the config.
const GROUP_NORM_EPS: f64 = 1e-6;

/// Transformer blocks over the positions of an image.
pub struct Transformer2D<E: Engine> {
    norm: GroupNorm<E>,
    proj_in: Linear<E>,
    transformer_blocks: Vec<BasicTransformerBlock<E>>,
    proj_out: Linear<E>,
}

/// The numbers of a [`Transformer2D`].
#[derive(Debug, Clone, Copy)]
pub struct Transformer2DSizes {
    /// Channels of the image.
    pub channels: usize,
    /// Width of the text embeddings.
    pub context_channels: usize,
    /// Attention heads.
    pub num_heads: usize,
    /// Transformer blocks.
    pub layers: usize,
    /// Groups of the norm.
    pub groups: usize,
    /// Whether the projections are stored as linear layers or as 1x1 convolutions. Channels-last the two are one operation.
    pub use_linear_projection: bool,
}

impl<E: Engine> Transformer2D<E> {
    /// Declares the weights.
    pub fn new(vs: &Weights<E>, sizes: Transformer2DSizes) -> Self {
        let Transformer2DSizes {
            channels,
            context_channels,
            num_heads,
            layers,
            groups,
            use_linear_projection,
        } = sizes;
        let projection = |name| {
            let vs = vs.pp(name);
            if use_linear_projection {
                Linear::new(&vs, channels, channels)
            } else {
                Linear::pointwise_conv(&vs, channels, channels)
            }
        };
        Self {
            norm: GroupNorm::new(&vs.pp("norm"), groups, channels, GROUP_NORM_EPS),
            proj_in: projection("proj_in"),
            transformer_blocks: (0..layers)
                .map(|i| {
                    BasicTransformerBlock::new(
                        &vs.pp("transformer_blocks").pp(i),
                        channels,
                        context_channels,
                        num_heads,
                    )
                })
                .collect(),
            proj_out: projection("proj_out"),
        }
    }

    /// `x` `[batch, h, w, channels]`, `context` `[batch, 1, 77, context_channels]`; shape of `x`.
    pub fn forward(&self, engine: &E, x: &E::Tensor, context: &E::Tensor) -> E::Tensor {
        let shape = engine.shape(x);
        let mut hidden = self
            .proj_in
            .forward(engine, &engine.tokens(&self.norm.forward(engine, x)));
        for block in &self.transformer_blocks {
            hidden = block.forward(engine, &hidden, context);
        }
        let hidden = engine.image(
            &self.proj_out.forward(engine, &hidden),
            shape.height,
            shape.width,
        );
        engine.add(&hidden, x)
    }
}
