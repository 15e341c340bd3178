//! `Attention`, `FeedForward` and `BasicTransformerBlock` of diffusers (`models/attention.py`, `models/attention_processor.py`).

use super::{
    layers::{LayerNorm, Linear},
    weights::Weights,
};
use crate::engine::{AttentionMask, Engine};

/// Epsilon of every layer norm in a transformer block.
const LAYER_NORM_EPS: f64 = 1e-5;

/// Multi-head attention; heads are slices of the channels.
pub struct Attention<E: Engine> {
    to_q: Linear<E>,
    to_k: Linear<E>,
    to_v: Linear<E>,
    to_out: Linear<E>,
    num_heads: usize,
}

impl<E: Engine> Attention<E> {
    /// Queries from `channels`, keys and values from `context_channels`; no bias but in `to_out.0`.
    pub fn new(
        vs: &Weights<E>,
        channels: usize,
        context_channels: usize,
        num_heads: usize,
    ) -> Self {
        Self {
            to_q: Linear::without_bias(&vs.pp("to_q"), channels, channels),
            to_k: Linear::without_bias(&vs.pp("to_k"), context_channels, channels),
            to_v: Linear::without_bias(&vs.pp("to_v"), context_channels, channels),
            to_out: Linear::new(&vs.pp("to_out.0"), channels, channels),
            num_heads,
        }
    }

    /// One head over all channels, with bias everywhere: the VAE's.
    pub fn single_head(vs: &Weights<E>, channels: usize) -> Self {
        let linear = |name| Linear::new(&vs.pp(name), channels, channels);
        Self {
            to_q: linear("to_q"),
            to_k: linear("to_k"),
            to_v: linear("to_v"),
            to_out: linear("to_out.0"),
            num_heads: 1,
        }
    }

    /// `x` `[batch, 1, tokens, channels]`, `context` `[batch, 1, keys, context_channels]`; shape of `x`.
    pub fn forward(&self, engine: &E, x: &E::Tensor, context: &E::Tensor) -> E::Tensor {
        let q = self.to_q.forward(engine, x);
        let k = self.to_k.forward(engine, context);
        let v = self.to_v.forward(engine, context);
        self.to_out.forward(
            engine,
            &engine.attention(&q, &k, &v, self.num_heads, AttentionMask::None),
        )
    }
}

/// Self-attention, cross-attention and GEGLU MLP, each after a layer norm and added to its input.
pub struct BasicTransformerBlock<E: Engine> {
    norm1: LayerNorm<E>,
    attn1: Attention<E>,
    norm2: LayerNorm<E>,
    attn2: Attention<E>,
    norm3: LayerNorm<E>,
    ff_in: Linear<E>,
    ff_out: Linear<E>,
}

impl<E: Engine> BasicTransformerBlock<E> {
    /// Declares the block's weights. The MLP is four times as wide as the stream.
    pub fn new(
        vs: &Weights<E>,
        channels: usize,
        context_channels: usize,
        num_heads: usize,
    ) -> Self {
        let inner = 4 * channels;
        Self {
            norm1: LayerNorm::new(&vs.pp("norm1"), channels, LAYER_NORM_EPS),
            attn1: Attention::new(&vs.pp("attn1"), channels, channels, num_heads),
            norm2: LayerNorm::new(&vs.pp("norm2"), channels, LAYER_NORM_EPS),
            attn2: Attention::new(&vs.pp("attn2"), channels, context_channels, num_heads),
            norm3: LayerNorm::new(&vs.pp("norm3"), channels, LAYER_NORM_EPS),
            ff_in: Linear::new(&vs.pp("ff.net.0.proj"), channels, 2 * inner),
            ff_out: Linear::new(&vs.pp("ff.net.2"), inner, channels),
        }
    }

    /// `x` `[batch, 1, tokens, channels]`, `context` `[batch, 1, 77, context_channels]`; shape of `x`.
    pub fn forward(&self, engine: &E, x: &E::Tensor, context: &E::Tensor) -> E::Tensor {
        let normed = self.norm1.forward(engine, x);
        let x = engine.add(&self.attn1.forward(engine, &normed, &normed), x);
        let x = engine.add(
            &self
                .attn2
                .forward(engine, &self.norm2.forward(engine, &x), context),
            &x,
        );
        let hidden = engine.geglu(&self.ff_in.forward(engine, &self.norm3.forward(engine, &x)));
        engine.add(&self.ff_out.forward(engine, &hidden), &x)
    }
}
