"""Bytes of keys and values: of a block, of some heads, and in every memory of a placement (eq 4.12)."""

from collections.abc import Iterator

from helmsman.lowering.caches import CachePiece, pieces_of
from helmsman.lowering.layer_cache import LayerCache, cache_of, shared_caches, state_of, state_op
from helmsman.lowering.paging import home_tokens, window_of
from helmsman.lowering.placement import KnownPlan, Placed, known
from helmsman.lowering.prefix import stored_sizes
from helmsman.lowering.rings import ring_size, windowed_rows
from helmsman.lowering.rules import kv_rule, places, prefix_rule
from helmsman.lowering.variants import cached_elements
from helmsman.planner.memory.alike_blocks import alike
from helmsman.planner.memory.partial_keys import partial_keys
from helmsman.schemas.formats import StoredFormat, rows_size
from helmsman.schemas.model import Model
from helmsman.schemas.workload import Workload


def kv_block_bytes(
    model: Model, workload: Workload, kv_format: StoredFormat, layer: int = 0, passing: int | None = None
) -> int:
    """Return bytes of a block's cache, by default the first one's, for every sequence in flight, at full context
    (eq 4.12). `passing`: tokens of a prompt that pass at a time, for which a window's cache has room; None: of the
    window alone, a lower bound. A cache that is not made, kept and read in one memory has `whole_cache_bytes`."""
    cache = cache_of(model, layer)
    if cache is None:
        return 0
    if passing is not None and cache.reach is not None:
        cache = cache._replace(reach=ring_size(cache.reach, passing))
    held = _all_positions(cache, workload) if layer in shared_caches(model) else cache.tokens(workload.context)
    return _size(cache, held, workload, kv_format)


def whole_cache_bytes(model: Model, workload: Workload, kv_format: StoredFormat, layer: int = 0) -> int:
    """Return bytes of a block's cache with room for all positions, whatever its window, for every sequence in
    flight."""
    cache = cache_of(model, layer)
    return 0 if cache is None else _size(cache, _kept_positions(model, layer, cache, workload), workload, kv_format)


def _size(cache: LayerCache, held: int, workload: Workload, kv_format: StoredFormat) -> int:
    """Return bytes of a cache with room for `held` tokens of every sequence in flight."""
    return cache.size(workload.batch * workload.batches * held * cache.heads, kv_format)


def _kept_positions(model: Model, layer: int, cache: LayerCache, workload: Workload) -> int:
    """Return tokens of a sequence that a block's cache has room for where it is no ring (`windowed_rows`): all of them,
    as Helm's executor keeps them; of compressed attention and of attention in chunks, which it does not run, those that
    are read."""
    attention = model.attention(layer)
    bounded = (attention is None or attention.window is None) and layer not in shared_caches(model)
    return cache.tokens(workload.context) if bounded else _all_positions(cache, workload)


def _all_positions(cache: LayerCache, workload: Workload) -> int:
    return cache._replace(reach=None).tokens(workload.context)


def state_block_bytes(model: Model, workload: Workload, layer: int) -> int:
    """Return bytes of a block's states for every sequence in flight."""
    return workload.batch * workload.batches * state_of(model, layer).size


def piece_bytes(placed: Placed, layer: int, piece: CachePiece, workload: Workload, fmt: StoredFormat) -> int:
    """Return bytes of some heads' keys or values of a block at full context, for every sequence in flight; where a
    window bounds them, with the room for the tokens that pass at a time."""
    cache = cache_of(placed.model, layer)
    if cache is None:
        return 0
    rows = None if cache.reach is None else windowed_rows(placed, layer)
    held = _kept_positions(placed.model, layer, cache, workload) if rows is None else min(rows, workload.context)
    tokens = home_tokens(piece.rule.cache, held)
    rows = workload.batch * workload.batches * tokens * piece.heads
    rows = cached_elements(placed.model, placed.schedule.cache, rows)
    return rows_size(rows, cache.width(piece.what), fmt)


def page_bytes(placed: Placed, layer: int, tokens: int) -> int:
    """Return bytes of a block's keys and values of so many tokens of every sequence, as its window holds them."""
    cache = cache_of(placed.model, layer)
    if cache is None:
        return 0
    return cache.size(placed.workload.batch * tokens * cache.heads, kv_rule(placed, layer).format)


def caches_by_memory(plan: Placed) -> dict[str, int]:
    """Return bytes of all keys and values, at home and in windows, of states, of stores of known tokens and of partial
    keys."""
    placed, total = known(plan), dict[str, int]()
    for count, layer, pieces in placed.fact("caches by block", lambda: tuple(_pieces(placed))):
        for piece in pieces:
            size = piece_bytes(placed, layer, piece, placed.workload, piece.rule.format)
            total[piece.rule.memory] = total.get(piece.rule.memory, 0) + count * size
        cache = window_of(placed, layer)
        if cache is not None:
            total[cache.memory] = total.get(cache.memory, 0) + count * page_bytes(placed, layer, cache.window_tokens)
        for store, size in (*_stored(placed, layer), *_states(placed, layer)):
            total[store] = total.get(store, 0) + count * size
    for memory, size in partial_keys(placed).items():
        total[memory] = total.get(memory, 0) + size
    return total


def _pieces(placed: KnownPlan) -> Iterator[tuple[int, int, tuple[CachePiece, ...]]]:
    """Yield a block of each kind with its caches, after the number of blocks that are alike."""
    yield from ((count, layer, pieces_of(placed, layer)) for layer, count in alike(placed).items())


def _stored(placed: Placed, layer: int) -> Iterator[tuple[str, int]]:
    """The store of a block's known tokens, and what it holds of all sequences."""
    rule, sequences = prefix_rule(placed, layer), placed.workload.batch * placed.workload.batches
    if rule is not None:
        yield rule.memory, sum(stored_sizes(placed, layer, sequences).values())


def _states(placed: Placed, layer: int) -> Iterator[tuple[str, int]]:
    """Yield the memory in which a block's states live, that of the device which computes with them, and their bytes."""
    for device, size in _kept(placed, layer):
        yield placed.hardware.device(device).memory, size


def _kept(placed: Placed, layer: int) -> Iterator[tuple[str, int]]:
    """Yield the device that computes with a block's states, and their bytes."""
    size = state_block_bytes(placed.model, placed.workload, layer)
    if size:
        yield places(placed, state_op(placed.model, layer), layer, "decode", 1, "rows")[0].rule.device, size


def states_by_device(plan: Placed) -> dict[str, int]:
    """Return bytes of the states that each device computes with, of all sequences; none where mixers keep nothing."""
    placed, total = known(plan), dict[str, int]()
    for layer, count in alike(placed).items():
        for device, size in _kept(placed, layer):
            total[device] = total.get(device, 0) + count * size
    return total


def snapshots_by_memory(plan: Placed, drafts: int) -> dict[str, int]:
    """Return bytes of the states that are kept behind each of so many drafts, which may be rejected."""
    total: dict[str, int] = {}
    for device, size in states_by_device(plan).items():
        memory = plan.hardware.device(device).memory
        total[memory] = total.get(memory, 0) + drafts * size
    return total
