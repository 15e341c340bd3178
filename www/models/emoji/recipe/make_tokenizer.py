"""Writes a tokenizer in CLIP's format that has only the first merges of CLIP's own list."""

import argparse
import gzip
import json
from pathlib import Path

START, END = "<|startoftext|>", "<|endoftext|>"


def byte_characters():
    """The character that stands for each byte, in the order of CLIP's vocabulary."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [chr(byte) for byte in printable] + [chr(256 + i) for i in range(256 - len(printable))]


def special_token(content):
    """A special token as special_tokens_map.json describes it."""
    return {"content": content, "lstrip": False, "normalized": True, "rstrip": False, "single_word": False}


def added_token(content):
    """A special token as tokenizer_config.json describes it."""
    return {"__type": "AddedToken", **special_token(content)}


def write_json(path, value, **options):
    """Writes value to path as UTF-8 JSON."""
    path.write_text(json.dumps(value, **options), encoding="utf-8")


def main():
    """Reads the command line and writes the four files of the tokenizer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path, help="bpe_simple_vocab_16e6.txt.gz of the package open_clip_torch")
    parser.add_argument("out", type=Path, help="folder to write, e.g. run/tokenizer")
    parser.add_argument("size", type=int, nargs="?", default=8192, help="vocabulary size")
    args = parser.parse_args()

    characters = byte_characters()
    merge_count = args.size - 2 * len(characters) - 2
    lines = gzip.decompress(args.source.read_bytes()).decode().split("\n")
    merges = lines[1 : 1 + merge_count]
    vocabulary = [
        *characters,
        *(character + "</w>" for character in characters),
        *("".join(merge.split()) for merge in merges),
        START,
        END,
    ]
    assert len(vocabulary) == len(set(vocabulary)) == args.size

    args.out.mkdir(parents=True, exist_ok=True)
    write_json(args.out / "vocab.json", {token: i for i, token in enumerate(vocabulary)}, ensure_ascii=False)
    (args.out / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", encoding="utf-8")
    write_json(
        args.out / "tokenizer_config.json",
        {
            "add_prefix_space": False,
            "bos_token": added_token(START),
            "do_lower_case": True,
            "eos_token": added_token(END),
            "errors": "replace",
            "model_max_length": 77,
            "pad_token": END,
            "tokenizer_class": "CLIPTokenizer",
            "unk_token": added_token(END),
        },
        indent=2,
    )
    write_json(
        args.out / "special_tokens_map.json",
        {
            "bos_token": special_token(START),
            "eos_token": special_token(END),
            "pad_token": END,
            "unk_token": special_token(END),
        },
        indent=2,
    )


if __name__ == "__main__":
    main()
