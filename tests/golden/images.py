"""Pictures that diffusers draws with the bundled model: what the page is held against.

Writes `images/<name>.png`, `images/images.json` (every parameter of every picture, in the names of the element's and
the command's options) and `images/<name>-latents.safetensors` for the pictures of LATENTS.
"""

import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from . import fixture

# diffusers reads HF_HUB_OFFLINE when imported: after fixture, which sets it.
from diffusers import DDIMScheduler, EulerDiscreteScheduler, PNDMScheduler, StableDiffusionPipeline

SCHEDULERS = {"pndm": PNDMScheduler, "ddim": DDIMScheduler, "euler": EulerDiscreteScheduler}


@dataclass(frozen=True)
class Picture:
    name: str
    prompt: str
    scheduler: str
    steps: int
    guidance_scale: float
    seed: int
    negative_prompt: str = ""
    width: int = 128
    height: int = 128
    set: str = "full"
    """`full`: for engines that are fast enough. `few-steps`: for the slow ones, a software adapter for instance."""


PICTURES = (
    Picture("red-apple-pndm", "red apple, flat style", "pndm", 20, 2.5, 7),
    Picture("owl-pndm", "3d owl", "pndm", 12, 2.0, 0),
    Picture("blue-heart-pndm", "blue heart", "pndm", 8, 3.0, 42),
    # Words the model was not trained on, capitals, accents and a contraction: the tokenizer takes part.
    Picture("snowman-pndm", "A Snowman, it's FLAT style; déjà vu", "pndm", 20, 2.0, 123456789),
    Picture("frog-ddim", "a frog", "ddim", 20, 3.0, 1),
    Picture("robot-ddim", "robot, 3d style", "ddim", 16, 2.5, 4294967295, negative_prompt="red, flat style"),
    # Guidance 1 runs no unconditional pass.
    Picture("house-ddim", "house, flat style", "ddim", 20, 1.0, 3),
    Picture("lemon-ddim", "lemon, 3d style", "ddim", 8, 3.5, 2024),
    Picture("cat-face-euler", "cat face, 3d style", "euler", 20, 2.0, 11),
    # Not square, and width / 8 is no multiple of 16.
    Picture("rocket-euler", "rocket", "euler", 20, 3.0, 5, width=192, height=128),
    Picture("dog-face-euler", "dog face, flat style", "euler", 15, 2.5, 99),
    Picture("sunflower-euler", "sunflower, flat style", "euler", 10, 3.0, 31337),
    Picture("yellow-heart-pndm-few-steps", "yellow heart", "pndm", 3, 2.0, 7, width=64, height=64, set="few-steps"),
    Picture("tomato-euler-few-steps", "tomato, flat style", "euler", 4, 2.5, 8, width=64, height=64, set="few-steps"),
)
LATENTS = ("rocket-euler", "red-apple-pndm", "yellow-heart-pndm-few-steps")


def draw(pipeline: StableDiffusionPipeline, model: Path, picture: Picture, directory: Path) -> dict:
    # From the file each time: what one scheduler was given by default must not become the next one's setting.
    pipeline.scheduler = SCHEDULERS[picture.scheduler].from_config(PNDMScheduler.load_config(model / "scheduler"))
    factor = 2 ** (len(pipeline.vae.config.block_out_channels) - 1)
    shape = (1, pipeline.unet.config.in_channels, picture.height // factor, picture.width // factor)
    tensors = {"latents.noise": fixture.normal(shape, picture.seed)}
    timesteps = []

    def after_step(_pipeline, step, timestep, values):
        tensors[f"latents.step.{step}"] = values["latents"].clone()
        timesteps.append(float(timestep))
        return values

    image = pipeline(
        prompt=picture.prompt,
        negative_prompt=picture.negative_prompt,
        height=picture.height,
        width=picture.width,
        num_inference_steps=picture.steps,
        guidance_scale=picture.guidance_scale,
        generator=torch.Generator("cpu").manual_seed(picture.seed),
        callback_on_step_end=after_step,
    ).images[0]
    if image.size != (picture.width, picture.height):
        raise ValueError(f"{picture.name}: diffusers answered {image.size}")
    file = f"{picture.name}.png"
    image.save(directory / file, optimize=True)

    entry = {"file": file, **asdict(picture)}
    if picture.name in LATENTS:
        entry["latents_file"] = f"{picture.name}-latents.safetensors"
        tensors["timesteps"] = torch.tensor(timesteps)
        fixture.save(
            directory / entry["latents_file"],
            tensors,
            latents="latents.noise is before init_noise_sigma; latents.step.N is after the Nth scheduler.step",
            **asdict(picture),
        )
    return entry


def main(directory: Path) -> None:
    fixture.repeatable()
    model = directory.parent.parent / "www" / "models" / "emoji"
    if not (model / "model_index.json").is_file():
        raise FileNotFoundError(f"{model}: the bundled model is missing, its pictures cannot be drawn")
    images = directory / "images"
    shutil.rmtree(images, ignore_errors=True)
    images.mkdir()
    pipeline = StableDiffusionPipeline.from_pretrained(model, dtype=torch.float32, local_files_only=True)
    pipeline.set_progress_bar_config(disable=True)
    entries = [draw(pipeline, model, picture, images) for picture in PICTURES]
    fixture.write_json(
        images / "images.json",
        {
            "model": "www/models/emoji",
            "arithmetic": "diffusers, float32, CPU, one thread",
            "latents": 'torch.randn([1, 4, height / 8, width / 8], generator=torch.Generator("cpu").manual_seed(seed))',
            "images": entries,
        },
    )
