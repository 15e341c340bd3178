//! The tiny models of `golden/`, compiled in so that a browser has them too.

use crate::fixture::Fixture;

/// The files of a tiny model and diffusers' values for it.
#[derive(Debug, Clone, Copy)]
pub struct Tiny {
    /// Folder under `golden/`.
    pub name: &'static str,
    /// `text_encoder/config.json`
    pub text_config: &'static str,
    /// `text_encoder/model.safetensors`
    pub text: &'static [u8],
    /// `unet/config.json`
    pub unet_config: &'static str,
    /// `unet/diffusion_pytorch_model.safetensors`
    pub unet: &'static [u8],
    /// `vae/config.json`
    pub vae_config: &'static str,
    /// `vae/diffusion_pytorch_model.safetensors`
    pub vae: &'static [u8],
    text_values: &'static [u8],
    unet_8x8_values: &'static [u8],
    unet_9x7_values: &'static [u8],
    vae_values: &'static [u8],
}

impl Tiny {
    /// Expected values of the text encoder.
    #[must_use]
    pub fn text_fixture(&self) -> Fixture {
        Fixture::parse("text", self.text_values)
    }

    /// Expected values of the UNet on 8x8 latents.
    #[must_use]
    pub fn unet_fixture(&self) -> Fixture {
        Fixture::parse("unet-8x8", self.unet_8x8_values)
    }

    /// Expected values of the UNet on 9x7 latents, where levels have odd sizes.
    #[must_use]
    pub fn odd_unet_fixture(&self) -> Fixture {
        Fixture::parse("unet-9x7", self.unet_9x7_values)
    }

    /// Expected values of the decoder on 8x8 latents.
    #[must_use]
    pub fn vae_fixture(&self) -> Fixture {
        Fixture::parse("vae-8x8", self.vae_values)
    }
}

macro_rules! tiny {
    ($constant:ident, $name:literal, $doc:literal) => {
        #[doc = $doc]
        pub const $constant: Tiny = Tiny {
            name: $name,
            text_config: include_str!(concat!("golden/", $name, "/text_encoder/config.json")),
            text: include_bytes!(concat!("golden/", $name, "/text_encoder/model.safetensors")),
            unet_config: include_str!(concat!("golden/", $name, "/unet/config.json")),
            unet: include_bytes!(concat!(
                "golden/",
                $name,
                "/unet/diffusion_pytorch_model.safetensors"
            )),
            vae_config: include_str!(concat!("golden/", $name, "/vae/config.json")),
            vae: include_bytes!(concat!(
                "golden/",
                $name,
                "/vae/diffusion_pytorch_model.safetensors"
            )),
            text_values: include_bytes!(concat!("golden/models/", $name, "-text.safetensors")),
            unet_8x8_values: include_bytes!(concat!(
                "golden/models/",
                $name,
                "-unet-8x8.safetensors"
            )),
            unet_9x7_values: include_bytes!(concat!(
                "golden/models/",
                $name,
                "-unet-9x7.safetensors"
            )),
            vae_values: include_bytes!(concat!("golden/models/", $name, "-vae-8x8.safetensors")),
        };
    };
}

tiny!(
    TINY_MODEL,
    "tiny-model",
    "SD 1.x in small: epsilon, 1x1 projections, quick_gelu, old VAE attention names."
);
tiny!(
    TINY_SD2,
    "tiny-sd2",
    "SD 2.x in small: v-prediction, linear projections, gelu, heads per level."
);
tiny!(
    TINY_DEEP,
    "tiny-deep",
    "Three levels, several transformer blocks, F32 text encoder, BF16 UNet."
);
