"""Trains the text encoder and the UNet (v-prediction) on the pictures' latents. Resumes from run/unet.pt."""

import argparse
import math
import os
import random
import time

os.environ["HF_HUB_OFFLINE"] = "1"
import numpy as np
import torch
from diffusers import AutoencoderKL, DDPMScheduler
from diffusers.models.attention_processor import AttnProcessor
from transformers import CLIPTokenizer

from data import load_captions, load_names, load_pictures, to_sample
from networks import build_text_encoder_and_unet

CHECKPOINT = "run/unet.pt"
LATENTS = "run/latents.pt"
STYLES = ("3d", "flat")
# emojibase: animals and nature
ANIMALS_GROUP = 3
EMPTY_PROMPT_RATE = 0.1
WARMUP_STEPS = 150
NUM_TRAIN_TIMESTEPS = 1000


def parse_args():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=6600, help="training time, all runs together")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--init", help="checkpoint to start from where there is none to resume")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def load_latents():
    """Mean and standard deviation of every picture's latents; computed once, then kept in a file."""
    if not os.path.exists(LATENTS):
        vae = AutoencoderKL.from_pretrained("run/vae").eval()
        pictures = load_pictures()
        means, stds = [], []
        with torch.no_grad():
            for first in range(0, len(pictures), 32):
                posterior = vae.encode(to_sample(pictures[first : first + 32])).latent_dist
                means.append(posterior.mean)
                stds.append(posterior.std)
        torch.save((torch.cat(means), torch.cat(stds)), LATENTS)
    return torch.load(LATENTS)


def prompt_for(caption, rng):
    """One of the ways in which a user may ask for the picture."""
    name, style, tags = caption["name"].replace("-", " "), caption["style"], caption["tags"]
    choice = rng.random()
    if caption["group"] == ANIMALS_GROUP and name.endswith(" face") and rng.random() < 0.5:
        name = name.removesuffix(" face")
    if choice < 0.6 or (not tags and choice >= 0.84):
        return f"{name}, {style} style"
    if choice < 0.72:
        return f"{style} {name}"
    if choice < 0.84:
        return name if rng.random() < 0.5 else f"a {name}"
    if choice < 0.92:
        return f"{name}, {', '.join(rng.sample(tags, min(2, len(tags))))}, {style} style"
    return f"{', '.join(rng.sample(tags, min(3, len(tags))))}, {style} style"


def learning_rate(peak, step, done):
    """Linear warm-up times a cosine that ends at 1 %. The cosine follows the time spent (`done`, 0..1)
    and not the steps, so that a busy machine still finishes it."""
    cosine = 0.5 * (1 + math.cos(math.pi * done))
    return peak * min(1, (step + 1) / WARMUP_STEPS) * (cosine * 0.99 + 0.01)


class Training:
    """The networks, their optimizer and their moving average, with what a resumed run needs."""

    def __init__(self, peak_learning_rate, init):
        self.text_encoder, self.unet = build_text_encoder_and_unet()
        # The flash attention of torch has a slow backward pass for heads this small.
        self.unet.set_attn_processor(AttnProcessor())
        self.parameters = [*self.text_encoder.parameters(), *self.unet.parameters()]
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=peak_learning_rate, betas=(0.9, 0.99), weight_decay=1e-2
        )
        self.step = 0
        self.seconds = 0.0
        if os.path.exists(CHECKPOINT):
            state = torch.load(CHECKPOINT)
            self.load_networks(state)
            self.optimizer.load_state_dict(state["o"])
            self.average = state["ema"]
            self.step = state["step"]
            self.seconds = state["spent"]
        else:
            if init:
                self.load_networks(torch.load(init))
            self.average = [parameter.detach().clone() for parameter in self.parameters]

    def load_networks(self, state):
        """Takes both networks' weights from a checkpoint."""
        self.text_encoder.load_state_dict(state["te"])
        self.unet.load_state_dict(state["un"])

    def update(self, loss, rate):
        """One optimizer step, and one of the moving average."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        decay = min(0.998, (self.step + 1) / (self.step + 10))
        with torch.no_grad():
            torch._foreach_mul_(self.average, decay)
            torch._foreach_add_(self.average, [p.detach() for p in self.parameters], alpha=1 - decay)
        self.step += 1

    def save(self, seconds):
        """Writes the checkpoint in one move, so that an interruption leaves the former one whole."""
        state = {
            "te": self.text_encoder.state_dict(),
            "un": self.unet.state_dict(),
            "o": self.optimizer.state_dict(),
            "ema": self.average,
            "step": self.step,
            "spent": seconds,
        }
        torch.save(state, CHECKPOINT + ".tmp")
        os.replace(CHECKPOINT + ".tmp", CHECKPOINT)


def main():
    """Trains until the time is up."""
    args = parse_args()
    torch.set_num_threads(args.threads)
    training = Training(args.learning_rate, args.init)
    tokenizer = CLIPTokenizer.from_pretrained("run/tokenizer")
    mean, std = load_latents()
    scaling_factor = 1 / mean.std().item()
    captions, names = load_captions(), load_names()
    train_index = [i for i, c in enumerate(captions) if c["name"] in names and c["style"] in STYLES]
    print(f"names {len(names)} pictures {len(train_index)} scaling_factor {scaling_factor}", flush=True)

    alphas_cumprod = DDPMScheduler(
        num_train_timesteps=NUM_TRAIN_TIMESTEPS,
        beta_start=0.00085,
        beta_end=0.012,
        beta_schedule="scaled_linear",
        clip_sample=False,
    ).alphas_cumprod
    first_step = training.step
    rng = random.Random(first_step)
    generator = torch.Generator().manual_seed(first_step)
    start = time.time()

    def spent():
        return training.seconds + time.time() - start

    losses, queue = [], []
    while spent() < args.seconds:
        rate = learning_rate(args.learning_rate, training.step, spent() / args.seconds)
        if len(queue) < args.batch_size:
            queue = queue + rng.sample(train_index, len(train_index))
        index, queue = torch.tensor(queue[: args.batch_size]), queue[args.batch_size :]

        latents = (mean[index] + std[index] * torch.randn(mean[index].shape, generator=generator)) * scaling_factor
        prompts = ["" if rng.random() < EMPTY_PROMPT_RATE else prompt_for(captions[i], rng) for i in index.tolist()]
        input_ids = tokenizer(
            prompts, padding="max_length", max_length=77, truncation=True, return_tensors="pt"
        ).input_ids
        timestep = torch.randint(NUM_TRAIN_TIMESTEPS, (args.batch_size,), generator=generator)
        noise = torch.randn(latents.shape, generator=generator)
        alpha = alphas_cumprod[timestep].view(-1, 1, 1, 1)
        noisy_latents = alpha.sqrt() * latents + (1 - alpha).sqrt() * noise
        with torch.autocast("cpu", torch.bfloat16):
            prediction = training.unet(
                noisy_latents, timestep, training.text_encoder(input_ids).last_hidden_state
            ).sample
        # At high noise the text decides the picture, and the noise itself hardly depends on it:
        # the velocity teaches the text there, epsilon would not.
        velocity = alpha.sqrt() * noise - (1 - alpha).sqrt() * latents
        loss = (prediction.float() - velocity).pow(2).mean()
        training.update(loss, rate)

        losses.append(loss.item())
        if training.step % 50 == 0 or training.step == first_step + 5:
            seconds_per_step = (time.time() - start) / (training.step - first_step)
            print(
                f"{training.step} loss {np.mean(losses):.4f} lr {rate:.2e} {seconds_per_step:.3f} s/step", flush=True
            )
            losses = []
        if training.step % 250 == 0:
            training.save(spent())
    training.save(spent())


if __name__ == "__main__":
    main()
