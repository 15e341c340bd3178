"""The training pictures and their captions, as render.js writes them."""

import json
from pathlib import Path

import numpy as np
import torch

PICTURE_SIZE_PX = 128


def load_captions():
    """One dict per picture: name, style, tags and emoji group."""
    with open("captions.jsonl", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def load_pictures():
    """All pictures as uint8 [count, height, width, 3]."""
    return np.fromfile("images.u8", np.uint8).reshape(-1, PICTURE_SIZE_PX, PICTURE_SIZE_PX, 3)


def load_names():
    """The names that the model is taught."""
    return set(Path(__file__).with_name("names.txt").read_text(encoding="utf-8").split())


def to_sample(pictures):
    """uint8 [n, height, width, 3] -> float32 [n, 3, height, width] in -1..1, the autoencoder's input."""
    return torch.from_numpy(pictures).permute(0, 3, 1, 2).float() / 127.5 - 1
