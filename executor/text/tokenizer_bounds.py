"""Bounds on what a tokenizer.json may do to a text: how much longer its steps may make it, before any text is given to
it.

Normalizers replace characters by texts, and post-processors put tokens beside those of a text. A file may chain them so
that one character becomes gigabytes. Real ones put a word before a text, or take a character apart (18 for one at most,
by Unicode's compatibility decomposition)."""

import json
from base64 import b64decode
from binascii import Error as NotBase64Error
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

MAX_GROWTH = 64.0
"""The number of characters, and of tokens, that a tokenizer may make of one character at most."""
MAX_ADDED_TOKENS = 64
"""The number of tokens at most that a tokenizer may add to those of a text."""
_DECOMPOSED = 18.0
_LOWERED = 3.0


def too_much(tokenizer: Any) -> tuple[str, str] | None:
    """(field, why) of the first step of a `tokenizers.Tokenizer` that makes too much of a text; None where all are
    bounded."""
    for field in ("normalizer", "pre_tokenizer", "decoder"):
        longer = _longer(_state(getattr(tokenizer, field)))
        if longer > MAX_GROWTH:
            return field, f"it may make a text {longer:.3g} times as long, {MAX_GROWTH:g} is the most"
    copies, beside = _beside(_state(tokenizer.post_processor))
    if copies > MAX_GROWTH or beside > MAX_ADDED_TOKENS:
        return (
            "post_processor",
            f"it puts {beside} tokens beside {copies} copies of a text, {MAX_ADDED_TOKENS} are the most",
        )
    return None


def _state(step: Any) -> Any:
    """A step as it stands in tokenizer.json."""
    return None if step is None else json.loads(step.__getstate__())


def _longer(step: Any) -> float:
    """Into how many characters a step makes one at most."""
    if not isinstance(step, dict):
        return 1.0
    known: dict[str, Callable[[Mapping[str, Any]], float]] = {
        "Sequence": lambda chain: prod(_longer(part) for part in _parts(chain)),
        "Replace": _replaced,
        "Prepend": lambda put: 1.0 + len(put["prepend"]),
        "Metaspace": lambda put: 1.0 + len(put["replacement"]),
        "Precompiled": _mapped,
        "NFKC": lambda _: _DECOMPOSED,
        "NFKD": lambda _: _DECOMPOSED,
        "NFD": lambda _: _DECOMPOSED,
        "BertNormalizer": lambda _: _DECOMPOSED,
        "Lowercase": lambda _: _LOWERED,
        "ByteLevel": lambda _: 4.0,
    }
    longer = known.get(step["type"])
    return 1.0 if longer is None else longer(step)


def _parts(chain: Mapping[str, Any]) -> Sequence[Any]:
    return next((chain[key] for key in ("normalizers", "pretokenizers", "decoders", "processors") if key in chain), ())


def _replaced(step: Mapping[str, Any]) -> float:
    """A pattern of text is there once in its length; a regular expression may match nothing, before every character."""
    pattern = step["pattern"].get("String", "")
    return max(1.0, len(step["content"]) / len(pattern)) if pattern else 1.0 + len(step["content"])


def _mapped(step: Mapping[str, Any]) -> float:
    """SentencePiece's table: the bytes of a trie, the trie, and the texts that it leads to, each ended by a zero."""
    try:
        table = b64decode(step["precompiled_charsmap"] or "")
    except NotBase64Error:
        return float("inf")
    texts = table[4 + int.from_bytes(table[:4], "little") :]
    return float(max(map(len, texts.split(b"\0"))))


def _beside(step: Any) -> tuple[int, int]:
    """(copies of a text, tokens beside them) that a post-processor makes."""
    if not isinstance(step, dict):
        return 1, 0
    if step["type"] == "Sequence":
        copies, tokens = 1, 0
        for part in _parts(step):
            more, put = _beside(part)
            copies, tokens = copies * more, tokens * more + put
        return copies, tokens
    if step["type"] != "TemplateProcessing":
        return 1, 2
    ids = {name: len(token["ids"]) for name, token in step["special_tokens"].items()}
    single: list[Mapping[str, Any]] = step["single"]
    tokens = sum(ids[piece["SpecialToken"]["id"]] for piece in single if "SpecialToken" in piece)
    return len([piece for piece in single if "Sequence" in piece]), tokens
