//! `CLIPTextModel` of transformers (`models/clip/modeling_clip.py`): token ids to `last_hidden_state`.

use super::{
    layers::{LayerNorm, Linear},
    weights::Weights,
};
use crate::{
    config::{Activation, ClipTextConfig},
    engine::{AttentionMask, Engine, WeightRole},
};

/// The text encoder.
pub struct ClipTextModel<E: Engine> {
    token_embedding: E::Weight,
    position_embedding: E::Weight,
    layers: Vec<EncoderLayer<E>>,
    final_layer_norm: LayerNorm<E>,
}

struct EncoderLayer<E: Engine> {
    layer_norm1: LayerNorm<E>,
    q_proj: Linear<E>,
    k_proj: Linear<E>,
    v_proj: Linear<E>,
    out_proj: Linear<E>,
    layer_norm2: LayerNorm<E>,
    fc1: Linear<E>,
    fc2: Linear<E>,
    num_heads: usize,
    activation: Activation,
}

impl<E: Engine> ClipTextModel<E> {
    /// Declares the weights.
    pub fn new(vs: &Weights<E>, config: &ClipTextConfig) -> Self {
        let width = config.hidden_size;
        let embeddings = vs.pp("embeddings");
        Self {
            token_embedding: embeddings.declare(
                "token_embedding.weight",
                WeightRole::Embedding,
                &[config.vocab_size, width],
            ),
            position_embedding: embeddings.declare(
                "position_embedding.weight",
                WeightRole::Embedding,
                &[config.max_position_embeddings, width],
            ),
            layers: (0..config.num_hidden_layers)
                .map(|i| EncoderLayer::new(&vs.pp("encoder.layers").pp(i), config))
                .collect(),
            final_layer_norm: LayerNorm::new(
                &vs.pp("final_layer_norm"),
                width,
                config.layer_norm_eps,
            ),
        }
    }

    /// `input_ids` `[batch, 77]` to `[batch, 1, 77, hidden_size]`.
    pub fn forward(&self, engine: &E, input_ids: &E::Ids) -> E::Tensor {
        let mut hidden = engine.embedding(&self.token_embedding, input_ids);
        hidden = engine.add_positions(&hidden, &self.position_embedding);
        for layer in &self.layers {
            hidden = layer.forward(engine, &hidden);
        }
        self.final_layer_norm.forward(engine, &hidden)
    }
}

impl<E: Engine> EncoderLayer<E> {
    fn new(vs: &Weights<E>, config: &ClipTextConfig) -> Self {
        let width = config.hidden_size;
        let attention = vs.pp("self_attn");
        let projection = |name| Linear::new(&attention.pp(name), width, width);
        Self {
            layer_norm1: LayerNorm::new(&vs.pp("layer_norm1"), width, config.layer_norm_eps),
            q_proj: projection("q_proj"),
            k_proj: projection("k_proj"),
            v_proj: projection("v_proj"),
            out_proj: projection("out_proj"),
            layer_norm2: LayerNorm::new(&vs.pp("layer_norm2"), width, config.layer_norm_eps),
            fc1: Linear::new(&vs.pp("mlp.fc1"), width, config.intermediate_size),
            fc2: Linear::new(&vs.pp("mlp.fc2"), config.intermediate_size, width),
            num_heads: config.num_attention_heads,
            activation: config.hidden_act,
        }
    }

    fn forward(&self, engine: &E, x: &E::Tensor) -> E::Tensor {
        let normed = self.layer_norm1.forward(engine, x);
        let [q, k, v] = [&self.q_proj, &self.k_proj, &self.v_proj]
            .map(|projection| projection.forward(engine, &normed));
        let attended = engine.attention(&q, &k, &v, self.num_heads, AttentionMask::Causal);
        let x = engine.add(x, &self.out_proj.forward(engine, &attended));
        let inner = self
            .fc1
            .forward(engine, &self.layer_norm2.forward(engine, &x));
        let inner = match self.activation {
            Activation::QuickGelu => engine.quick_gelu(&inner),
            Activation::Gelu => engine.gelu(&inner),
        };
        engine.add(&x, &self.fc2.forward(engine, &inner))
    }
}
