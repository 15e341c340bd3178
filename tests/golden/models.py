"""Three tiny seeded models in diffusers' folder layout, and what diffusers computes with them.

`tiny-model` has the layout of stock Stable Diffusion 1.x. `tiny-sd2` and `tiny-deep` take the other turns that a config.json
or a file of weights can take. Weights are stored rounded; expected values are float32 arithmetic over the stored weights.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from . import fixture
from .tiny import MODELS, Tiny

# transformers and diffusers read HF_HUB_OFFLINE when imported: after fixture, which sets it.
from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    EulerDiscreteScheduler,
    PNDMScheduler,
    StableDiffusionPipeline,
    UNet2DConditionModel,
)
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

SCHEDULERS = {"pndm": PNDMScheduler, "ddim": DDIMScheduler, "euler": EulerDiscreteScheduler}
PROMPT = "a photo of an astronaut riding a horse on mars"
TIMESTEPS = (981, 481, 1)


def seeded(model: torch.nn.Module, seed: int, dtype: torch.dtype) -> torch.nn.Module:
    """Draws every parameter in the order of the sorted names. Matrices and kernels are N(0, 0.7 / fan_in), which keeps
    activations near 1 through every depth; norms are 1 + N(0, 0.05), biases N(0, 0.02), and no tensor stays constant, so
    that a bias or a scale that is left out shows.

    Values are rounded to float16 whatever `dtype` is: a loader that keeps weights in float16 loses nothing.
    """
    generator = torch.Generator("cpu").manual_seed(seed)
    for name, parameter in sorted(model.named_parameters()):
        draw = torch.randn(parameter.shape, generator=generator)
        if parameter.ndim == 1:
            draw = 1 + 0.05 * draw if name.endswith("weight") else 0.02 * draw
        elif name.endswith("embedding.weight"):
            draw = draw * (0.1 if "position" in name else 0.5)
        else:
            draw = draw * (0.7 / parameter[0].numel()) ** 0.5
        # Twice to the narrower type: what bfloat16 keeps of a float16 subnormal may have to be rounded once more.
        parameter.copy_(draw.to(dtype).half().to(dtype).half())
    return model.to(dtype).eval()


def rename_keys(path: Path, rename: Callable[[dict], dict]) -> None:
    weights = {key: value.contiguous() for key, value in rename(load_file(path)).items()}
    save_file(weights, path, metadata={"format": "pt"})


def write_model(tiny: Tiny, folder: Path, tokenizer: Path) -> dict[str, torch.nn.Module]:
    """Writes the folder; answers the three networks as they were drawn, to hold what is read back against them."""
    networks = {
        "text_encoder": seeded(CLIPTextModel(CLIPTextConfig(**tiny.text_encoder)), 1, tiny.text_dtype),
        "vae": seeded(AutoencoderKL(in_channels=3, out_channels=3, **tiny.vae), 2, torch.float16),
        "unet": seeded(UNet2DConditionModel(in_channels=4, out_channels=4, **tiny.unet), 3, tiny.unet_dtype),
    }
    for part, network in networks.items():
        network.save_pretrained(folder / part, safe_serialization=True)
    rename_keys(folder / "text_encoder/model.safetensors", tiny.text_keys)
    rename_keys(folder / "vae/diffusion_pytorch_model.safetensors", tiny.vae_keys)

    fixture.write_json(
        folder / "scheduler/scheduler_config.json",
        {
            "_class_name": "PNDMScheduler",
            "_diffusers_version": "0.42.1",
            "beta_end": 0.012,
            "beta_schedule": "scaled_linear",
            "beta_start": 0.00085,
            "clip_sample": False,
            "num_train_timesteps": 1000,
            "set_alpha_to_one": False,
            "skip_prk_steps": True,
            "steps_offset": 1,
            "trained_betas": None,
            **tiny.scheduler,
        },
    )
    fixture.write_json(
        folder / "model_index.json",
        {
            "_class_name": "StableDiffusionPipeline",
            "_diffusers_version": "0.42.1",
            "feature_extractor": [None, None],
            "image_encoder": [None, None],
            "requires_safety_checker": False,
            "safety_checker": [None, None],
            "scheduler": ["diffusers", "PNDMScheduler"],
            "text_encoder": ["transformers", "CLIPTextModel"],
            "tokenizer": ["transformers", "CLIPTokenizer"],
            "unet": ["diffusers", "UNet2DConditionModel"],
            "vae": ["diffusers", "AutoencoderKL"],
        },
    )
    if tiny.has_tokenizer:
        # CLIP's vocabulary is 1.5 MB: kept once, with the fixtures of the tokenizer.
        (folder / "tokenizer").unlink(missing_ok=True)
        (folder / "tokenizer").symlink_to(Path("..") / tokenizer.relative_to(folder.parent), target_is_directory=True)
    return networks


def read_model(tiny: Tiny, folder: Path, drawn: dict[str, torch.nn.Module]) -> StableDiffusionPipeline:
    """Reads the folder as diffusers does, in float32, and checks that every parameter came back as it was drawn."""
    tokenizer = CLIPTokenizer.from_pretrained(folder / "tokenizer") if tiny.has_tokenizer else None
    pipeline = StableDiffusionPipeline.from_pretrained(
        folder, tokenizer=tokenizer, dtype=torch.float32, local_files_only=True
    )
    pipeline.set_progress_bar_config(disable=True)
    for part, network in drawn.items():
        read = dict(getattr(pipeline, part).named_parameters())
        for name, parameter in network.named_parameters():
            if read[name].dtype != torch.float32 or not torch.equal(read[name], parameter.float()):
                raise ValueError(f"{tiny.name}: {part}.{name} did not come back from its file")
    return pipeline


def record(network: torch.nn.Module, prefix: str, names: list[str], tensors: dict, call: Callable):
    """Runs `call` and stores what the named modules answered as `prefix.name`."""

    def keep(name):
        def hook(_module, _inputs, output):
            # Down blocks answer (hidden_states, residuals) and transformers (hidden_states,).
            tensors[f"{prefix}.{name}"] = output if isinstance(output, torch.Tensor) else output[0]

        return hook

    modules = dict(network.named_modules())
    handles = [modules[name].register_forward_hook(keep(name)) for name in names]
    try:
        return call()
    finally:
        for handle in handles:
            handle.remove()


def input_ids(tiny: Tiny, pipeline: StableDiffusionPipeline) -> torch.Tensor:
    """[2, 77]: the unconditional row, then the conditional one, as the pipeline stacks them."""
    if tiny.has_tokenizer:
        return pipeline.tokenizer(
            ["", PROMPT], padding="max_length", max_length=77, truncation=True, return_tensors="pt"
        ).input_ids
    numbers = tiny.text_encoder
    rows = torch.full((2, 77), numbers["pad_token_id"])
    rows[:, 0] = numbers["bos_token_id"]
    rows[0, 1] = numbers["eos_token_id"]
    words = torch.randint(1, numbers["bos_token_id"], (10,), generator=torch.Generator("cpu").manual_seed(4))
    rows[1, 1:11] = words
    rows[1, 11] = numbers["eos_token_id"]
    return rows


def write_text(tiny: Tiny, pipeline: StableDiffusionPipeline, directory: Path) -> torch.Tensor:
    ids = input_ids(tiny, pipeline)
    names = [name for name, _ in pipeline.text_encoder.named_modules()]
    wanted = [n for n in names if n.split(".")[-1] == "embeddings" or (n.split(".")[-2:-1] == ["layers"])]
    tensors = {}
    raw = {}
    output = record(pipeline.text_encoder, "text", wanted, raw, lambda: pipeline.text_encoder(ids))
    for name, value in raw.items():
        tensors[name.replace("text.text_model.", "text.")] = value
    tensors["input_ids"] = ids
    tensors["text.last_hidden_state"] = output.last_hidden_state
    about = {"rows": ["", PROMPT]} if tiny.has_tokenizer else {"rows": "made up: start, end / start, 10 words, end"}
    fixture.save(directory / f"{tiny.name}-text.safetensors", tensors, model=tiny.name, **about)
    return output.last_hidden_state


def write_unet(tiny: Tiny, unet: UNet2DConditionModel, embeddings: torch.Tensor, directory: Path) -> None:
    names = ["time_proj", "time_embedding", "conv_in", "mid_block", "conv_norm_out", "conv_out"]
    for blocks in ("down_blocks", "up_blocks"):
        for i, block in enumerate(getattr(unet, blocks)):
            names.append(f"{blocks}.{i}")
            names += [f"{blocks}.{i}.resnets.{j}" for j in range(len(block.resnets))]
            names += [f"{blocks}.{i}.attentions.{j}" for j in range(len(getattr(block, "attentions", ())))]
    names += ["mid_block.resnets.0", "mid_block.attentions.0", "mid_block.resnets.1"]
    for height, width in tiny.unet_sizes:
        # Two different rows: an engine that mixes up the halves of a batch shows.
        sample = fixture.normal((2, 4, height, width), 5)
        tensors = {"sample": sample, "encoder_hidden_states": embeddings, "timesteps": torch.tensor(TIMESTEPS)}
        for timestep in TIMESTEPS:

            def call():
                return unet(sample, torch.tensor(timestep), encoder_hidden_states=embeddings).sample

            blocks = names if timestep == TIMESTEPS[0] else []
            tensors[f"noise_pred.{timestep}"] = record(unet, "unet", blocks, tensors, call)
        fixture.save(
            directory / f"{tiny.name}-unet-{height}x{width}.safetensors",
            tensors,
            model=tiny.name,
            sample="normals, CPU generator, seed 5",
            modules=f"the tensors unet.* are those of timestep {TIMESTEPS[0]}",
        )


def write_vae(tiny: Tiny, vae: AutoencoderKL, directory: Path) -> None:
    latents = fixture.normal((1, 4, 8, 8), 6)
    names = ["post_quant_conv", "decoder.conv_in", "decoder.mid_block", "decoder.conv_norm_out"]
    names += ["decoder.mid_block.resnets.0", "decoder.mid_block.attentions.0", "decoder.mid_block.resnets.1"]
    # The last up block of the autoencoder of factor 8 is 64 x 64, small enough at 8 channels.
    names += [f"decoder.up_blocks.{i}" for i in range(len(vae.decoder.up_blocks))]
    tensors = {"latents": latents}
    decoded = record(
        vae, "vae", names, tensors, lambda: vae.decode(latents / vae.config.scaling_factor, return_dict=False)[0]
    )
    tensors["vae.sample"] = decoded
    fixture.save(
        directory / f"{tiny.name}-vae-8x8.safetensors",
        tensors,
        model=tiny.name,
        latents="normals, CPU generator, seed 6; what is decoded is latents / scaling_factor",
        sample="vae.sample is about -1..1 and not clamped",
    )


def write_generate(
    tiny: Tiny, pipeline: StableDiffusionPipeline, embeddings: torch.Tensor, name: str, directory: Path
) -> None:
    """One whole run of StableDiffusionPipeline: first noise, latents after every step, image."""
    height, width = tiny.image_px
    seed, steps, guidance_scale = 1234, 4, 7.5
    # From the file each time: what a scheduler was given by default must not become the next one's setting.
    config = PNDMScheduler.load_config(directory.parent / tiny.name / "scheduler")
    pipeline.scheduler = SCHEDULERS[name].from_config(config)
    if pipeline.scheduler.config.prediction_type != tiny.scheduler["prediction_type"]:
        raise ValueError(f"{tiny.name}: {name} lost the prediction type")
    if name == "ddim" and pipeline.scheduler.config.clip_sample:
        raise ValueError(f"{tiny.name}: DDIM would clip")
    factor = 2 ** (len(tiny.vae["block_out_channels"]) - 1)
    tensors = {"latents.noise": fixture.normal((1, 4, height // factor, width // factor), seed)}
    timesteps = []

    def after_step(_pipeline, step, timestep, values):
        tensors[f"latents.step.{step}"] = values["latents"].clone()
        timesteps.append(float(timestep))
        return values

    prompt = (
        dict(prompt=PROMPT, negative_prompt="")
        if tiny.has_tokenizer
        else dict(prompt_embeds=embeddings[1:], negative_prompt_embeds=embeddings[:1])
    )
    image = pipeline(
        **prompt,
        height=height,
        width=width,
        num_inference_steps=steps,
        guidance_scale=guidance_scale,
        generator=torch.Generator("cpu").manual_seed(seed),
        output_type="pt",
        callback_on_step_end=after_step,
    ).images
    tensors["timesteps"] = torch.tensor(timesteps)
    tensors["image"] = image
    fixture.save(
        directory / f"{tiny.name}-generate-{name}.safetensors",
        tensors,
        model=tiny.name,
        scheduler=type(pipeline.scheduler).__name__,
        prompt=PROMPT if tiny.has_tokenizer else f"input_ids of {tiny.name}-text.safetensors, row 1; negative: row 0",
        negative_prompt="",
        num_inference_steps=steps,
        guidance_scale=guidance_scale,
        seed=seed,
        height=height,
        width=width,
        latents="latents.noise is before init_noise_sigma; latents.step.N is after the Nth scheduler.step",
        image="[1, 3, height, width], 0..1, clamped",
    )


def main(directory: Path) -> None:
    fixture.repeatable()
    expected = directory / "models"
    shutil.rmtree(expected, ignore_errors=True)
    vocabulary = directory / "tokenizer" / "clip"
    if not (vocabulary / "vocab.json").is_file():
        raise FileNotFoundError(f"{vocabulary}: run `generate.py --only tokenizer` first")
    for tiny in MODELS:
        folder = directory / tiny.name
        pipeline = read_model(tiny, folder, write_model(tiny, folder, vocabulary))
        embeddings = write_text(tiny, pipeline, expected)
        write_unet(tiny, pipeline.unet, embeddings, expected)
        write_vae(tiny, pipeline.vae, expected)
        for name in SCHEDULERS:
            write_generate(tiny, pipeline, embeddings, name, expected)
