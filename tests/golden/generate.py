"""Regenerates the golden fixtures of this folder with diffusers on PyTorch: `./build.sh golden`.

    python tests/golden/generate.py                 # everything
    python tests/golden/generate.py --only models   # one part

Each part is a module of the same name with a function `main(directory)`. The modules are imported as `golden.<name>`, and
this folder itself is taken off the import path, so that a file name here (`tokenizer.py`, `models.py`) can hide no
installed package.
"""

import argparse
import importlib
import sys
import time
from pathlib import Path

# Order matters: `models` reads the vocabulary that `tokenizer` writes.
PARTS = ("tokenizer", "seeds", "schedulers", "models", "images")


def main() -> None:
    directory = Path(__file__).resolve().parent
    arguments = argparse.ArgumentParser(description="Regenerates the golden fixtures with diffusers on PyTorch.")
    arguments.add_argument("--only", choices=PARTS, help="one part instead of all")
    only = arguments.parse_args().only

    sys.path = [entry for entry in sys.path if Path(entry or ".").resolve() != directory]
    sys.path.append(str(directory.parent))
    if directory.name != "golden":
        raise SystemExit(f"generate.py expects to lie in a folder named golden, not {directory.name}")

    for part in PARTS if only is None else (only,):
        start = time.monotonic()
        importlib.import_module(f"golden.{part}").main(directory)
        print(f"{part}: {time.monotonic() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
