"""Bytes of buffers in every memory of a placement: to work in, and for what is on its way."""

from collections.abc import Iterator
from dataclasses import dataclass

from helmsman.lowering.buffers import (
    buffer_bytes,
    cache_expansion_bytes,
    chunk_of,
    expansion_bytes,
    held_together,
    kept_bytes,
)
from helmsman.lowering.caches import Passing, passing, pieces_of
from helmsman.lowering.ops import op_extent
from helmsman.lowering.paging import most_tokens, passes_of, window_of, windows
from helmsman.lowering.placement import KnownPlan, Placed, batches_together, known
from helmsman.lowering.prefix import stored_sizes
from helmsman.lowering.rules import homes, places, prefix_rule, slots_of
from helmsman.lowering.stages import stage_of
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import LOOKUPS
from helmsman.lowering.turns import divides_attention
from helmsman.planner.memory.alike_blocks import alike, counted_tensors
from helmsman.planner.memory.cache_bytes import page_bytes, piece_bytes, whole_cache_bytes
from helmsman.planner.memory.devices_used import devices_used, memory_of
from helmsman.scheduler.iteration import PHASES, Phase
from helmsman.schemas.formats import StoredFormat, is_plain, size_of
from helmsman.schemas.plan import Path, Residence
from helmsman.schemas.storage import BLOCK, STORAGE
from helmsman.schemas.workload import Workload

STOPS = 2
"""Buffers in which data stops on its way: one is filled while the other is emptied. Every tensor in them ends in a
whole block of storage."""


def staging_bytes(placed: Placed, memory: str) -> int:
    """Buffers of what is streamed into `memory`.

    The streamed weights of prefetch + 1 stages, or one operation's after the other where nothing holds them together.
    And as many times a block's KV where it is made or used away from its home: of one batch (PARK-05)."""
    plan, depth = known(placed), placed.schedule.prefetch + 1
    return depth * (_streamed_weights(plan, memory) + _streamed_kv(plan, memory))


@dataclass(frozen=True, slots=True)
class _Use:
    """What memories are used for, whatever the workload: `working`: those of the devices that work; `expanding`: those
    of devices that read values only; `resting`: the others that keep weights; `divided`: whether attention is;
    `expanded`: bytes where values of quantised weights are before they are read; `plain`: whether caches are of
    values."""

    working: tuple[str, ...]
    expanding: frozenset[str]
    resting: frozenset[str]
    divided: bool
    expanded: int
    plain: bool


def buffers_by_memory(placed: KnownPlan) -> dict[str, int]:
    """Bytes of buffers to work in where devices work, of what is kept as they read it, and of what is on its way."""
    total, use = _stops(placed), placed.fact("memories in use", lambda: _use(placed))
    batches = batches_together(placed)
    paged = bool(windows(placed))
    buffers = buffer_bytes(placed.model, _passing(placed), divided=use.divided, batches=batches, paged=paged)
    for memory in use.working:
        total[memory] = total.get(memory, 0) + buffers + staging_bytes(placed, memory)
        total[memory] += _pages(placed, memory) if paged else 0
    for memory in use.expanding:
        caches = 0 if use.plain else cache_expansion_bytes(placed.model, placed.workload)
        total[memory] += batches * use.expanded + caches
    for memory in use.resting:
        total[memory] = total.get(memory, 0) + kept_bytes(placed.model, placed.workload)
    return total


def _use(placed: KnownPlan) -> _Use:
    used = [placed.hardware.device(name) for name in devices_used(placed)]
    working = tuple(device.memory for device in used)
    formats = (piece.used for layer in alike(placed) for piece in pieces_of(placed, layer))
    return _Use(
        working,
        frozenset(device.memory for device in used if device.expands),
        frozenset(_resting(placed).difference(working)),
        _divided(placed),
        _expanded(placed),
        all(map(is_plain, formats)),
    )


def _expanded(placed: Placed) -> int:
    """Where values of quantised weights are before they are read, an upper bound over all stages."""
    return expansion_bytes(
        tensor
        for tensor, _ in counted_tensors(placed)
        if any(not is_plain(piece.rule.used) for piece in homes(placed, tensor))
    )


def _passing(placed: Placed) -> Workload:
    """Return the workload with as much of a prompt as passes at once, or as buffers have room for at least."""
    work, most, least = placed.workload, most_tokens(placed), placed.schedule.buffered_tokens
    new = work.new_tokens if most is None else min(most, work.new_tokens)
    if least is not None:
        new = max(new, min(least, work.context - work.prefix_tokens))
    return work.model_copy(update={"prompt_tokens": work.prefix_tokens + new})


def _pages(placed: Placed, memory: str) -> int:
    """Where pages of caches arrive that have a window in `memory`: buffers that all blocks share."""
    paged = [(layer, cache) for layer in alike(placed) if (cache := window_of(placed, layer)) is not None]
    mine = [(layer, cache) for layer, cache in paged if cache.memory == memory]
    return max((cache.staged_pages * page_bytes(placed, layer, cache.page_tokens) for layer, cache in mine), default=0)


def _resting(placed: Placed) -> set[str]:
    """The memories that keep weights, storage apart: norms and biases are kept there as a device reads them."""
    rules = (piece.rule for tensor, _ in counted_tensors(placed) for piece in homes(placed, tensor))
    storage = {memory.name for memory in placed.hardware.memories if memory.kind == STORAGE}
    return {memory for rule in rules for memory in (rule.memory, *rule.replicas)} - storage


def _divided(placed: Placed) -> bool:
    """Whether any block's attention is divided in any phase."""
    passes = passes_of(placed)
    both = passes.prompt[-1], passes.step(1)
    return any(divides_attention(placed, layer, one_pass) for layer in alike(placed) for one_pass in both)


def _streamed_weights(placed: KnownPlan, memory: str) -> int:
    """Return the largest operation's streamed bytes, or the largest stage's where all of one are held together; a
    stage's matrices of experts are one operation's, as it multiplies by all of them at once, unless they come apart."""
    streamed = placed.fact("streamed weights", lambda: _streamed(placed)).get(memory)
    if streamed is None:
        return 0
    work, ahead = placed.workload, placed.schedule.overlap == "next-layer" or placed.schedule.barrier
    together = held_together(ahead, batches_together(placed), work.new_tokens, chunk_of(placed))
    sizes: dict[tuple[str, int], int] = {}
    for tensor, known_bytes in streamed:
        at_once = tensor.stacked and not placed.schedule.experts_apart
        held_for = "" if together else "experts" if at_once else tensor.op
        key = held_for, stage_of(placed, tensor.op, tensor.layer)
        size = _streamed_bytes(placed, tensor, memory) if known_bytes is None else known_bytes
        sizes[key] = sizes.get(key, 0) + size
    return max(sizes.values())


def _streamed(placed: KnownPlan) -> dict[str, list[tuple[Tensor, int | None]]]:
    """Return by memory what may come to it, or be expanded there, with its bytes; None: by the tokens of a pass."""
    streamed: dict[str, list[tuple[Tensor, int | None]]] = {}
    for tensor, _ in counted_tensors(placed):
        for memory in _using(placed, tensor):
            if not all(_at_rest(piece.rule, memory) for piece in homes(placed, tensor)):
                size = None if tensor.op in LOOKUPS else _streamed_bytes(placed, tensor, memory)
                streamed.setdefault(memory, []).append((tensor, size))
    return streamed


def _using(placed: Placed, tensor: Tensor) -> dict[str, None]:
    """Return the memories whose devices use a tensor in any phase."""
    axis, extent = op_extent(placed.model, tensor.op, tensor.layer)
    pieces = (piece for phase in PHASES for piece in places(placed, tensor.op, tensor.layer, phase, extent, axis))
    return dict.fromkeys(memory_of(placed, piece.rule.device) for piece in pieces)


def _streamed_bytes(placed: Placed, tensor: Tensor, memory: str) -> int:
    """Bytes of a tensor that come to `memory`, or are expanded there, in the phase that needs more of them; of a table
    the rows of all tokens of a pass."""
    work, columns = placed.workload, tensor.elements // tensor.shape[0]
    looked_up = batches_together(placed) * work.batch * work.new_tokens if tensor.op in LOOKUPS else None
    most = 0
    for phase in PHASES:
        coming = 0
        if (slots := _slots_in(placed, tensor, memory)) is not None and not _streams_past(placed, phase):
            continue
        for start, stop in _rows_in(placed, tensor, phase, memory):
            start = max(start, slots or 0)
            for piece in homes(placed, tensor):
                count = min(stop, piece.stop) - max(start, piece.start)
                if count > 0:
                    coming += _arriving(piece.rule, (looked_up or count) * columns, memory)
        most = max(most, coming)
    return most


def _slots_in(placed: Placed, tensor: Tensor, memory: str) -> int | None:
    """Return the slots that `memory` has for experts of a tensor; None where it has none."""
    rule = slots_of(placed.expert_slots, tensor.layer or 0) if tensor.stacked else None
    return rule.slots if rule is not None and rule.memory == memory else None


def _streams_past(placed: Placed, phase: Phase) -> bool:
    """Whether experts that are not in slots come ahead of the router, beside the slots: else they come into these."""
    return phase == "prefill" and placed.schedule.overlap == "next-layer"


def _at_rest(rule: Residence, memory: str) -> bool:
    """Whether what a rule keeps is in `memory` as it is used."""
    return not rule.expands and (memory == rule.memory or memory in rule.replicas)


def _arriving(rule: Residence, elements: int, memory: str) -> int:
    """Bytes of what comes to `memory`, and of what its 4-bit groups become there, come or not."""
    expanded = size_of(elements, rule.used) if rule.expands else 0
    return expanded + (0 if memory in (rule.memory, *rule.replicas) else size_of(elements, rule.format))


def _rows_in(placed: Placed, tensor: Tensor, phase: Phase, memory: str) -> Iterator[tuple[int, int]]:
    """Yield rows (or experts) of a tensor that are used by devices of `memory`."""
    axis, extent = op_extent(placed.model, tensor.op, tensor.layer)
    for piece in places(placed, tensor.op, tensor.layer, phase, extent, axis):
        if memory_of(placed, piece.rule.device) == memory:
            yield (piece.start, piece.stop) if extent > 1 else (0, tensor.shape[0])


def _streamed_kv(placed: KnownPlan, memory: str) -> int:
    """A block's keys and values that come to `memory`, are expanded or turned there, or made there to be sent home: of
    one batch at a time."""
    held_by_block = placed.fact(("streamed caches", memory), lambda: tuple(_held(placed, memory)))
    if not held_by_block:
        return 0
    workload = placed.workload.model_copy(update={"batches": 1})
    most = 0
    for layer, used, held in held_by_block:
        size = whole_cache_bytes(placed.model, workload, used, layer) if held.whole else 0
        size += sum(piece_bytes(placed, layer, arrival, workload, arrival.rule.format) for arrival in held.arriving)
        size += sum(piece_bytes(placed, layer, piece, workload, piece.used) for piece in held.expanded)
        most = max(most, size)
    return most


def _held(placed: KnownPlan, memory: str) -> Iterator[tuple[int, StoredFormat, Passing]]:
    """Yield what `memory` holds of a block's cache while a pass is there, where it holds any, after the block and the
    cache's format."""
    for layer in alike(placed):
        held = passing(placed, layer, memory)
        if held.whole or held.arriving or held.expanded:
            yield layer, pieces_of(placed, layer)[0].used, held


def _stops(placed: KnownPlan) -> dict[str, int]:
    """Where data stops on its way from storage, or to be page-locked: two buffers, as large as the largest of it."""
    if not placed.fact("paths with stops", lambda: _has_stops(placed)):
        return {}
    largest: dict[str, int] = {}
    sizes: dict[tuple[str, str, int | None], int] = {}
    for tensor, _ in counted_tensors(placed):
        columns = tensor.elements // tensor.shape[0]
        for piece in homes(placed, tensor):
            memory = _stop(placed, piece.rule.path, piece.rule.memory)
            if memory is not None:
                key = memory, tensor.op, tensor.layer
                size = size_of((piece.stop - piece.start) * columns, piece.rule.format)
                sizes[key] = sizes.get(key, 0) + size + BLOCK
                largest[memory] = max(largest.get(memory, 0), sizes[key])
    one = placed.workload.model_copy(update={"batches": 1})
    for layer in alike(placed):
        for cached in pieces_of(placed, layer):
            memory = _stop(placed, cached.rule.path, cached.rule.memory)
            if memory is not None:
                size = whole_cache_bytes(placed.model, one, cached.rule.format, layer) + 2 * BLOCK
                largest[memory] = max(largest.get(memory, 0), size)
        for memory, size in _known_stops(placed, layer):
            largest[memory] = max(largest.get(memory, 0), size + 2 * BLOCK)
    return {memory: STOPS * size for memory, size in largest.items()}


def _has_stops(placed: Placed) -> bool:
    """Whether data stops anywhere."""
    paths = {rule.path for rule in placed.residence} | {rule.path for rule in placed.kv}
    return bool(paths & {"pin-on-transfer", "bounce"})


def _known_stops(placed: Placed, layer: int) -> Iterator[tuple[str, int]]:
    """Where a block's known tokens stop on their way from their store, and the bytes of one batch."""
    rule = prefix_rule(placed, layer)
    memory = None if rule is None else _stop(placed, rule.path, rule.memory)
    if memory is not None:
        yield memory, sum(stored_sizes(placed, layer, placed.workload.batch).values())


def _stop(placed: Placed, path: Path, home: str) -> str | None:
    """Where data that leaves `home` by `path` stops."""
    if path == "pin-on-transfer":
        return home
    return placed.hardware.devices[0].memory if path == "bounce" else None
