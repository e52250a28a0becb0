"""Bytes of keys and values: of a block, of some heads, and in every memory of a placement (eq 4.12)."""

from collections.abc import Iterator

from helmsman.lowering.caches import CachePiece, pieces_of
from helmsman.lowering.paging import home_tokens, window_of
from helmsman.lowering.placement import KnownPlan, Placed, known
from helmsman.lowering.prefix import stored_sizes
from helmsman.lowering.rules import kv_rule, prefix_rule
from helmsman.lowering.variants import cached_elements
from helmsman.planner.memory.alike_blocks import alike
from helmsman.planner.memory.partial_keys import partial_keys
from helmsman.schemas.formats import StoredFormat, rows_size
from helmsman.schemas.model import Model
from helmsman.schemas.workload import Workload


def kv_block_bytes(model: Model, workload: Workload, kv_format: StoredFormat) -> int:
    """Cache bytes of one block for every sequence in flight, at full context (eq 4.12)."""
    sequences = workload.batch * workload.batches
    return rows_size(2 * sequences * workload.context * model.kv_heads, model.head_dim, kv_format)


def piece_bytes(placed: Placed, piece: CachePiece, workload: Workload, fmt: StoredFormat) -> int:
    """Bytes of some heads' keys or values at full context, for every sequence in flight."""
    tokens = home_tokens(piece.rule.cache, workload.context)
    rows = workload.batch * workload.batches * tokens * piece.heads
    rows = cached_elements(placed.model, placed.schedule.cache, rows)
    return rows_size(rows, placed.model.head_dim, fmt)


def page_bytes(placed: Placed, layer: int, tokens: int) -> int:
    """Bytes of a block's keys and values of so many tokens of every sequence, as its window holds them."""
    rows = 2 * placed.workload.batch * tokens * placed.model.kv_heads
    return rows_size(rows, placed.model.head_dim, kv_rule(placed, layer).format)


def caches_by_memory(plan: Placed) -> dict[str, int]:
    """Bytes of all keys and values, at home and in windows, of stores of known tokens and of partial keys."""
    placed, total = known(plan), dict[str, int]()
    for count, layer, pieces in placed.fact("caches by block", lambda: tuple(_pieces(placed))):
        for piece in pieces:
            size = piece_bytes(placed, piece, placed.workload, piece.rule.format)
            total[piece.rule.memory] = total.get(piece.rule.memory, 0) + count * size
        cache = window_of(placed, layer)
        if cache is not None:
            total[cache.memory] = total.get(cache.memory, 0) + count * page_bytes(placed, layer, cache.window_tokens)
        for store, size in _stored(placed, layer):
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
