"""Hashes of prompts' blocks: equal ones mean that all tokens up to a block's end are equal."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from secrets import token_bytes

import numpy as np


@dataclass(frozen=True)
class BlockHashes:
    """Of full blocks of `block` tokens. `key`: without it nobody can look for prompts whose hashes are another's: 64
    bits would be few against who could try at home."""

    block: int
    key: bytes = field(default_factory=lambda: token_bytes(32), repr=False)

    def __call__(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """One for each full block, of its tokens and all before them."""
        ids, size = np.array(tokens, np.int32).tobytes(), 4 * self.block
        running, result = blake2b(digest_size=8, key=self.key), []
        for end in range(size, len(ids) + 1, size):
            running.update(ids[end - size : end])
            result.append(int.from_bytes(running.copy().digest(), "little", signed=True))
        return tuple(result)
