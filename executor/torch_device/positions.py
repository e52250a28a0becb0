"""Which positions the tokens of a pass have, and which they may not look at."""

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from helmsman.executor._kernels import StageSpec

BUCKET = 256
"""Positions by whose multiples a decode step's attention is cut: within a bucket a graph stays the same."""


class Positions:
    """A pass of one token takes its position from the device, so that a captured graph serves a whole bucket."""

    def __init__(self, spec: "StageSpec", device: torch.device) -> None:
        self._capacity, self._group = spec["capacity"], spec["heads"] // spec["kv_heads"]
        self._at = torch.zeros(1, dtype=torch.int64, device=device)

    def place(self, at: int) -> None:
        """The position of the first token of the next range."""
        self._at.fill_(at)

    def of(self, tokens: int, past: int) -> torch.Tensor:
        """int64 (tokens,): the positions of the tokens of this pass."""
        if tokens == 1:
            return self._at
        return torch.arange(past, past + tokens, device=self._at.device)

    def seen(self, tokens: int, past: int) -> int:
        """Positions that are read: for one token whole buckets, the rest of which is hidden."""
        if tokens > 1:
            return past + tokens
        return min(self._capacity, -(-(past + 1) // BUCKET) * BUCKET)

    def later(self, tokens: int, past: int, begin: int, end: int) -> torch.Tensor:
        """bool (group * tokens, end - begin): true where a query may not look at a position of [begin, end)."""
        return self.beyond(tokens, past, begin, end).repeat(self._group, 1)

    def beyond(self, tokens: int, past: int, begin: int, end: int) -> torch.Tensor:
        """bool (tokens, end - begin): true where a position of [begin, end) comes after a token."""
        return torch.arange(begin, end, device=self._at.device) > self.of(tokens, past).unsqueeze(1)
