"""Regenerates the golden fixtures of this folder with diffusers on PyTorch: `./build.sh golden`.

    python tests/golden/generate.py                 # everything
    python tests/golden/generate.py --only models   # one part
    python tests/golden/generate.py --full          # instead: the full-size model and its values, 2 GB and some minutes

Each part is a module of the same name with a function `main(directory)`, imported as `golden.<name>`. This folder stands last
on the import path instead of first, so that a file name here (`tokenizer.py`, `models.py`) can hide no installed package.
"""

import argparse
import importlib
import sys
import time
from pathlib import Path

DIRECTORY = Path(__file__).resolve().parent
# The folder that each part is given. Order matters: `models` reads the vocabulary that `tokenizer` writes.
PARTS = {
    "tokenizer": DIRECTORY / "tokenizer",
    "seeds": DIRECTORY / "seeds",
    "schedulers": DIRECTORY,
    "models": DIRECTORY,
    "images": DIRECTORY,
}
# Takes minutes, and writes gigabytes that no test needs: only when asked for.
FULL = {"full_size": DIRECTORY}


def main() -> None:
    arguments = argparse.ArgumentParser(description="Regenerates the golden fixtures with diffusers on PyTorch.")
    arguments.add_argument("--only", choices=PARTS, help="one part instead of all")
    arguments.add_argument("--full", action="store_true", help="the full-size model instead, which nothing else here needs")
    parsed = arguments.parse_args()
    if parsed.full and parsed.only is not None:
        arguments.error("--full and --only exclude each other")

    if DIRECTORY.name != "golden":
        raise SystemExit(f"generate.py expects to lie in a folder named golden, not {DIRECTORY.name}")
    sys.path = [entry for entry in sys.path if Path(entry or ".").resolve() != DIRECTORY]
    sys.path += [str(DIRECTORY.parent), str(DIRECTORY)]

    parts = FULL if parsed.full else PARTS if parsed.only is None else {parsed.only: PARTS[parsed.only]}
    for part, directory in parts.items():
        start = time.monotonic()
        importlib.import_module(f"golden.{part}").main(directory)
        print(f"{part}: {time.monotonic() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
