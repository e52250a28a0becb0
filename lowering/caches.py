"""Where the keys and values of a block are kept, and what the memories that use them must hold beside that."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from helmsman.lowering.layer_cache import cache_of
from helmsman.lowering.placement import KnownPlan, Placed
from helmsman.lowering.rules import Cached, kv_homes, places
from helmsman.lowering.variants import cached_elements
from helmsman.scheduler.iteration import PHASES
from helmsman.schemas.formats import KeptFormat, KvFormat, rows_size, size_of
from helmsman.schemas.plan import KvRule

CACHED: dict[str, tuple[Cached, ...]] = {"attention": ("keys", "values"), "scores": ("keys",), "wv": ("values",)}
"""The sides of a cache that the parts of attention read."""

CACHE_OF = {"attention": "kv", "scores": "keys", "wv": "values"}
"""The word for these sides: what rules select, and the name of what comes for them."""

BOTH: tuple[Cached, ...] = ("keys", "values")


class CachePiece(NamedTuple):
    """Heads start <= h < stop of a block's keys or values under one rule."""

    what: Cached
    start: int
    stop: int
    rule: KvRule

    @property
    def heads(self) -> int:
        """How many."""
        return self.stop - self.start

    @property
    def used(self) -> KvFormat:
        """Return the format in which attention reads them."""
        return self.rule.used

    @property
    def appended(self) -> str:
        """Return the memory to which new tokens go: home, or the window from which their page goes home later."""
        return self.rule.memory if self.rule.cache is None else self.rule.cache.memory


@dataclass(frozen=True, slots=True)
class Passing:
    """The pieces of one block that a memory holds while a pass is there.

    `whole`: room for all keys and values as attention reads them, because some that are used there are not kept so;
    `arriving`: pieces that come as they are kept elsewhere, and are turned or expanded there; `expanded`: pieces that
    are expanded before they are turned."""

    whole: bool
    arriving: tuple[CachePiece, ...]
    expanded: tuple[CachePiece, ...]


def pieces_of(placed: Placed, layer: int) -> tuple[CachePiece, ...]:
    """Return the keys, then the values that a block keeps, in order of heads."""
    if isinstance(placed, KnownPlan):
        return placed.fact(("cache pieces", placed.first_alike[layer]), lambda: _pieces_of(placed, layer))
    return _pieces_of(placed, layer)


def _pieces_of(placed: Placed, layer: int) -> tuple[CachePiece, ...]:
    cache = cache_of(placed.model, layer)
    if cache is None:
        return ()
    return tuple(
        CachePiece(what, piece.start, piece.stop, piece.rule)
        for what in BOTH
        if cache.width(what)
        for piece in kv_homes(placed, what, layer, cache.heads)
    )


def appended_sizes(placed: Placed, layer: int, tokens: int) -> dict[tuple[str, KeptFormat], int]:
    """By memory and format, bytes of what `tokens` tokens of all sequences add to a block's cache."""
    sizes: dict[tuple[str, KeptFormat], int] = {}
    cache = cache_of(placed.model, layer)
    if cache is None:
        return {}
    for piece in pieces_of(placed, layer):
        rows = cached_elements(placed.model, placed.schedule.cache, tokens * piece.heads)
        key = piece.appended, piece.rule.format
        pooled = cache.entered(tokens) if piece.what == "keys" else 0
        size = rows_size(rows, cache.width(piece.what), piece.rule.format) + size_of(pooled, piece.rule.format)
        sizes[key] = sizes.get(key, 0) + size
    return sizes


def turned(placed: Placed, piece: CachePiece) -> bool:
    """Whether a piece is kept as rows of tokens that attention does not read as they are."""
    return placed.schedule.reshape or piece.rule.format == "q4"


def passing(placed: Placed, layer: int, memory: str) -> Passing:
    """Return what `memory` needs for the operations on a block's cache that run there, in either phase; windows are no
    part of it."""
    used = set(_used(placed, layer, memory))
    every = [piece for piece in pieces_of(placed, layer) if piece.rule.cache is None]
    here = [piece for piece in every if any((piece.what, head) in used for head in range(piece.start, piece.stop))]
    rows = [piece for piece in here if turned(placed, piece)]
    both = [row for row in rows if placed.schedule.reshape and row.rule.format == "q4"]
    return Passing(
        whole=bool(rows) or any(piece.rule.memory != memory for piece in here),
        arriving=tuple(row for row in rows if row.rule.memory != memory),
        expanded=tuple(both),
    )


def _used(placed: Placed, layer: int, memory: str) -> Iterator[tuple[Cached, int]]:
    """Yield the (keys or values, head) that operations in `memory` read or write."""
    memory_of = {device.name: device.memory for device in placed.hardware.devices}
    cache = cache_of(placed.model, layer)
    if cache is None:
        return
    for phase in PHASES:
        for op, cached in (("append", BOTH), ("scores", CACHED["scores"]), ("wv", CACHED["wv"])):
            parts = places(placed, op, layer, phase, 1, "rows") if op == "append" else ()
            for piece in parts or places(placed, op, layer, phase, cache.heads, "heads"):
                if memory_of.get(piece.rule.device) == memory:
                    heads = range(cache.heads) if op == "append" else range(piece.start, piece.stop)
                    yield from ((what, head) for what in cached for head in heads)
