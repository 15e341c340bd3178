"""What every script of this folder shares: repeatable arithmetic and the file format of the expected values."""

import json
import os
from pathlib import Path

# Nothing here may reach the network: every model is made on the spot or lies in this repository.
os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from safetensors.torch import save_file


def repeatable() -> None:
    """One thread and no algorithm whose order of summation may change, so that two runs write the same bytes."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.set_grad_enabled(False)


def normal(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Float32 normals from a CPU generator, drawn as diffusers draws its first latents."""
    return torch.randn(shape, generator=torch.Generator("cpu").manual_seed(seed))


def save(path: Path, tensors: dict[str, torch.Tensor], **about) -> None:
    """Writes float tensors as F32 and integer tensors as I32, torch's own (NCHW) layout.

    `about` becomes JSON under the one metadata key `fixture`; one key, because safetensors writes several in random order.
    """
    stored = {}
    for name, tensor in tensors.items():
        if tensor.is_floating_point():
            if not torch.isfinite(tensor).all():
                raise ValueError(f"{path.name}: {name} is not finite")
            stored[name] = tensor.detach().float().contiguous().clone()
        else:
            stored[name] = tensor.to(torch.int32).contiguous().clone()
    path.parent.mkdir(parents=True, exist_ok=True)
    about = {"layout": "torch: NCHW for images and latents", "arithmetic": "float32, CPU, one thread", **about}
    save_file(stored, path, metadata={"fixture": json.dumps(about, sort_keys=True)})


def write_json(path: Path, value) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
