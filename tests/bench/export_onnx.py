"""The rows of the bench as ONNX files for onnxruntime-web, from the same weights.

Usage: export_onnx.py FOLDER ROOT, where FOLDER holds rows.json, as the program `bench --export FOLDER` writes it, and ROOT is the
repository. Writes FOLDER/NAME.onnx for each row, unless it is there already. Nothing is downloaded.
"""

import hashlib
import json
import logging
import os
import sys
import warnings
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import numpy as np
import onnx
import torch
from diffusers import AutoencoderKL, UNet2DConditionModel
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

OPSET = 18
# The highest that onnxruntime-web 1.30 is known to read.
IR_VERSION = 10


def single_operation(nodes, inputs, output_shape, weights):
    """A model of a few nodes; `inputs` maps names to shapes, `weights` names to arrays."""
    tensor = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    graph = helper.make_graph(
        nodes,
        "row",
        [tensor(name, shape) for name, shape in inputs.items()],
        [tensor("output", output_shape)],
        [numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


def conv2d(task, weights):
    side, channels = task["side"], task["channels"]
    shape = [1, channels, side, side]
    node = helper.make_node(
        "Conv", ["input", "weight", "bias"], ["output"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]
    )
    return single_operation([node], {"input": shape}, shape, weights)


def linear(task, weights):
    # as an exporter writes a linear layer on tokens: onnxruntime fuses the sum with the bias itself
    nodes = [
        helper.make_node("MatMul", ["input", "weight"], ["product"]),
        helper.make_node("Add", ["product", "bias"], ["output"]),
    ]
    weights = {"weight": weights["weight"].T, "bias": weights["bias"]}
    inputs = {"input": [1, task["rows"], task["k"]]}
    return single_operation(nodes, inputs, [1, task["rows"], task["n"]], weights)


def attention(task, _weights):
    # The products and the softmax that an exporter writes. onnxruntime has an operator of its own, MultiHeadAttention, but with version
    # 1.30 its values are wrong on SwiftShader.
    heads, head_dim, tokens = task["num_heads"], task["head_dim"], task["tokens"]
    names = ["query", "key", "value"]
    shape = [1, tokens, heads * head_dim]
    nodes = []
    for name, order in zip(names, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])):
        nodes.append(helper.make_node("Reshape", [name, "heads"], [f"{name}_heads"]))
        nodes.append(helper.make_node("Transpose", [f"{name}_heads"], [f"{name}_matrix"], perm=order))
    nodes += [
        helper.make_node("Mul", ["query_matrix", "scale"], ["query_scaled"]),
        helper.make_node("MatMul", ["query_scaled", "key_matrix"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "value_matrix"], ["sums"]),
        helper.make_node("Transpose", ["sums"], ["sums_tokens"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["sums_tokens", "tokens"], ["output"]),
    ]
    constants = {
        "heads": np.array([1, tokens, heads, head_dim], np.int64),
        "tokens": np.array(shape, np.int64),
        "scale": np.array(head_dim**-0.5, np.float32),
    }
    return single_operation(nodes, dict.fromkeys(names, shape), shape, constants)


class UNet(torch.nn.Module):
    def __init__(self, folder):
        super().__init__()
        self.model = UNet2DConditionModel.from_pretrained(folder, low_cpu_mem_usage=False).float().eval()

    def forward(self, sample, timestep, encoder_hidden_states):
        return self.model(sample, timestep, encoder_hidden_states, return_dict=False)[0]


class Decoder(torch.nn.Module):
    def __init__(self, folder):
        super().__init__()
        self.model = AutoencoderKL.from_pretrained(folder, low_cpu_mem_usage=False).float().eval()

    def forward(self, latents):
        return self.model.decode(latents, return_dict=False)[0]


def network(row, folder, path):
    module = UNet(folder) if row["task"]["kind"] == "unet" else Decoder(folder)
    names, arguments = [], []
    for entry in row["inputs"]:
        batch, height, width, channels = entry["shape"]
        if entry["name"] == "timestep_sinusoid":
            names.append("timestep")
            arguments.append(torch.tensor([row["timestep"]]))
            continue
        names.append(entry["name"])
        shape = (batch, channels, height, width) if entry["image"] else (batch, width, channels)
        arguments.append(torch.randn(shape))
    with torch.no_grad():
        torch.onnx.export(
            module,
            tuple(arguments),
            str(path),
            input_names=names,
            output_names=["output"],
            opset_version=OPSET,
            dynamo=True,
            external_data=False,
            optimize=True,
            verbose=False,
        )


SINGLE = {"conv2d": conv2d, "linear": linear, "attention": attention}


def main():
    data, root = Path(sys.argv[1]), Path(sys.argv[2])
    for row in json.loads((data / "rows.json").read_text()):
        path = data / f"{row['name']}.onnx"
        folder = root / row["folder"] if row["folder"] else None
        weights_path = next(folder.glob("*.safetensors")) if folder else data / f"{row['name']}.safetensors"
        sources = [Path(__file__), weights_path] if weights_path.exists() else [Path(__file__)]
        digest = hashlib.sha256(json.dumps(row).encode())
        for source in sources:
            digest.update(source.read_bytes())
        stamp = path.with_suffix(".made-from")
        if path.exists() and stamp.exists() and stamp.read_text() == digest.hexdigest():
            continue
        if row["task"]["kind"] in SINGLE:
            weights = load_file(weights_path) if weights_path.exists() else {}
            weights = {name: array.astype(np.float32) for name, array in weights.items()}
            onnx.save(SINGLE[row["task"]["kind"]](row["task"], weights), path)
        else:
            network(row, folder, path)
        stamp.write_text(digest.hexdigest())
        print(f"{path.name}: {path.stat().st_size} bytes", flush=True)


main()
