"""What the three tiny models of `models.py` are: the numbers of their config files and how their weights are stored."""

from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Tiny:
    """One model: the numbers of its config files, how its weights are stored, and what is computed with it."""

    name: str
    text_encoder: dict
    unet: dict
    vae: dict
    scheduler: dict
    """What differs between the models in scheduler_config.json. Stock files leave `timestep_spacing` out: then each scheduler
    takes its own default, which is "leading" for PNDM and DDIM but "linspace" for Euler."""
    text_dtype: torch.dtype
    unet_dtype: torch.dtype
    text_keys: Callable[[dict], dict]
    vae_keys: Callable[[dict], dict]
    unet_sizes: tuple[tuple[int, int], ...]
    """Latent sizes (height, width) of the UNet fixtures; the odd ones need `upsample_size`."""
    image_px: tuple[int, int]
    """Height and width of the whole-pipeline fixtures."""
    has_tokenizer: bool


def clip(**numbers) -> dict:
    return dict(attention_dropout=0.0, layer_norm_eps=1e-5, max_position_embeddings=77, **numbers)


def with_prefix_and_position_ids(weights: dict) -> dict:
    """As in every stock SD 1.x file: the prefix `text_model.` (transformers 5 no longer writes it) and an int64 tensor
    that belongs to no parameter."""
    weights = {f"text_model.{key.removeprefix('text_model.')}": value for key, value in weights.items()}
    return {**weights, "text_model.embeddings.position_ids": torch.arange(77)[None]}


def with_prefix(weights: dict) -> dict:
    return {f"text_model.{key.removeprefix('text_model.')}": value for key, value in weights.items()}


def without_prefix(weights: dict) -> dict:
    return {key.removeprefix("text_model."): value for key, value in weights.items()}


def old_vae_attention(weights: dict) -> dict:
    """The names that SD 1.x files on the hub still give the attention of the VAE's middle block."""
    old = {".to_q.": ".query.", ".to_k.": ".key.", ".to_v.": ".value.", ".to_out.0.": ".proj_attn."}
    renamed = {}
    for key, value in weights.items():
        for new_name, old_name in old.items():
            key = key.replace(new_name, old_name)
        renamed[key] = value
    return renamed


def new_vae_attention(weights: dict) -> dict:
    return weights


MODELS = (
    Tiny(
        name="tiny-model",
        # intermediate_size is odd on purpose (as in the tiny pipelines of diffusers' tests): rows of float16 weights then
        # do not start on 4 bytes.
        text_encoder=clip(
            vocab_size=49408,
            hidden_size=32,
            intermediate_size=37,
            num_attention_heads=4,
            num_hidden_layers=5,
            projection_dim=32,
            hidden_act="quick_gelu",
            bos_token_id=0,
            eos_token_id=2,
            pad_token_id=1,
        ),
        unet=dict(
            block_out_channels=[32, 64],
            layers_per_block=2,
            sample_size=32,
            down_block_types=["DownBlock2D", "CrossAttnDownBlock2D"],
            up_block_types=["CrossAttnUpBlock2D", "UpBlock2D"],
            cross_attention_dim=32,
            attention_head_dim=8,
            norm_num_groups=32,
        ),
        vae=dict(
            block_out_channels=[32, 64],
            down_block_types=["DownEncoderBlock2D"] * 2,
            up_block_types=["UpDecoderBlock2D"] * 2,
            latent_channels=4,
            norm_num_groups=32,
            layers_per_block=1,
            sample_size=64,
            scaling_factor=0.18215,
        ),
        scheduler=dict(prediction_type="epsilon"),
        text_dtype=torch.float16,
        unet_dtype=torch.float16,
        text_keys=with_prefix_and_position_ids,
        vae_keys=old_vae_attention,
        unet_sizes=((8, 8), (9, 7)),
        image_px=(64, 64),
        has_tokenizer=True,
    ),
    Tiny(
        # What SD 2.x changes: linear projections around the attention, heads per level, exact gelu, v-prediction.
        # Cross-attention on both levels, one layer a block, a text width that is no channel count of the UNet.
        name="tiny-sd2",
        text_encoder=clip(
            vocab_size=1000,
            hidden_size=24,
            intermediate_size=96,
            num_attention_heads=3,
            num_hidden_layers=2,
            projection_dim=24,
            hidden_act="gelu",
            bos_token_id=998,
            eos_token_id=999,
            pad_token_id=0,
        ),
        unet=dict(
            block_out_channels=[16, 32],
            layers_per_block=1,
            sample_size=16,
            down_block_types=["CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
            up_block_types=["CrossAttnUpBlock2D", "CrossAttnUpBlock2D"],
            cross_attention_dim=24,
            attention_head_dim=[2, 4],
            norm_num_groups=8,
            use_linear_projection=True,
        ),
        vae=dict(
            block_out_channels=[16, 32],
            down_block_types=["DownEncoderBlock2D"] * 2,
            up_block_types=["UpDecoderBlock2D"] * 2,
            latent_channels=4,
            norm_num_groups=8,
            layers_per_block=2,
            sample_size=32,
            scaling_factor=0.18215,
        ),
        scheduler=dict(prediction_type="v_prediction"),
        text_dtype=torch.float16,
        unet_dtype=torch.float16,
        text_keys=without_prefix,
        vae_keys=new_vae_attention,
        unet_sizes=((8, 8), (9, 7)),
        image_px=(32, 48),
        has_tokenizer=False,
    ),
    Tiny(
        # Three levels of which the last has no attention, several transformer layers on one level (as SDXL has), an
        # autoencoder of factor 8 (so that 72 x 56 px gives latents of 9 x 7), text in float32, UNet in bfloat16.
        name="tiny-deep",
        text_encoder=clip(
            vocab_size=1000,
            hidden_size=16,
            intermediate_size=64,
            num_attention_heads=2,
            num_hidden_layers=2,
            projection_dim=16,
            hidden_act="quick_gelu",
            bos_token_id=998,
            eos_token_id=999,
            pad_token_id=999,
        ),
        unet=dict(
            block_out_channels=[16, 32, 32],
            layers_per_block=1,
            sample_size=8,
            down_block_types=["CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"],
            up_block_types=["UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"],
            cross_attention_dim=16,
            attention_head_dim=[1, 2, 4],
            transformer_layers_per_block=[1, 2, 1],
            norm_num_groups=8,
        ),
        vae=dict(
            block_out_channels=[8, 16, 16, 16],
            down_block_types=["DownEncoderBlock2D"] * 4,
            up_block_types=["UpDecoderBlock2D"] * 4,
            latent_channels=4,
            norm_num_groups=4,
            layers_per_block=1,
            sample_size=64,
            scaling_factor=0.13025,
        ),
        scheduler=dict(prediction_type="epsilon", timestep_spacing="leading"),
        text_dtype=torch.float32,
        unet_dtype=torch.bfloat16,
        text_keys=with_prefix,
        vae_keys=new_vae_attention,
        unet_sizes=((8, 8), (9, 7)),
        image_px=(72, 56),
        has_tokenizer=False,
    ),
)
