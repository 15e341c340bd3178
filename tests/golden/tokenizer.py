"""Expected token ids of transformers' CLIPTokenizer: `main(out_dir)` writes the files and cases of two vocabularies.

clip/      the full CLIP vocabulary (49408 tokens), its four classic files, cases.json
emoji/     the bundled model's vocabulary (8192 tokens: CLIP's first 7678 merges), the same files, tokenizer.json as transformers saves it
variants.json   other spellings of the special tokens in the files, over the emoji vocabulary

A case is {text, ids, token_count, cut}: ids as `tokenizer(text, truncation=True)` gives them, the number of tokens without
truncation, start and end, and the decoded rest that diffusers names in its warning (null when nothing is cut).
"""

import gzip
import importlib.util
import json
import os
import pathlib
import random
import shutil
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from transformers import CLIPTokenizer  # noqa: E402

from tokenizer_texts import TEXTS, random_texts  # noqa: E402

START, END = "<|startoftext|>", "<|endoftext|>"
EMOJI_VOCABULARY = 8192


def byte_alphabet() -> list[str]:
    """GPT-2's characters for the 256 bytes, in the order of CLIP's vocabulary."""
    printing = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    return [chr(byte) for byte in printing] + [chr(0x100 + index) for index in range(256 - len(printing))]


def clip_merges() -> list[str]:
    """The merges that OpenAI published with CLIP (MIT), as open_clip_torch carries them."""
    package = importlib.util.find_spec("open_clip")
    if package is None:
        sys.exit("pip install open_clip_torch: its bpe_simple_vocab_16e6.txt.gz is the source of CLIP's vocabulary")
    path = pathlib.Path(package.submodule_search_locations[0]) / "bpe_simple_vocab_16e6.txt.gz"
    lines = gzip.decompress(path.read_bytes()).decode("utf-8").split("\n")
    return lines[1 : 49408 - 512 - 2 + 1]


def write_files(folder: pathlib.Path, merges: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    alphabet = byte_alphabet()
    tokens = alphabet + [char + "</w>" for char in alphabet] + [merge.replace(" ", "") for merge in merges] + [START, END]
    assert len(tokens) == len(set(tokens)) == len(merges) + 514
    vocab = {token: index for index, token in enumerate(tokens)}
    (folder / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False), encoding="utf-8")
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", encoding="utf-8")
    config = {
        "add_prefix_space": False,
        "bos_token": {"__type": "AddedToken", **properties(START)},
        "do_lower_case": True,
        "eos_token": {"__type": "AddedToken", **properties(END)},
        "errors": "replace",
        "model_max_length": 77,
        "pad_token": END,
        "tokenizer_class": "CLIPTokenizer",
        "unk_token": {"__type": "AddedToken", **properties(END)},
    }
    special = {"bos_token": properties(START), "eos_token": properties(END), "pad_token": END, "unk_token": properties(END)}
    write_json(folder / "tokenizer_config.json", config)
    write_json(folder / "special_tokens_map.json", special)


def properties(content: str, **changes: bool) -> dict:
    return {"content": content, "lstrip": False, "normalized": True, "rstrip": False, "single_word": False, **changes}


def write_json(path: pathlib.Path, document) -> None:
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def case(tokenizer: CLIPTokenizer, text: str) -> dict:
    whole = tokenizer(text, padding="longest", verbose=False).input_ids
    ids = tokenizer(text, truncation=True, max_length=tokenizer.model_max_length).input_ids
    padded = tokenizer(text, padding="max_length", truncation=True, max_length=tokenizer.model_max_length).input_ids
    assert padded == ids + [tokenizer.pad_token_id] * (tokenizer.model_max_length - len(ids))
    # pipeline_stable_diffusion.py, encode_prompt
    cut = tokenizer.batch_decode([whole[tokenizer.model_max_length - 1 : -1]])[0] if len(whole) > len(ids) else None
    return {"text": text, "ids": ids, "token_count": len(whole) - 2, "cut": cut}


def write_cases(path: pathlib.Path, tokenizer: CLIPTokenizer, texts: list[str]) -> None:
    """One case a line, so that a change of one case is a change of one line."""
    cases = ",\n".join(json.dumps(case(tokenizer, text), ensure_ascii=True) for text in texts)
    head = json.dumps({"pad_token_id": tokenizer.pad_token_id, "model_max_length": tokenizer.model_max_length})
    path.write_text(f'{head[:-1]}, "cases": [\n{cases}\n]}}\n', encoding="ascii")


def variants() -> list[dict]:
    """Spellings of the special tokens that exporters have used, and each property of an added token."""
    base = {"model_max_length": 77, "tokenizer_class": "CLIPTokenizer"}
    tagged = lambda content, **changes: {"__type": "AddedToken", **properties(content, **changes)}
    texts = {"bos_token": START, "eos_token": END, "unk_token": END, "pad_token": END}
    objects = {name: tagged(content) for name, content in texts.items()}
    decoder = {
        "0": properties("!", normalized=False) | {"special": True},
        "8190": properties(START) | {"special": True},
        "8191": properties(END) | {"special": True},
    }
    extra = [
        tagged("<Left>", lstrip=True),
        tagged("<right>", rstrip=True, normalized=False),
        tagged("word", single_word=True),
        tagged("<left><longer>"),
        "Plain",
    ]
    return [
        {"name": "no tokens named", "tokenizer_config": base},
        {"name": "plain texts", "tokenizer_config": {**base, **texts}},
        {"name": "objects", "tokenizer_config": {**base, **objects}},
        {"name": "pad is an exclamation mark", "tokenizer_config": {**base, **objects, "pad_token": "!"}},
        {"name": "later object wins", "tokenizer_config": {**base, **objects, "eos_token": tagged(END, normalized=False)}},
        {"name": "map before config", "tokenizer_config": {**base, **objects}, "special_tokens_map": {**texts, "pad_token": "!"}},
        {
            "name": "added_tokens_decoder",
            "tokenizer_config": {**base, **texts, "pad_token": "!", "added_tokens_decoder": decoder},
            "special_tokens_map": {"pad_token": "x"},
        },
        {"name": "added_tokens_decoder alone", "tokenizer_config": {**base, "added_tokens_decoder": decoder}},
        {"name": "additional tokens", "tokenizer_config": {**base, **texts, "additional_special_tokens": extra}},
        {"name": "short", "tokenizer_config": {**base, **texts, "model_max_length": 8}},
    ]


VARIANT_TEXTS = [
    "",
    "a red apple",
    "! !! !!! a!b",
    f"a{END}b{START}!?",
    f"a{END.upper()}b{START.upper()}!?",
    f"{START} {END}",
    "x  <left>  y <LEFT>z <left><longer>",
    "x  <right>  y<RIGHT>  z",
    "word words sword Word, wor\u0301d word_ 1word word1 \u0301word word",
    "plain Plain xPlainx",
    "one two three four five six seven eight nine",
]


def main(out_dir: str | pathlib.Path) -> None:
    out = pathlib.Path(out_dir)
    merges = clip_merges()
    texts = list(dict.fromkeys([*TEXTS, *random_texts(random.Random(20240229))]))
    for name, count in (("clip", len(merges)), ("emoji", EMOJI_VOCABULARY - 514)):
        folder = out / name
        write_files(folder, merges[:count])
        tokenizer = CLIPTokenizer.from_pretrained(folder)
        write_cases(folder / "cases.json", tokenizer, texts)
        if name == "emoji":
            with tempfile.TemporaryDirectory() as saved:
                tokenizer.save_pretrained(saved)
                shutil.copy(pathlib.Path(saved) / "tokenizer.json", folder / "tokenizer.json")

    documents = []
    for variant in variants():
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            for file in ("vocab.json", "merges.txt"):
                shutil.copy(out / "emoji" / file, path / file)
            write_json(path / "tokenizer_config.json", variant["tokenizer_config"])
            if "special_tokens_map" in variant:
                write_json(path / "special_tokens_map.json", variant["special_tokens_map"])
            tokenizer = CLIPTokenizer.from_pretrained(path)
            cases = [case(tokenizer, text) for text in VARIANT_TEXTS]
        documents.append({**variant, "pad_token_id": tokenizer.pad_token_id, "cases": cases})
    lines = ",\n".join(json.dumps(document, ensure_ascii=True) for document in documents)
    (out / "variants.json").write_text(f"[\n{lines}\n]\n", encoding="ascii")
    print(f"tokenizer: {len(texts)} texts for each of 2 vocabularies, {len(documents)} variants")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "tokenizer")
