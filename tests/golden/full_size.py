"""Stable Diffusion 1.5 in its real size with drawn weights, and what diffusers computes with it: `./build.sh golden --full`.

Every weight is drawn from a seed of its own, made from its name, so that whoever can draw torch's normals has the same model
without its 2 GB: `tests/full_size.rs` does, and the tests need neither this script nor the folder it writes. Committed are only the
expected values, `full-size/*.safetensors`.

The folder, outside of git, is a complete model in diffusers' layout, float16, as the page and `generate` load it.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from . import fixture

# transformers and diffusers read HF_HUB_OFFLINE when imported: after fixture, which sets it.
from diffusers import AutoencoderKL, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

PROMPT = "a photo of an astronaut riding a horse on mars"
TIMESTEP = 481
SIDES = (16, 64)
# Of the inputs; those of two sizes differ by the side.
TEXT_SEED, SAMPLE_SEED, LATENTS_SEED = 1000, 2000, 3000
# Of the large picture every so many rows and columns are kept: prime, so that every place of a tile is met.
STRIDE = 5


def seed_of(name: str) -> int:
    """FNV-1a of 32 bits (Fowler, Noll, Vo)."""
    seed = 0x811C9DC5
    for byte in name.encode():
        seed = (seed ^ byte) * 0x01000193 & 0xFFFFFFFF
    return seed


def module_name(name: str) -> str:
    """transformers has CLIP's names with and without this prefix, by its version."""
    return name.removeprefix("text_model.")


def draw(network: torch.nn.Module, part: str) -> torch.nn.Module:
    """Matrices and kernels are N(0, 0.7 / fan_in), which keeps activations near 1 through every depth; norms 1 + N(0, 0.05),
    biases N(0, 0.02), tables N(0, 0.5 ** 2), of positions N(0, 0.1 ** 2). Rounded to float16, kept in float32."""
    for name, parameter in network.named_parameters():
        name = module_name(name)
        values = fixture.normal(tuple(parameter.shape), seed_of(f"{part}.{name}"))
        if parameter.ndim == 1:
            values = 1 + 0.05 * values if name.endswith("weight") else 0.02 * values
        elif name.endswith("embedding.weight") and part == "text_encoder":
            values = values * (0.1 if "position" in name else 0.5)
        else:
            values = values * (0.7 / parameter[0].numel()) ** 0.5
        parameter.copy_(values.half())
    return network.eval()


def store(network: torch.nn.Module, folder: Path, file: str, rename: Callable[[str], str]) -> None:
    """Writes a network's folder as float16, its tensors under the names that the published files of 1.5 have."""
    network.half().save_pretrained(folder, safe_serialization=True)
    path = folder / file
    tensors = {rename(name): tensor.contiguous() for name, tensor in load_file(path).items()}
    save_file(tensors, path, metadata={"format": "pt"})
    # safetensors writes for the owner alone; a web server may be somebody else
    path.chmod(0o644)
    print(f"{path}: {path.stat().st_size} bytes", flush=True)


def old_attention_name(name: str) -> str:
    for new, old in ((".to_q.", ".query."), (".to_k.", ".key."), (".to_v.", ".value."), (".to_out.0.", ".proj_attn.")):
        name = name.replace(new, old)
    return name


def text_encoder(configs: Path, values: Path, model: Path) -> None:
    config = CLIPTextConfig(**json.loads((configs / "config.json").read_text()))
    network = draw(CLIPTextModel(config), "text_encoder")
    tokenizer = CLIPTokenizer.from_pretrained(values.parent / "tokenizer" / "clip")
    ids = tokenizer([PROMPT], padding="max_length", max_length=77, truncation=True, return_tensors="pt").input_ids
    tensors = {"input_ids": ids, "text.last_hidden_state": network(ids)[0]}
    fixture.save(values / "text.safetensors", tensors, prompt=PROMPT)
    store(network, model / "text_encoder", "model.safetensors", lambda name: f"text_model.{module_name(name)}")


def unet(configs: Path, values: Path, model: Path) -> None:
    network = draw(UNet2DConditionModel.from_config(UNet2DConditionModel.load_config(configs)), "unet")
    tensors = {}
    for side in SIDES:
        sample = fixture.normal((1, 4, side, side), SAMPLE_SEED + side)
        text = fixture.normal((1, 77, 768), TEXT_SEED)
        tensors[f"unet.sample.{side}"] = network(sample, TIMESTEP, encoder_hidden_states=text).sample
    fixture.save(
        values / "unet.safetensors",
        tensors,
        timestep=TIMESTEP,
        sample=f"normals of the seed {SAMPLE_SEED} + side",
        encoder_hidden_states=f"normals of the seed {TEXT_SEED}",
    )
    store(network, model / "unet", "diffusion_pytorch_model.safetensors", lambda name: name)


def vae(configs: Path, values: Path, model: Path) -> None:
    network = draw(AutoencoderKL.from_config(AutoencoderKL.load_config(configs)), "vae")
    tensors = {}
    for side in SIDES:
        latents = fixture.normal((1, 4, side, side), LATENTS_SEED + side)
        picture = network.decode(latents / network.config.scaling_factor).sample
        # of the small one everything; of the large one enough, and its root mean square
        tensors[f"vae.sample.{side}"] = picture if side == SIDES[0] else picture[:, :, ::STRIDE, ::STRIDE]
        tensors[f"vae.rms.{side}"] = picture.pow(2).mean().sqrt()
    fixture.save(
        values / "vae.safetensors",
        tensors,
        latents=f"normals of the seed {LATENTS_SEED} + side; what is decoded is latents / scaling_factor",
        stride=STRIDE,
    )
    store(network, model / "vae", "diffusion_pytorch_model.safetensors", old_attention_name)


def write_rest(configs: Path, golden: Path, model: Path) -> None:
    """What the folder has beside the networks."""
    shutil.copytree(golden / "tokenizer" / "clip", model / "tokenizer", ignore=shutil.ignore_patterns("cases.json"))
    # one place for both: the scheduler and the index of stock Stable Diffusion 1.x
    shutil.copytree(golden / "tiny-model" / "scheduler", model / "scheduler")
    shutil.copy(golden / "tiny-model" / "model_index.json", model / "model_index.json")
    index = json.loads((configs / "model_index.json").read_text())
    if index["_class_name"] != json.loads((model / "model_index.json").read_text())["_class_name"]:
        raise ValueError(f"{configs} and tiny-model are different pipelines")


def main(directory: Path) -> None:
    """Writes `directory/full-size` and the folder `.tools/full-size/sd15` beside `tests`."""
    fixture.repeatable()
    root = directory.parent.parent
    configs, values, model = directory.parent / "configs" / "sd15", directory / "full-size", root / ".tools/full-size/sd15"
    shutil.rmtree(model, ignore_errors=True)
    model.mkdir(parents=True)
    write_rest(configs, directory, model)
    for part in (text_encoder, vae, unet):
        part(configs / part.__name__, values, model)
