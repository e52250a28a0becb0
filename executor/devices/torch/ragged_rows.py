"""Rows of a pass over several sequences as tensors, and which of them are attended to together."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from helmsman.executor._kernels import Ragged
from helmsman.executor.devices.torch.recurrent import SequenceRun
from helmsman.lowering.buffers import chunk_rows

Key = tuple[bool, int, int]
"""Whether caches only pass through, tokens, the power of two that positions do not reach."""


@dataclass(frozen=True)
class Group:
    """Sequences with as many tokens each, of whose caches none is twice as long as another. int64 `rows` (n, tokens):
    of the pass; `places` (n, positions): the row of the cache that each position is in, behind the last some other one
    of its own.

    `passing`: whether it is the cache that keys and values only pass through."""

    rows: torch.Tensor
    places: torch.Tensor
    passing: bool


class Cached(NamedTuple):
    """Which rows of a pass are kept in a cache, and where: int64 (n,) each."""

    rows: torch.Tensor
    at: torch.Tensor


@dataclass(frozen=True)
class RaggedRows:
    """int64 `positions` (count,) of all rows, `ids` of those that are embedded, which are all or of no interest,
    `outputs` (n,): rows whose logits are wanted.

    `runs`: whose they are, sequences with as many tokens together. Rows of caches beyond the `capacity` of `own` are of
    those that keys and values only pass through."""

    count: int
    ids: torch.Tensor
    positions: torch.Tensor
    outputs: torch.Tensor
    own: Cached
    passing: Cached
    groups: tuple[Group, ...]
    runs: tuple[SequenceRun, ...]

    @classmethod
    def of(cls, rows: Ragged, ids: NDArray[np.int32], capacity: int, device: torch.device) -> "RaggedRows":
        """On the device; `ids` of at least all rows, if they are embedded."""
        cached = np.array(rows.cached, np.int64)
        own, passing = np.flatnonzero((cached >= 0) & (cached < capacity)), np.flatnonzero(cached >= capacity)

        def there(values: object) -> torch.Tensor:
            return torch.from_numpy(np.array(values, np.int64)).to(device)

        return cls(
            rows.rows,
            there(ids[: rows.rows]),
            there(rows.positions),
            there(rows.outputs),
            Cached(there(own), there(cached[own])),
            Cached(there(passing), there(cached[passing] - capacity)),
            tuple(Group(there(group), there(places), late) for group, places, late in _groups(rows, capacity)),
            tuple(
                SequenceRun(len(slots), own.shape[1], there(past) == 0, there(slots), there(own))
                for own, past, slots in _runs(rows)
            ),
        )


def _groups(rows: Ragged, capacity: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], bool]]:
    """Decode steps in a group by length, prompts so many rows at a time."""
    groups: dict[Key, list[tuple[int, NDArray[np.int64]]]] = {}
    most = chunk_rows()
    for first, tokens, past, runs in rows.sequences:
        places = np.concatenate([np.arange(row, row + count) for _, count, row in runs])
        passing = bool(places[0] >= capacity)
        places = places - capacity if passing else places
        for begin in range(0, tokens, most):
            count = min(most, tokens - begin)
            seen = places[: past + begin + count]
            groups.setdefault((passing, count, len(seen).bit_length()), []).append((first + begin, seen))
    for (passing, tokens, _), members in groups.items():
        own = np.array([first for first, _ in members])[:, None] + np.arange(tokens)
        yield own, _padded(places for _, places in members), passing


def _runs(rows: Ragged) -> Iterator[tuple[NDArray[np.int64], list[int], list[int]]]:
    """Yield rows (n, tokens), what comes before them and the slots of sequences with as many tokens."""
    alike: dict[int, list[tuple[int, int, int]]] = {}
    for (first, tokens, past, _), slot in zip(rows.sequences, rows.slots, strict=True):
        alike.setdefault(tokens, []).append((first, past, slot))
    for tokens, members in alike.items():
        firsts, pasts, slots = (list(column) for column in zip(*members, strict=True))
        yield np.array(firsts)[:, None] + np.arange(tokens), pasts, slots


def _padded(lines: Iterable[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Lines of different lengths, behind each its own first place: what is no number in another's cache stays there."""
    listed = list(lines)
    result = np.empty((len(listed), max(map(len, listed))), np.int64)
    for row, line in zip(result, listed, strict=True):
        row[: len(line)], row[len(line) :] = line, line[0]
    return result
