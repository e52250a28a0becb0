"""A byte-level tokenizer: one token per byte, ids inside any vocabulary of 256 and the end tokens."""

import json
from typing import Any

from helmsman.schemas.errors import UsageError
from helmsman.schemas.model import Model

PRINTABLE = (ord("\n"), *range(32, 127))


def byte_ids(model: Model) -> tuple[int, ...]:
    """The token id of every byte 0..255: the lowest ids that do not end a text. Raises UsageError."""
    free = [index for index in range(min(model.vocab, 256 + len(model.eos))) if index not in model.eos]
    if len(free) < 256:
        raise UsageError("too small for a byte-level tokenizer", field="vocab", value=model.vocab,
                         remedy="use a vocabulary of 256 tokens and the end tokens, or more")  # fmt: skip
    return tuple(free[:256])


def printable_ids(model: Model) -> tuple[int, ...]:
    """The token ids of the newline and the printable ASCII characters."""
    ids = byte_ids(model)
    return tuple(ids[byte] for byte in PRINTABLE)


def end_tokens(model: Model) -> dict[str, int]:
    """The special tokens that end a text, those inside the vocabulary."""
    return {f"<|end-{index}|>": index for index in model.eos if index < model.vocab}


def tokenizer_json(model: Model) -> str:
    """The content of `tokenizer.json`: byte-level BPE without merges, and the end tokens."""
    symbols, ends = byte_symbols(), end_tokens(model)
    ids = {symbols[byte]: index for byte, index in enumerate(byte_ids(model))}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(text, index) for text, index in ends.items()],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": _bpe({**ids, **ends}),
    }
    return json.dumps(content, ensure_ascii=False, indent=1)


def tokenizer_config_json(model: Model) -> str:
    """The content of `tokenizer_config.json`."""
    content = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": model.max_context,
        "clean_up_tokenization_spaces": False,
        "eos_token": next(iter(end_tokens(model)), None),
    }
    return json.dumps(content, indent=1)


def _bpe(vocabulary: dict[str, int]) -> dict[str, Any]:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": dict(sorted(vocabulary.items(), key=lambda item: item[1])),
        "merges": [],
    }


def _added(text: str, index: int) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": index, "content": text, **flags, "special": True}


def byte_symbols() -> list[str]:
    """GPT-2's printable stand-in for every byte: itself where visible, else a character from U+0100 on."""
    visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = [byte for byte in range(256) if byte not in visible]
    return [chr(byte) if byte in visible else chr(256 + hidden.index(byte)) for byte in range(256)]
