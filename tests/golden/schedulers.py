"""Expected schedules and samples of diffusers' PNDM, DDIM and Euler schedulers, on a small model made of sines.

Writes two files into `schedulers/`: `cases.json` (the cases) and `values.bin` (their float32 values, little endian, in the order of the cases).
A case takes from the second file, in this order: `timesteps` values, `sigmas` values (Euler; 0 otherwise), one value for
init_noise_sigma, then `timesteps + 1` samples of 16 values: the first one and the one after each model call.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from diffusers import DDIMScheduler, EulerDiscreteScheduler, PNDMScheduler
from diffusers.utils import logging

SIZE = 16
CLASSES = {"pndm": PNDMScheduler, "ddim": DDIMScheduler, "euler": EulerDiscreteScheduler}

# Stable Diffusion 1.x as published: no timestep_spacing, so each class takes its own default.
STOCK = {
    "_class_name": "PNDMScheduler",
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "beta_start": 0.00085,
    "clip_sample": False,
    "num_train_timesteps": 1000,
    "set_alpha_to_one": False,
    "skip_prk_steps": True,
    "steps_offset": 1,
    "trained_betas": None,
}
# The emoji model that comes with the page.
BUNDLED = {**STOCK, "prediction_type": "v_prediction", "timestep_spacing": "leading"}
STEPS = (1, 2, 4, 20, 50)


def cases():
    """(name, scheduler, config, steps) of every case."""
    for kind in CLASSES:
        for prediction in ("epsilon", "v_prediction"):
            config = {**STOCK, "prediction_type": prediction}
            for steps in STEPS:
                yield f"stock {prediction}", kind, config, steps
            for spacing in ("leading", "trailing", "linspace"):
                for steps in STEPS:
                    yield f"{spacing} {prediction}", kind, {**config, "timestep_spacing": spacing}, steps
        for steps in STEPS:
            yield "bundled", kind, BUNDLED, steps
        yield "nothing but defaults", kind, {"_class_name": CLASSES[kind].__name__, "skip_prk_steps": True}, 7
        for beta_schedule in ("linear", "squaredcos_cap_v2"):
            yield beta_schedule, kind, {**STOCK, "beta_schedule": beta_schedule}, 9
        betas = np.linspace(0.001, 0.05, 100).round(6).tolist()
        yield "trained_betas", kind, {**STOCK, "trained_betas": betas, "num_train_timesteps": 100}, 6
        yield "set_alpha_to_one", kind, {**STOCK, "set_alpha_to_one": True}, 5
        for steps in (3, 27, 13):
            yield "trailing, other strides", kind, {**STOCK, "timestep_spacing": "trailing"}, steps
        for steps in (3, 27):
            yield "leading, other strides", kind, {**STOCK, "timestep_spacing": "leading"}, steps
    for prediction in ("epsilon", "v_prediction"):
        for steps in (4, 5, 20, 50):
            yield f"Runge-Kutta {prediction}", "pndm", {**STOCK, "skip_prk_steps": False, "prediction_type": prediction}, steps
    yield "clip_sample", "ddim", {**STOCK, "clip_sample": True}, 8
    yield "clip_sample_range", "ddim", {**STOCK, "clip_sample": True, "clip_sample_range": 1.5}, 8
    for kind in ("ddim", "euler"):
        yield "predicts the sample", kind, {**STOCK, "_class_name": CLASSES[kind].__name__, "prediction_type": "sample"}, 8
    zero_snr = {**STOCK, "prediction_type": "v_prediction", "rescale_betas_zero_snr": True, "timestep_spacing": "trailing"}
    for kind in ("ddim", "euler"):
        yield "zero terminal SNR", kind, zero_snr, 10
    for spacing in ("leading", "trailing", "linspace"):
        for sigmas in ("use_karras_sigmas", "use_exponential_sigmas"):
            for prediction in ("epsilon", "v_prediction"):
                config = {**STOCK, "timestep_spacing": spacing, sigmas: True, "prediction_type": prediction}
                # one linspace step starts at the largest sigma in latent-canvas, at the smallest in diffusers
                for steps in STEPS[spacing == "linspace":] + (3, 5, 8):
                    yield f"{sigmas} {spacing} {prediction}", "euler", config, steps
    yield "sigma_min, sigma_max", "euler", {**STOCK, "use_karras_sigmas": True, "sigma_min": 0.1, "sigma_max": 10.0}, 6
    yield "final sigma_min", "euler", {**STOCK, "final_sigmas_type": "sigma_min"}, 6
    yield "log_linear", "euler", {**STOCK, "interpolation_type": "log_linear"}, 6
    yield "continuous", "euler", {**STOCK, "prediction_type": "v_prediction", "timestep_type": "continuous"}, 6


def model(sample, timestep):
    """The stand-in for a UNet: float64 inside, so that every language computes the same float32 values."""
    x = sample.numpy().astype(np.float64)
    index = np.arange(SIZE)
    output = 0.9 * np.sin(1.1 * x + 0.003 * float(timestep) + 0.5 * index) + 0.15 * np.roll(x, -1)
    return torch.from_numpy(output.astype(np.float32))


class Stride:
    """Stands in for num_inference_steps, so that num_train_timesteps // it is the stride of the list of timesteps.

    diffusers' PNDM and DDIM step by num_train_timesteps // steps, which is not the stride of their own list for `linspace`,
    nor for `trailing` when the steps do not divide (https://github.com/huggingface/diffusers/issues/9261).
    """

    def __init__(self, stride):
        self.stride = stride

    def __rfloordiv__(self, _):
        return self.stride


def stride(scheduler, kind, step):
    """The distance from this call's timestep to the next one in the list; past 0 at the end."""
    timesteps = scheduler.timesteps.tolist()
    if kind == "pndm" and step == 1:  # the repeated call moves as the first did
        step = 0
    return timesteps[step] - timesteps[step + 1] if step + 1 < len(timesteps) else timesteps[step] + 1


def run(kind, config, steps):
    scheduler = CLASSES[kind].from_config(config)
    scheduler.set_timesteps(steps)
    timesteps = scheduler.timesteps
    follow_list = kind != "euler" and scheduler.config.timestep_spacing != "leading"
    init_noise_sigma = torch.as_tensor(scheduler.init_noise_sigma, dtype=torch.float32)
    noise = torch.tensor([1.6 * np.sin(1.0 + 2.3 * i) for i in range(SIZE)], dtype=torch.float32)
    sample = noise * init_noise_sigma
    samples = [sample]
    for step, timestep in enumerate(timesteps):
        if follow_list:
            scheduler.num_inference_steps = Stride(stride(scheduler, kind, step))
        output = model(scheduler.scale_model_input(sample, timestep), timestep)
        sample = scheduler.step(output, timestep, sample).prev_sample
        samples.append(sample)
    sigmas = scheduler.sigmas.tolist() if kind == "euler" else []
    values = [*timesteps.tolist(), *sigmas, init_noise_sigma.item(), *torch.cat(samples).tolist()]
    values = np.array(values, dtype="<f4")
    if not np.isfinite(values).all():
        raise ValueError(f"{kind}, {steps} steps, {config}: not finite")
    return len(timesteps), len(sigmas), values


def main(out_dir):
    logging.set_verbosity_error()
    out_dir = Path(out_dir) / "schedulers"
    out_dir.mkdir(parents=True, exist_ok=True)
    lines, values = [], []
    for name, kind, config, steps in cases():
        timesteps, sigmas, case_values = run(kind, config, steps)
        case = {"name": name, "scheduler": kind, "steps": steps, "timesteps": timesteps, "sigmas": sigmas, "config": config}
        lines.append(json.dumps(case))
        values.append(case_values)
    (out_dir / "cases.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")
    (out_dir / "values.bin").write_bytes(np.concatenate(values).tobytes())


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent)
