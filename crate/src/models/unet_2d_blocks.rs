//! The UNet's blocks (diffusers `models/unets/unet_2d_blocks.py`): `DownBlock2D`/`CrossAttnDownBlock2D`,
//! `UNetMidBlock2DCrossAttn`, `UpBlock2D`/`CrossAttnUpBlock2D`.

use super::{
    resnet::{Downsample2D, ResnetBlock2D, ResnetSizes, Upsample2D},
    transformer_2d::{Transformer2D, Transformer2DSizes},
    weights::Weights,
};
use crate::{
    config::{UNetConfig, UNetLevel},
    engine::Engine,
};

/// What every block is given besides the image: the time embedding after SiLU and the text.
pub struct Conditioning<'a, E: Engine> {
    /// `[batch, 1, 1, time_channels]`, after SiLU.
    pub temb: &'a E::Tensor,
    /// `[batch, 1, 77, cross_attention_dim]`.
    pub encoder_hidden_states: &'a E::Tensor,
}

/// The resnet and transformer sizes that follow from the config at one level.
struct LevelSizes<'a> {
    config: &'a UNetConfig,
    level: &'a UNetLevel,
    time_channels: usize,
}

impl LevelSizes<'_> {
    fn resnet<E: Engine>(&self, vs: &Weights<E>, i: usize, channels_in: usize) -> ResnetBlock2D<E> {
        let sizes = ResnetSizes {
            channels_in,
            channels_out: self.level.channels,
            time_channels: Some(self.time_channels),
            groups: self.config.norm_num_groups,
            eps: self.config.norm_eps,
        };
        ResnetBlock2D::new(&vs.pp("resnets").pp(i), sizes)
    }

    fn transformer<E: Engine>(&self, vs: &Weights<E>, i: usize) -> Transformer2D<E> {
        let sizes = Transformer2DSizes {
            channels: self.level.channels,
            context_channels: self.config.cross_attention_dim,
            num_heads: self.level.num_heads,
            layers: self.level.transformer_layers,
            groups: self.config.norm_num_groups,
            use_linear_projection: self.config.use_linear_projection,
        };
        Transformer2D::new(&vs.pp("attentions").pp(i), sizes)
    }
}

/// Resnets, each with a transformer behind it where the block has cross-attention, then half the size.
pub struct DownBlock2D<E: Engine> {
    layers: Vec<(ResnetBlock2D<E>, Option<Transformer2D<E>>)>,
    downsampler: Option<Downsample2D<E>>,
}

impl<E: Engine> DownBlock2D<E> {
    /// Declares the weights of down block `index`.
    pub fn new(vs: &Weights<E>, config: &UNetConfig, index: usize, time_channels: usize) -> Self {
        let level = &config.levels[index];
        let sizes = LevelSizes {
            config,
            level,
            time_channels,
        };
        let channels_before = config.levels[index.saturating_sub(1)].channels;
        Self {
            layers: (0..level.layers)
                .map(|i| {
                    let resnet = sizes.resnet(
                        vs,
                        i,
                        if i == 0 {
                            channels_before
                        } else {
                            level.channels
                        },
                    );
                    (
                        resnet,
                        level.down_cross_attention.then(|| sizes.transformer(vs, i)),
                    )
                })
                .collect(),
            downsampler: (index + 1 < config.levels.len()).then(|| {
                Downsample2D::new(
                    &vs.pp("downsamplers.0"),
                    level.channels,
                    config.downsample_padding,
                )
            }),
        }
    }

    /// Runs the block and puts every layer's output on `skips`, for the up blocks.
    pub fn forward(
        &self,
        engine: &E,
        x: &E::Tensor,
        conditioning: &Conditioning<E>,
        skips: &mut Vec<E::Tensor>,
    ) -> E::Tensor {
        let mut hidden = x.clone();
        for (resnet, transformer) in &self.layers {
            hidden = resnet.forward(engine, &hidden, Some(conditioning.temb));
            if let Some(transformer) = transformer {
                hidden = transformer.forward(engine, &hidden, conditioning.encoder_hidden_states);
            }
            skips.push(hidden.clone());
        }
        if let Some(downsampler) = &self.downsampler {
            hidden = downsampler.forward(engine, &hidden);
            skips.push(hidden.clone());
        }
        hidden
    }
}

/// Resnet, transformer, resnet at the smallest size.
pub struct UNetMidBlock2DCrossAttn<E: Engine> {
    resnets: [ResnetBlock2D<E>; 2],
    attention: Transformer2D<E>,
}

impl<E: Engine> UNetMidBlock2DCrossAttn<E> {
    /// Declares the weights.
    pub fn new(vs: &Weights<E>, config: &UNetConfig, time_channels: usize) -> Self {
        let level = &config.levels[config.levels.len() - 1];
        let sizes = LevelSizes {
            config,
            level,
            time_channels,
        };
        Self {
            resnets: [0, 1].map(|i| sizes.resnet(vs, i, level.channels)),
            attention: sizes.transformer(vs, 0),
        }
    }

    /// Shape unchanged.
    pub fn forward(&self, engine: &E, x: &E::Tensor, conditioning: &Conditioning<E>) -> E::Tensor {
        let hidden = self.resnets[0].forward(engine, x, Some(conditioning.temb));
        let hidden = self
            .attention
            .forward(engine, &hidden, conditioning.encoder_hidden_states);
        self.resnets[1].forward(engine, &hidden, Some(conditioning.temb))
    }
}

/// One resnet more than the mirrored down block, each reading a skip beside its input, then double the size.
pub struct UpBlock2D<E: Engine> {
    layers: Vec<(ResnetBlock2D<E>, Option<Transformer2D<E>>)>,
    upsampler: Option<Upsample2D<E>>,
}

impl<E: Engine> UpBlock2D<E> {
    /// Declares the weights of the up block that mirrors down level `index`.
    pub fn new(vs: &Weights<E>, config: &UNetConfig, index: usize, time_channels: usize) -> Self {
        let level = &config.levels[index];
        let sizes = LevelSizes {
            config,
            level,
            time_channels,
        };
        let channels_below = config.levels[(index + 1).min(config.levels.len() - 1)].channels;
        let channels_above = config.levels[index.saturating_sub(1)].channels;
        let count = level.layers + 1;
        Self {
            layers: (0..count)
                .map(|i| {
                    let from_below = if i == 0 {
                        channels_below
                    } else {
                        level.channels
                    };
                    let skip = if i + 1 == count {
                        channels_above
                    } else {
                        level.channels
                    };
                    (
                        sizes.resnet(vs, i, from_below + skip),
                        level.up_cross_attention.then(|| sizes.transformer(vs, i)),
                    )
                })
                .collect(),
            upsampler: (index > 0).then(|| Upsample2D::new(&vs.pp("upsamplers.0"), level.channels)),
        }
    }

    /// Runs the block, taking one skip per layer. The upsampler's target is the size of the next skip: doubling alone
    /// would miss it by one where a level's size is odd.
    pub fn forward(
        &self,
        engine: &E,
        x: &E::Tensor,
        conditioning: &Conditioning<E>,
        skips: &mut Vec<E::Tensor>,
    ) -> E::Tensor {
        let mut hidden = x.clone();
        for (resnet, transformer) in &self.layers {
            if let Some(skip) = skips.pop() {
                hidden = engine.concat_channels(&hidden, &skip);
            }
            hidden = resnet.forward(engine, &hidden, Some(conditioning.temb));
            if let Some(transformer) = transformer {
                hidden = transformer.forward(engine, &hidden, conditioning.encoder_hidden_states);
            }
        }
        match (&self.upsampler, skips.last()) {
            (Some(upsampler), Some(skip)) => {
                let target = engine.shape(skip);
                upsampler.forward(engine, &hidden, target.height, target.width)
            }
            _ => hidden,
        }
    }
}
