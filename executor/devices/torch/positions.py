"""Which positions the tokens of a pass have, and which they may not look at."""

from collections.abc import Callable
from typing import NamedTuple

import torch

BUCKET = 256
"""Positions by whose multiples a decode step's attention is cut: within a bucket a graph stays the same."""


class Reach(NamedTuple):
    """The positions of a cache that a token sees: itself and the `window` - 1 before it, None: all before it. `ring`:
    rows of the cache, where they are fewer than all positions."""

    window: int | None = None
    ring: int | None = None


EVERYTHING = Reach()
"""The reach of attention over all that is past."""


class Positions:
    """A pass of one token takes its position from the device, so that a captured graph serves a whole bucket.

    `capacity`: positions of the caches."""

    def __init__(self, capacity: int, device: torch.device) -> None:
        self._capacity = capacity
        self._at = torch.zeros(1, dtype=torch.int64, device=device)
        self._made: dict[tuple[object, ...], torch.Tensor] = {}

    def begin(self) -> None:
        """A range of operations begins: what it asks for again is made once, and forgotten before the next range, as a
        graph may not read what another one has made."""
        self._made.clear()

    def place(self, at: int) -> None:
        """The position of the first token of the next range."""
        self._at.fill_(at)

    def of(self, tokens: int, past: int) -> torch.Tensor:
        """int64 (tokens,): the positions of the tokens of this pass."""
        if tokens == 1:
            return self._at
        return self._once(("of", past, tokens), lambda: torch.arange(past, past + tokens, device=self._at.device))

    def seen(self, tokens: int, past: int, ring: int | None = None) -> int:
        """Rows that are read: for one token whole buckets, the rest of which is hidden; of a ring of so many rows all
        of them."""
        if ring is not None:
            return ring
        if tokens > 1:
            return past + tokens
        return min(self._capacity, -(-(past + 1) // BUCKET) * BUCKET)

    def later(
        self, group: int, tokens: int, past: int, begin: int, end: int, reach: Reach = EVERYTHING
    ) -> torch.Tensor:
        """bool (group * tokens, end - begin): true where a query may not look at a row of [begin, end); `group`: query
        heads of a KV head."""
        key = "later", group, tokens, past, begin, end, reach
        return self._once(key, lambda: self.beyond(tokens, past, begin, end, reach).repeat(group, 1))

    def beyond(self, tokens: int, past: int, begin: int, end: int, reach: Reach = EVERYTHING) -> torch.Tensor:
        """bool (tokens, end - begin): true where a row of [begin, end) holds what comes after a token, or has left its
        window."""
        at = self.of(tokens, past).unsqueeze(1)
        held = torch.arange(begin, end, device=self._at.device)
        if reach.ring is not None:  # each row holds the last position that fell to it
            last = at[-1]
            held = last - (last - held) % reach.ring
        hidden = held > at
        if reach.window is not None:
            hidden = hidden | (held <= at - reach.window)
        return hidden if reach.ring is None else hidden | (held < 0)

    def mask(
        self, group: int, tokens: int, past: int, count: int, kind: torch.dtype, reach: Reach = EVERYTHING
    ) -> torch.Tensor:
        """(group * tokens, count) of type `kind`: what is added to scores of the first `count` rows, -inf where a token
        may not look at one."""

        def made() -> torch.Tensor:
            hidden = self.later(group, tokens, past, 0, count, reach)
            return torch.zeros(hidden.shape, dtype=kind, device=hidden.device).masked_fill_(hidden, -torch.inf)

        return self._once(("mask", group, tokens, past, count, kind, reach), made)

    def _once(self, key: tuple[object, ...], make: Callable[[], torch.Tensor]) -> torch.Tensor:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]
