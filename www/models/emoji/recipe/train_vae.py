"""Trains the autoencoder on the rendered pictures. Resumes from run/vae.pt."""

import argparse
import math
import os
import time

import numpy as np
import torch
import torch.nn.functional as F

from data import PICTURE_SIZE_PX, load_captions, load_pictures, to_sample
from networks import build_vae

CHECKPOINT = "run/vae.pt"
PEAK_LEARNING_RATE = 1e-3
WARMUP_STEPS = 200
KL_WEIGHT = 1e-3
MAX_SHIFT_PX = 8
CROP_PX = 64


def parse_args():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=1e9, help="stop early after this long")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def sample_batch(pictures, batch_size, generator):
    """Random pictures, flipped, shifted over white, and cut to 64 px (or a quarter as many whole ones)."""
    index = torch.randint(len(pictures), (batch_size,), generator=generator)
    sample = to_sample(pictures[index.numpy()])
    if torch.rand(1, generator=generator) < 0.5:
        sample = sample.flip(3)
    shift, shift_x, shift_y, crop = torch.rand(4, generator=generator)
    if shift < 0.5:
        left = int(shift_x * (2 * MAX_SHIFT_PX + 1))
        top = int(shift_y * (2 * MAX_SHIFT_PX + 1))
        sample = F.pad(sample, (MAX_SHIFT_PX,) * 4, value=1.0)
        sample = sample[:, :, top : top + PICTURE_SIZE_PX, left : left + PICTURE_SIZE_PX]
    if crop < 0.7:
        last = PICTURE_SIZE_PX - CROP_PX + 1
        top = int(torch.randint(last, (1,), generator=generator))
        left = int(torch.randint(last, (1,), generator=generator))
        sample = sample[:, :, top : top + CROP_PX, left : left + CROP_PX]
    else:
        sample = sample[: max(batch_size // 4, 1)]
    return sample.contiguous(memory_format=torch.channels_last)


def pyramid_loss(image, target):
    """Mean absolute difference of the pictures and of their gradients, on four scales."""
    loss = 0
    for _ in range(4):
        loss = loss + (image - target).abs().mean()
        loss = loss + (image.diff(dim=3) - target.diff(dim=3)).abs().mean()
        loss = loss + (image.diff(dim=2) - target.diff(dim=2)).abs().mean()
        image, target = F.avg_pool2d(image, 2), F.avg_pool2d(target, 2)
    return loss


def learning_rate(step, steps):
    """Linear warm-up times a cosine that ends at 3 %."""
    cosine = 0.5 * (1 + math.cos(math.pi * step / steps))
    return PEAK_LEARNING_RATE * min(1, (step + 1) / WARMUP_STEPS) * (cosine * 0.97 + 0.03)


def save(vae, optimizer, step):
    """Writes the checkpoint in one move, so that an interruption leaves the former one whole."""
    torch.save({"m": vae.state_dict(), "o": optimizer.state_dict(), "step": step}, CHECKPOINT + ".tmp")
    os.replace(CHECKPOINT + ".tmp", CHECKPOINT)


def main():
    """Trains until the steps are done or the time is up."""
    args = parse_args()
    torch.set_num_threads(args.threads)
    pictures = load_pictures()
    assert len(pictures) == len(load_captions())

    vae = build_vae()
    optimizer = torch.optim.AdamW(vae.parameters(), lr=4e-4, betas=(0.9, 0.99), weight_decay=1e-4)
    first_step = 0
    if os.path.exists(CHECKPOINT):
        state = torch.load(CHECKPOINT)
        vae.load_state_dict(state["m"])
        optimizer.load_state_dict(state["o"])
        first_step = state["step"]
    vae = vae.to(memory_format=torch.channels_last)
    generator = torch.Generator().manual_seed(first_step + 1)

    start = time.time()
    history = []
    for step in range(first_step, args.steps):
        rate = learning_rate(step, args.steps)
        for group in optimizer.param_groups:
            group["lr"] = rate
        sample = sample_batch(pictures, args.batch_size, generator)
        with torch.autocast("cpu", torch.bfloat16):
            posterior = vae.encode(sample).latent_dist
            latents = posterior.mean + torch.exp(0.5 * posterior.logvar) * torch.randn_like(posterior.mean)
            decoded = vae.decode(latents).sample
        decoded = decoded.float()
        kl = posterior.kl().mean() / posterior.mean[0].numel()
        loss = pyramid_loss(decoded, sample) + KL_WEIGHT * kl
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(vae.parameters(), 1.0)
        optimizer.step()

        history.append((loss.item(), (decoded - sample).pow(2).mean().item(), kl.item()))
        if step % 50 == 49 or step == first_step + 4:
            mean_loss, mean_squared_error, mean_kl = np.mean(history, 0)
            history = []
            print(
                f"{step + 1} loss {mean_loss:.4f} psnr {10 * math.log10(4 / mean_squared_error):.2f} dB "
                f"kl {mean_kl:.3f} std {posterior.mean.float().std():.3f} lr {rate:.2e} "
                f"{(time.time() - start) / (step - first_step + 1):.3f} s/step",
                flush=True,
            )
        out_of_time = time.time() - start > args.seconds
        if step % 500 == 499 or out_of_time or step == args.steps - 1:
            save(vae, optimizer, step + 1)
        if out_of_time:
            break


if __name__ == "__main__":
    main()
