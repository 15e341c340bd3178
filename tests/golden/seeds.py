"""Expected values of torch's CPU normals: `main(out_dir)` writes seeds.json and one .bin (little-endian float32) per seed.

The values must come from a machine whose torch runs its AVX2 or AVX-512 kernels (both give the same bits); see crate/src/rng.rs.
"""

import array
import hashlib
import json
import pathlib
import sys

import torch

SEEDS = [0, 1, 42, 2**32 - 1]
# all sizes of the one-by-one path; multiples of 16 and others; latents of 128, 256 and 512 pixels; 768 x 512; a batch of two
COUNTS = [*range(1, 16), 16, 17, 31, 32, 33, 100, 1000, 4 * 16 * 16, 9999, 10000, 4 * 32 * 32, 4 * 64 * 64, 4 * 96 * 64, 2 * 4 * 64 * 64]


def draw(generator: torch.Generator, count: int) -> bytes:
    return torch.randn(count, generator=generator, dtype=torch.float32).numpy().astype("<f4").tobytes()


def summary(values: bytes) -> dict:
    """A hash of all bytes, and the values at both ends for people."""
    floats = array.array("f", values)
    return {"fnv1a64": f"{fnv1a64(values):016x}", "first": floats[:4].tolist(), "last": floats[-4:].tolist()}


def fnv1a64(data: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def main(out_dir: str | pathlib.Path) -> None:
    out = pathlib.Path(out_dir)
    out.mkdir(parents=True, exist_ok=True)
    capability = torch.backends.cpu.get_cpu_capability()
    if capability not in ("AVX2", "AVX512"):
        sys.exit(f"torch runs its {capability} kernels here; the expected values are those of AVX2 and AVX512")

    draws = []
    for seed in SEEDS:
        for count in COUNTS:
            values = draw(torch.Generator().manual_seed(seed), count)
            draws.append({"seed": seed, "count": count, **summary(values)})
        (out / f"randn_{seed}_10000.bin").write_bytes(draw(torch.Generator().manual_seed(seed), 10000))

    # several draws from one generator: the sine that a short draw keeps is used by the next short draw, long draws pass it by
    sequences = []
    for seed, counts in [(7, [3, 3]), (7, [1, 16, 1, 2]), (42, [15, 17, 5]), (123456789, [16384, 16384]), (5, [0, 3, 0, 1])]:
        generator = torch.Generator().manual_seed(seed)
        sequences.append({"seed": seed, "draws": [{"count": count, **summary(draw(generator, count))} for count in counts]})

    # only the low 32 bits of a seed count on a CPU
    high = [{"seed": str(seed), "count": 16, **summary(draw(torch.Generator().manual_seed(seed), 16))} for seed in (2**32, 2**32 + 42, 2**63 + 1, 2**64 - 1)]

    document = {
        "torch": torch.__version__,
        "cpu_capability": capability,
        "draws": draws,
        "sequences": sequences,
        "high_bits": high,
    }
    (out / "seeds.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    for path in sorted(out.iterdir()):
        print(path.name, path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "seeds")
