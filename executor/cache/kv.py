"""Key and value caches: as they are kept at home, and as attention reads them where they are used."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from helmsman.executor.cache.paged_caches import PagedCaches, allocate_paged
from helmsman.executor.cache.states import StateRows
from helmsman.executor.devices.base import DeviceMemory
from helmsman.executor.devices.parts import Buffer
from helmsman.executor.homes.staging import ALIGNMENT
from helmsman.lowering.caches import BOTH, CachePiece, Passing, passing, pieces_of, turned
from helmsman.lowering.layer_cache import LayerCache, cache_of
from helmsman.lowering.placement import batches_together
from helmsman.lowering.rings import ring_rows
from helmsman.lowering.rules import Cached
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import KeptFormat, KvFormat, is_plain, rows_size
from helmsman.schemas.plan import Plan
from helmsman.schemas.storage import STORAGE

CACHED = ("append", "attention", "scores", "wv")
"""Operations that read or write a cache."""


@dataclass(frozen=True, slots=True)
class Heads:
    """KV heads start <= h < stop of a block's keys or values, in a buffer (batch, heads `room`, ...); `width`: values
    of a head's token.

    As attention reads them (`turned` false): (capacity, head_dim) a head, keys of divided attention (head_dim,
    capacity). As they are kept (`turned`): rows in `format`, (capacity, row) a head; in plans that reshape (batch,
    capacity, heads, row)."""

    start: int
    stop: int
    buffer: Buffer
    format: KeptFormat
    turned: bool
    room: range
    width: int


Part = tuple[Heads, ...]
"""Heads in several buffers, in order."""


@dataclass(frozen=True)
class PlacedCache:
    """A block's keys and values in one memory.

    `read`: as attention reads them; `kept`: rows, at home or on their way; `plain`: rows that are expanded before they
    are turned. `passing`: which of the memory's buffers that blocks share is used; None when all is at home. `rows`: of
    each sequence, where they are a ring of fewer than all positions."""

    memory: str
    read: Mapping[Cached, Part]
    kept: Mapping[Cached, Part]
    plain: Mapping[Cached, Part]
    passing: tuple[str, int] | None = None
    rows: int | None = None


StateKey = tuple[str, str, int, int]
"""A memory, the operation whose states are there, its block, and a batch."""


@dataclass
class Caches:
    """The caches of every block and batch, by memory. `transposed`: attention reads keys (head_dim, capacity).

    `paged`: by memory, those that have a window there; `states`: what recurrent mixers keep of every sequence,
    of all mixers in `state_rows` where there are any."""

    transposed: bool
    by_tokens: bool
    by_layer: dict[tuple[str, int, int], PlacedCache] = field(default_factory=dict)
    paged: Mapping[str, PagedCaches] = field(default_factory=dict)
    states: dict[StateKey, Buffer] = field(default_factory=dict)
    state_rows: StateRows | None = None

    def state(self, key: StateKey, memory: DeviceMemory, rows: int, width: int) -> Buffer:
        """Return what an operation keeps of so many sequences, f32 (rows, width), which is made once."""
        if key not in self.states and self.state_rows is not None:
            self.states[key] = self.state_rows.take(width)
        if key not in self.states:
            purpose = f"states of {key[1]} of block {key[2]}"
            self.states[key] = memory.place(np.zeros((rows, width), np.float32), purpose)
        return self.states[key]

    def used_in(self, memory: str, layer: int, batch: int) -> bool:
        """Whether `memory` has a place for them."""
        return (memory, layer, batch) in self.by_layer

    def at(self, memory: str, layer: int, batch: int) -> PlacedCache:
        """Where they are in `memory`."""
        return self.by_layer[memory, layer, batch]


def allocate_caches(plan: Plan, memories: dict[str, DeviceMemory], transposed: bool) -> Caches:
    """All caches of a plan. Raises UsageError for those that no kernel reads."""
    _check(plan, transposed)
    caches = Caches(transposed, plan.schedule.reshape, paged=allocate_paged(plan, memories))
    _add_windows(plan, caches)
    batches, layers = batches_together(plan), range(plan.model.layers)
    sets = _Sets(plan, memories)
    for layer in layers:
        for batch in range(batches):
            pieces = [piece for piece in pieces_of(plan, layer) if piece.rule.cache is None]
            home = {piece: _at_home(plan, memories, layer, piece) for piece in pieces}
            for memory in memories:
                number = (layer * batches + batch) % (plan.schedule.prefetch + 1)
                cache = _cache(plan, memory, home, sets.take(memory, layer, number))
                cache = replace(cache, rows=ring_rows(plan, layer))
                if any(cache.read.values()) or any(cache.kept.values()):
                    caches.by_layer[memory, layer, batch] = cache
    return caches


def _add_windows(plan: Plan, caches: Caches) -> None:
    """Add the caches that stages read and append to in windows: caches as large as a window."""
    for memory, paged in caches.paged.items():
        for layer, block in paged.blocks.items():
            cache = layer_cache(plan, layer)
            heads = range(cache.heads)
            fmt, ring = kv_format(plan, [layer]), block.ring
            sides: dict[Cached, Part] = {
                "keys": (Heads(0, len(heads), ring.keys, fmt, False, heads, cache.key_dim),),
                "values": (Heads(0, len(heads), ring.values, fmt, False, heads, cache.value_dim),),
            }
            nothing: dict[Cached, Part] = {"keys": (), "values": ()}
            caches.by_layer[memory, layer, 0] = PlacedCache(memory, sides, nothing, nothing)


def kv_format(plan: Plan, layers: Sequence[int]) -> KvFormat:
    """The format in which attention reads the caches of `layers`. Raises UsageError when they differ."""
    formats = {piece.used for layer in layers for piece in pieces_of(plan, layer)}
    if len(formats) > 1:
        raise UsageError(
            "the caches of one device must share a format",
            field="kv",
            value=sorted(formats),
            remedy="give every block of a device the same KV format, and expand 4-bit groups to it",
        )
    return next(iter(formats), "f32")


def _check(plan: Plan, transposed: bool) -> None:
    for layer in range(plan.model.layers):
        fmt = kv_format(plan, [layer])
        if (transposed or plan.schedule.reshape) and not is_plain(fmt):
            raise UsageError(
                "divided attention and reshaped caches are read value by value",
                field="kv",
                value=fmt,
                remedy="plan with `kv_format` f32, f16 or bf16, or with attention as one operation",
            )
        for piece in pieces_of(plan, layer):
            if plan.hardware.memory(piece.rule.memory).kind == STORAGE:
                raise UsageError(
                    f"{piece.what} of block {layer} live on storage, and only weights do",
                    field="kv",
                    value=piece.rule.memory,
                    remedy="keep the cache in host memory or on a device",
                )


def layer_cache(plan: Plan, layer: int) -> LayerCache:
    """Return what a layer caches, which has keys and values of its own."""
    cache = cache_of(plan.model, layer)
    assert cache is not None, "check_stages refuses others"
    return cache


def _bytes(plan: Plan, layer: int, piece: CachePiece | Cached, heads: int, fmt: KeptFormat) -> int:
    """Return the size of keys, or values, of so many heads of one batch."""
    rows = plan.workload.batch * (ring_rows(plan, layer) or plan.workload.context) * heads
    what = piece.what if isinstance(piece, CachePiece) else piece
    return rows_size(rows, layer_cache(plan, layer).width(what), fmt)


def _at_home(plan: Plan, memories: dict[str, DeviceMemory], layer: int, piece: CachePiece) -> Heads:
    rule = piece.rule
    size = _bytes(plan, layer, piece, piece.heads, rule.format)
    buffer = memories[rule.memory].alloc(size, f"{piece.what} of block {layer}")
    width = layer_cache(plan, layer).width(piece.what)
    return _heads(piece, buffer, rule.format, turned(plan, piece), width)


def _heads(piece: CachePiece, buffer: Buffer, fmt: KeptFormat, turned: bool, width: int) -> Heads:
    """A piece that has a buffer of its own."""
    return Heads(piece.start, piece.stop, buffer, fmt, turned, range(piece.start, piece.stop), width)


@dataclass(frozen=True)
class _BlockRoom:
    """The buffers that a memory holds of one block while a pass is there."""

    whole: Mapping[Cached, Heads]
    arriving: Mapping[CachePiece, Heads]
    plain: Mapping[CachePiece, Heads]
    number: int


class _Sets:
    """Buffers that blocks share: prefetch + 1 sets per memory, each as large as the block that needs most of it."""

    def __init__(self, plan: Plan, memories: dict[str, DeviceMemory]) -> None:
        self._plan = plan
        layers = range(plan.model.layers)
        self._held = {name: [passing(plan, layer, name) for layer in layers] for name in memories}
        self._buffers: dict[str, list[Buffer]] = {}
        for name, held in self._held.items():
            size = max(sum(_aligned(part) for *_, part in self._parts(layer, held[layer])) for layer in layers)
            sets = range(plan.schedule.prefetch + 1) if size else ()
            self._buffers[name] = [memories[name].alloc(size, "keys and values passing by") for _ in sets]

    def take(self, memory: str, layer: int, number: int) -> _BlockRoom | None:
        """The places of a block in set `number`; None when all it uses is at home."""
        if not self._buffers[memory] or not self._held[memory][layer].whole:
            return None
        buffer, at, cache = self._buffers[memory][number], 0, layer_cache(self._plan, layer)
        whole: dict[Cached, Heads] = {}
        arriving: dict[CachePiece, Heads] = {}
        plain: dict[CachePiece, Heads] = {}
        for kind, key, fmt, size in self._parts(layer, self._held[memory][layer]):
            part = buffer.part(at, size)
            at += _aligned(size)
            if isinstance(key, CachePiece):
                places = arriving if kind == "arriving" else plain
                places[key] = _heads(key, part, fmt, True, cache.width(key.what))
            else:
                heads = range(cache.heads)
                whole[key] = Heads(0, len(heads), part, fmt, False, heads, cache.width(key))
        return _BlockRoom(whole, arriving, plain, number)

    def _parts(self, layer: int, held: Passing) -> Iterator[tuple[str, Cached | CachePiece, KeptFormat, int]]:
        plan = self._plan
        if held.whole:
            fmt = kv_format(plan, [layer])
            own = layer_cache(plan, layer)
            for what in (what for what in BOTH if own.width(what)):
                yield "whole", what, fmt, _bytes(plan, layer, what, own.heads, fmt)
        for kind, pieces in (("arriving", held.arriving), ("plain", held.expanded)):
            for piece in pieces:
                stored: KeptFormat = piece.rule.format if kind == "arriving" else piece.used
                yield kind, piece, stored, _bytes(plan, layer, piece, piece.heads, stored)


def _cache(plan: Plan, memory: str, home: Mapping[CachePiece, Heads], room: _BlockRoom | None) -> PlacedCache:
    """Return the part of a block's cache that is in `memory`: what lives there, and what passes by."""
    read: dict[Cached, list[Heads]] = {"keys": [], "values": []}
    kept: dict[Cached, list[Heads]] = {"keys": [], "values": []}
    plain: dict[Cached, list[Heads]] = {"keys": [], "values": []}
    for piece, heads in home.items():
        here = piece.rule.memory == memory
        if here and not heads.turned:
            read[piece.what].append(heads)
        elif room is not None:
            whole = room.whole[piece.what]
            read[piece.what].append(replace(whole, start=piece.start, stop=piece.stop))
        if heads.turned and here:
            kept[piece.what].append(heads)
        if room is not None and piece in room.arriving:
            kept[piece.what].append(room.arriving[piece])
        if room is not None and piece in room.plain:
            plain[piece.what].append(room.plain[piece])
    first, second, third = ({what: tuple(heads) for what, heads in by_kind.items()} for by_kind in (read, kept, plain))
    return PlacedCache(memory, first, second, third, None if room is None else (memory, room.number))


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
