"""Prompts of a given length: token ids for servers that take them, words for others."""

from collections.abc import Callable
from typing import Any

import numpy as np

from helmsman.schemas.requests import Requests

_IDS = (16, 256)
"""From there up to there are ordinary tokens in nearly every vocabulary: single bytes or characters."""
_WORDS = ("time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school", "state",
          "family", "student", "group", "country", "problem", "hand", "part")  # fmt: skip
"""Each a token of its own, with the space before it, in byte-level BPE vocabularies."""

Prompt = Callable[[int], Any]
"""The prompt of a request, as JSON."""


def id_prompts(requests: Requests, seed: int) -> Prompt:
    """Token ids; blocks of equal hashes have equal tokens, so prefixes are shared as in the trace."""

    def prompt(row: int) -> list[int]:
        known = requests.hashes[requests.hash_start[row] : requests.hash_start[row + 1]]
        blocks = [_ids((seed, 1, int(block_hash) % 2**63), requests.hash_block) for block_hash in known]
        length = int(requests.prompt_tokens[row])
        rest = _ids((seed, 0, row), max(0, length - len(known) * requests.hash_block))
        result: list[int] = np.concatenate([*blocks, rest])[:length].tolist()
        return result

    return prompt


def _ids(seed: tuple[int, ...], count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.random.default_rng(seed).integers(*_IDS, count)


def word_prompts(requests: Requests, seed: int) -> Prompt:
    """As many words; what they are in tokens, the server says."""

    def prompt(row: int) -> str:
        places = np.random.default_rng((seed, 0, row)).integers(len(_WORDS), size=int(requests.prompt_tokens[row]))
        return " ".join(_WORDS[place] for place in places)

    return prompt
