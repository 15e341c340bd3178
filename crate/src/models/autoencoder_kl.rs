//! The decoder of `AutoencoderKL` (diffusers `models/autoencoders/autoencoder_kl.py`, `vae.py`): latents to a picture.

use super::{
    attention::Attention,
    layers::{Conv2d, GroupNorm, Linear},
    resnet::{ResnetBlock2D, ResnetSizes, Upsample2D},
    unet_2d_condition::Tap,
    weights::Weights,
};
use crate::{config::VaeConfig, engine::Engine};

/// Epsilon of every group norm of the VAE; not in the config.
const GROUP_NORM_EPS: f64 = 1e-6;

/// `post_quant_conv` and `decoder`.
pub struct AutoencoderKlDecoder<E: Engine> {
    post_quant_conv: Option<Linear<E>>,
    conv_in: Conv2d<E>,
    mid_block: MidBlock<E>,
    up_blocks: Vec<UpDecoderBlock2D<E>>,
    conv_norm_out: GroupNorm<E>,
    conv_out: Conv2d<E>,
}

struct MidBlock<E: Engine> {
    resnets: [ResnetBlock2D<E>; 2],
    attention: Option<(GroupNorm<E>, Attention<E>)>,
}

struct UpDecoderBlock2D<E: Engine> {
    resnets: Vec<ResnetBlock2D<E>>,
    upsampler: Option<Upsample2D<E>>,
}

impl<E: Engine> AutoencoderKlDecoder<E> {
    /// Declares the weights.
    pub fn new(vs: &Weights<E>, config: &VaeConfig) -> Self {
        let decoder = vs.pp("decoder");
        let groups = config.norm_num_groups;
        let resnet = |vs: &Weights<E>, i, channels_in, channels_out| {
            ResnetBlock2D::new(
                &vs.pp("resnets").pp(i),
                ResnetSizes {
                    channels_in,
                    channels_out,
                    time_channels: None,
                    groups,
                    eps: GROUP_NORM_EPS,
                },
            )
        };
        let channels: Vec<usize> = config.block_out_channels.iter().rev().copied().collect();
        let (top, bottom) = (channels[0], channels[channels.len() - 1]);
        let mid = decoder.pp("mid_block");
        let attention = mid.pp("attentions.0");
        Self {
            post_quant_conv: config.use_post_quant_conv.then(|| {
                Linear::pointwise_conv(
                    &vs.pp("post_quant_conv"),
                    config.latent_channels,
                    config.latent_channels,
                )
            }),
            conv_in: Conv2d::new(&decoder.pp("conv_in"), config.latent_channels, top),
            mid_block: MidBlock {
                resnets: [0, 1].map(|i| resnet(&mid, i, top, top)),
                attention: config.mid_block_add_attention.then(|| {
                    (
                        GroupNorm::new(&attention.pp("group_norm"), groups, top, GROUP_NORM_EPS),
                        Attention::single_head(&attention, top),
                    )
                }),
            },
            up_blocks: (0..channels.len())
                .map(|i| {
                    let block = decoder.pp("up_blocks").pp(i);
                    let before = channels[i.saturating_sub(1)];
                    UpDecoderBlock2D {
                        resnets: (0..=config.layers_per_block)
                            .map(|j| {
                                resnet(
                                    &block,
                                    j,
                                    if j == 0 { before } else { channels[i] },
                                    channels[i],
                                )
                            })
                            .collect(),
                        upsampler: (i + 1 < channels.len())
                            .then(|| Upsample2D::new(&block.pp("upsamplers.0"), channels[i])),
                    }
                })
                .collect(),
            conv_norm_out: GroupNorm::new(
                &decoder.pp("conv_norm_out"),
                groups,
                bottom,
                GROUP_NORM_EPS,
            ),
            conv_out: Conv2d::new(&decoder.pp("conv_out"), bottom, config.out_channels),
        }
    }

    /// `latents` `[batch, h, w, latent_channels]`, already divided by the scaling factor; a picture in -1..1,
    /// `[batch, h * f, w * f, 3]`.
    pub fn forward(&self, engine: &E, latents: &E::Tensor) -> E::Tensor {
        self.forward_tapped(engine, latents, &mut |_, _| {})
    }

    /// [`Self::forward`], calling `tap` with the output of each block by its checkpoint name.
    pub fn forward_tapped(
        &self,
        engine: &E,
        latents: &E::Tensor,
        tap: Tap<E::Tensor>,
    ) -> E::Tensor {
        let latents = match &self.post_quant_conv {
            Some(conv) => conv.forward(engine, latents),
            None => latents.clone(),
        };
        let mut hidden = self
            .mid_block
            .forward(engine, &self.conv_in.forward(engine, &latents));
        tap("decoder.mid_block", &hidden);
        for (i, block) in self.up_blocks.iter().enumerate() {
            hidden = block.forward(engine, &hidden);
            tap(&format!("decoder.up_blocks.{i}"), &hidden);
        }
        self.conv_out
            .forward(engine, &self.conv_norm_out.forward_silu(engine, &hidden))
    }
}

impl<E: Engine> MidBlock<E> {
    fn forward(&self, engine: &E, x: &E::Tensor) -> E::Tensor {
        let mut hidden = self.resnets[0].forward(engine, x, None);
        if let Some((norm, attention)) = &self.attention {
            let shape = engine.shape(&hidden);
            let normed = engine.tokens(&norm.forward(engine, &hidden));
            let attended = attention.forward(engine, &normed, &normed);
            hidden = engine.add(&engine.image(&attended, shape.height, shape.width), &hidden);
        }
        self.resnets[1].forward(engine, &hidden, None)
    }
}

impl<E: Engine> UpDecoderBlock2D<E> {
    fn forward(&self, engine: &E, x: &E::Tensor) -> E::Tensor {
        let mut hidden = x.clone();
        for resnet in &self.resnets {
            hidden = resnet.forward(engine, &hidden, None);
        }
        match &self.upsampler {
            Some(upsampler) => {
                let shape = engine.shape(&hidden);
                upsampler.forward(engine, &hidden, 2 * shape.height, 2 * shape.width)
            }
            None => hidden,
        }
    }
}
