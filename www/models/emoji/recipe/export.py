"""Turns checkpoints into diffusers folders, and scores the result."""

import argparse
import json
import math
import os
import random
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
import numpy as np
import torch
import torch.nn.functional as F
from diffusers import (
    AutoencoderKL,
    DPMSolverMultistepScheduler,
    PNDMScheduler,
    StableDiffusionPipeline,
)
from PIL import Image
from transformers import CLIPTokenizer

from data import PICTURE_SIZE_PX, load_captions, load_names, load_pictures, to_sample
from networks import build_text_encoder_and_unet, build_vae


def contact_sheet(pictures, columns):
    """One image of all pictures (uint8 [n, height, width, 3]), the last row filled up with white."""
    filler = np.full((-len(pictures) % columns, *pictures.shape[1:]), 255, np.uint8)
    rows = np.concatenate([pictures, filler]).reshape(-1, columns, *pictures.shape[1:])
    return Image.fromarray(np.concatenate([np.concatenate(list(row), 1) for row in rows], 0))


def export_vae(_args):
    """run/vae.pt -> run/vae (float32); prints the PSNR on every seventh picture, writes recon.png."""
    vae = build_vae()
    vae.load_state_dict(torch.load("run/vae.pt")["m"])
    vae.eval()
    pictures = load_pictures()[::7]
    squared_errors, decoded, latents = [], [], []
    with torch.no_grad():
        for first in range(0, len(pictures), 32):
            sample = to_sample(pictures[first : first + 32])
            mean = vae.encode(sample).latent_dist.mean
            output = vae.decode(mean).sample.clamp(-1, 1)
            latents.append(mean)
            squared_errors += ((output - sample) ** 2).mean((1, 2, 3)).tolist()
            decoded.append(((output + 1) * 127.5).round().byte().permute(0, 2, 3, 1).numpy())
    latents, decoded = torch.cat(latents), np.concatenate(decoded)
    print(
        f"PSNR {10 * math.log10(4 / np.mean(squared_errors)):.2f} dB (of the mean square error), "
        f"{10 * math.log10(4 / np.median(squared_errors)):.2f} dB (median); "
        f"latents: std {latents.std():.3f} mean {latents.mean((0, 2, 3)).tolist()}"
    )
    shown = np.arange(0, len(pictures), len(pictures) // 24)[:24]
    pairs = np.concatenate([np.stack([pictures[i], decoded[i]]) for i in shown])
    contact_sheet(pairs, 12).save("recon.png")
    vae.register_to_config(scaling_factor=float(1 / latents.std()))
    vae.save_pretrained("run/vae")


def export_model(args):
    """The averaged weights -> a StableDiffusionPipeline folder in float16."""
    text_encoder, unet = build_text_encoder_and_unet()
    state = torch.load("run/unet.pt")
    with torch.no_grad():
        for parameter, average in zip([*text_encoder.parameters(), *unet.parameters()], state["ema"]):
            parameter.copy_(average)
    vae = AutoencoderKL.from_pretrained("run/vae")
    mean, _ = torch.load("run/latents.pt")
    vae.register_to_config(scaling_factor=float(1 / mean.std()))
    pipeline = StableDiffusionPipeline(
        vae=vae,
        text_encoder=text_encoder,
        tokenizer=CLIPTokenizer.from_pretrained("run/tokenizer"),
        unet=unet,
        scheduler=PNDMScheduler(
            num_train_timesteps=1000,
            beta_start=0.00085,
            beta_end=0.012,
            beta_schedule="scaled_linear",
            prediction_type="v_prediction",
            skip_prk_steps=True,
            set_alpha_to_one=False,
            steps_offset=1,
        ),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    pipeline.to(torch.float16).save_pretrained(args.out, safe_serialization=True)
    # As in Stable Diffusion 1.5's own file: DDIM, made from this config, would clip otherwise.
    config_file = args.out / "scheduler" / "scheduler_config.json"
    config = json.loads(config_file.read_text())
    config["clip_sample"] = False
    config_file.write_text(json.dumps(config, indent=2))
    print(f"step {state['step']}")
    for file in sorted(args.out.rglob("*.safetensors")):
        print(f"{file}: {file.stat().st_size} bytes")


def thumbnails(sample):
    """[n, 3, 128, 128] -> [n, 3 * 32 * 32], what the nearest neighbour is looked for in."""
    return F.avg_pool2d(sample, 4).flatten(1)


def export_sheet(args):
    """Draws random training captions; counts how often the nearest training picture is the right one."""
    pipeline = StableDiffusionPipeline.from_pretrained(args.model, torch_dtype=torch.float32, local_files_only=True)
    pipeline.set_progress_bar_config(disable=True)
    pipeline.scheduler = DPMSolverMultistepScheduler.from_config(pipeline.scheduler.config)
    captions, names, pictures = load_captions(), load_names(), load_pictures()
    known = [i for i, c in enumerate(captions) if c["name"] in names and c["style"] != "glossy"]
    chosen = random.Random(5).sample(known, args.count)
    references = thumbnails(torch.from_numpy(pictures).permute(0, 3, 1, 2).float())
    own_picture = own_name = 0
    pairs = []
    for i in chosen:
        name, style = captions[i]["name"], captions[i]["style"]
        image = pipeline(
            f"{name.replace('-', ' ')}, {style} style",
            num_inference_steps=args.steps,
            guidance_scale=args.guidance_scale,
            height=PICTURE_SIZE_PX,
            width=PICTURE_SIZE_PX,
            generator=torch.Generator().manual_seed(i),
            output_type="np",
        ).images[0]
        image = (image * 255).round().astype(np.uint8)
        query = thumbnails(torch.from_numpy(image).permute(2, 0, 1)[None].float())
        nearest = int(((references - query) ** 2).sum(1).argmin())
        own_picture += nearest == i
        own_name += captions[nearest]["name"] == name
        pairs.append(np.stack([pictures[i], image]))
    print(
        f"nearest neighbour: own picture {own_picture}/{len(chosen)}, own name {own_name}/{len(chosen)} "
        f"(guidance {args.guidance_scale}, {args.steps} steps)"
    )
    contact_sheet(np.concatenate(pairs), 16).save("sheet.png")


def main():
    """Reads the command line and runs one of the three commands."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    commands = parser.add_subparsers(required=True)
    vae = commands.add_parser("vae", help=export_vae.__doc__)
    vae.set_defaults(run=export_vae)
    model = commands.add_parser("model", help=export_model.__doc__)
    model.add_argument("out", type=Path)
    model.set_defaults(run=export_model)
    sheet = commands.add_parser("sheet", help=export_sheet.__doc__)
    sheet.add_argument("model")
    sheet.add_argument("steps", type=int)
    sheet.add_argument("--count", type=int, default=40)
    sheet.add_argument("--guidance-scale", type=float, default=4.0)
    sheet.set_defaults(run=export_sheet)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    args.run(args)


if __name__ == "__main__":
    main()
