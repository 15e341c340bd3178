//! `UNet2DConditionModel` of diffusers (`models/unets/unet_2d_condition.py`): noisy latents, timestep and text to a prediction.

use super::{
    embeddings::{TimestepEmbedding, timestep_sinusoid},
    layers::{Conv2d, GroupNorm},
    unet_2d_blocks::{Conditioning, DownBlock2D, UNetMidBlock2DCrossAttn, UpBlock2D},
    weights::Weights,
};
use crate::{config::UNetConfig, engine::Engine};

/// The sinusoid of `timestep` for the network of `config`, one value for each channel of its first level.
#[must_use]
pub fn unet_sinusoid(config: &UNetConfig, timestep: f32) -> Vec<f32> {
    timestep_sinusoid(
        timestep,
        config.levels[0].channels,
        config.flip_sin_to_cos,
        config.freq_shift,
    )
}

/// The denoising network.
pub struct UNet2DConditionModel<E: Engine> {
    config: UNetConfig,
    conv_in: Conv2d<E>,
    time_embedding: TimestepEmbedding<E>,
    down_blocks: Vec<DownBlock2D<E>>,
    mid_block: UNetMidBlock2DCrossAttn<E>,
    up_blocks: Vec<UpBlock2D<E>>,
    conv_norm_out: GroupNorm<E>,
    conv_out: Conv2d<E>,
}

/// The output of a named block, for tests and for finding where values go wrong.
pub type Tap<'t, T> = &'t mut dyn FnMut(&str, &T);

impl<E: Engine> UNet2DConditionModel<E> {
    /// Declares the weights.
    pub fn new(vs: &Weights<E>, config: &UNetConfig) -> Self {
        let first = config.levels[0].channels;
        let time_channels = 4 * first;
        let count = config.levels.len();
        Self {
            conv_in: Conv2d::new(&vs.pp("conv_in"), config.in_channels, first),
            time_embedding: TimestepEmbedding::new(&vs.pp("time_embedding"), first, time_channels),
            down_blocks: (0..count)
                .map(|i| DownBlock2D::new(&vs.pp("down_blocks").pp(i), config, i, time_channels))
                .collect(),
            mid_block: UNetMidBlock2DCrossAttn::new(&vs.pp("mid_block"), config, time_channels),
            up_blocks: (0..count)
                .map(|i| {
                    UpBlock2D::new(
                        &vs.pp("up_blocks").pp(i),
                        config,
                        count - 1 - i,
                        time_channels,
                    )
                })
                .collect(),
            conv_norm_out: GroupNorm::new(
                &vs.pp("conv_norm_out"),
                config.norm_num_groups,
                first,
                config.norm_eps,
            ),
            conv_out: Conv2d::new(&vs.pp("conv_out"), first, config.out_channels),
            config: config.clone(),
        }
    }

    /// The sinusoid of `timestep`, to be given to [`Self::forward`] as `[1, 1, 1, n]`.
    #[must_use]
    pub fn timestep_sinusoid(&self, timestep: f32) -> Vec<f32> {
        unet_sinusoid(&self.config, timestep)
    }

    /// `sample` `[batch, h, w, in_channels]`, `sinusoid` `[1, 1, 1, n]` of the timestep,
    /// `encoder_hidden_states` `[batch, 1, 77, cross_attention_dim]`; `[batch, h, w, out_channels]`.
    pub fn forward(
        &self,
        engine: &E,
        sample: &E::Tensor,
        sinusoid: &E::Tensor,
        encoder_hidden_states: &E::Tensor,
    ) -> E::Tensor {
        self.forward_tapped(
            engine,
            sample,
            sinusoid,
            encoder_hidden_states,
            &mut |_, _| {},
        )
    }

    /// [`Self::forward`], calling `tap` with the output of each block by its checkpoint name.
    pub fn forward_tapped(
        &self,
        engine: &E,
        sample: &E::Tensor,
        sinusoid: &E::Tensor,
        encoder_hidden_states: &E::Tensor,
        tap: Tap<E::Tensor>,
    ) -> E::Tensor {
        let time = self.time_embedding.forward(engine, sinusoid);
        tap("time_embedding", &time);
        // Every resnet begins its time projection with the same SiLU.
        let temb = engine.silu(&time);
        let conditioning = Conditioning {
            temb: &temb,
            encoder_hidden_states,
        };

        let mut hidden = self.conv_in.forward(engine, sample);
        tap("conv_in", &hidden);
        let mut skips = vec![hidden.clone()];
        for (i, block) in self.down_blocks.iter().enumerate() {
            hidden = block.forward(engine, &hidden, &conditioning, &mut skips);
            tap(&format!("down_blocks.{i}"), &hidden);
        }
        hidden = self.mid_block.forward(engine, &hidden, &conditioning);
        tap("mid_block", &hidden);
        for (i, block) in self.up_blocks.iter().enumerate() {
            hidden = block.forward(engine, &hidden, &conditioning, &mut skips);
            tap(&format!("up_blocks.{i}"), &hidden);
        }
        self.conv_out
            .forward(engine, &self.conv_norm_out.forward_silu(engine, &hidden))
    }
}
