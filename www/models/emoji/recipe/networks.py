"""The three networks of the model: Stable Diffusion 1.x's architecture in small."""

import torch
from diffusers import AutoencoderKL, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModel

from data import PICTURE_SIZE_PX

VOCABULARY_SIZE = 8192
HIDDEN_SIZE = 192


def build_vae():
    """An untrained AutoencoderKL: 8 times smaller sides, 4 latent channels."""
    return AutoencoderKL(
        in_channels=3,
        out_channels=3,
        latent_channels=4,
        sample_size=PICTURE_SIZE_PX,
        layers_per_block=1,
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=(24, 48, 96, 96),
        norm_num_groups=8,
        scaling_factor=1.0,
    )


def build_text_encoder_and_unet():
    """The untrained text encoder and UNet, with the same random weights every time."""
    torch.manual_seed(0)
    text_encoder = CLIPTextModel(
        CLIPTextConfig(
            vocab_size=VOCABULARY_SIZE,
            hidden_size=HIDDEN_SIZE,
            intermediate_size=4 * HIDDEN_SIZE,
            num_hidden_layers=3,
            num_attention_heads=6,
            max_position_embeddings=77,
            hidden_act="quick_gelu",
            projection_dim=HIDDEN_SIZE,
            bos_token_id=VOCABULARY_SIZE - 2,
            eos_token_id=VOCABULARY_SIZE - 1,
            pad_token_id=VOCABULARY_SIZE - 1,
        )
    )
    unet = UNet2DConditionModel(
        sample_size=PICTURE_SIZE_PX // 8,
        in_channels=4,
        out_channels=4,
        block_out_channels=(64, 128, 192),
        layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=HIDDEN_SIZE,
        # diffusers reads this as the number of heads (its documented misnomer)
        attention_head_dim=4,
        norm_num_groups=32,
    )
    return text_encoder, unet
