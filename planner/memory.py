"""Does it fit: bytes of weights, KV and buffers in every memory of a placement (eq 4.16, both sides)."""

from collections import Counter
from collections.abc import Iterable, Iterator

from helmsman.lowering.buffers import buffer_bytes, held_together, kept_bytes
from helmsman.lowering.caches import CachePiece, passing, pieces_of
from helmsman.lowering.ops import BLOCK_OPS, DIVIDED, op_extent
from helmsman.lowering.placement import KnownPlan, Placed, batches_together, known
from helmsman.lowering.prefix import stored_sizes
from helmsman.lowering.rules import Cached, Slice, first_alike, homes, kv_homes, places, prefix_rule, residence
from helmsman.lowering.stages import stage_of
from helmsman.lowering.tensors import Tensor, block_tensors, embedding_tensors, output_tensors
from helmsman.lowering.turns import divides_attention
from helmsman.lowering.variants import cached_elements
from helmsman.planner.partial_keys import partial_keys
from helmsman.scheduler.iteration import PHASES, Phase, decode, prefill
from helmsman.schemas.formats import StoredFormat, rows_size, size_of
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.model import Model
from helmsman.schemas.plan import KvRule, MemoryUse, Path, Residence
from helmsman.schemas.storage import BLOCK, STORAGE
from helmsman.schemas.workload import Workload

UNDIVIDED = ("embedding", "norm1", "append", "norm2", "final_norm")
"""Operations with weights that are not linear layers."""

STOPS = 2
"""Buffers in which data stops on its way: one is filled while the other is emptied. Every tensor in them ends in a
whole block of storage."""


def memory_use(placed: Placed) -> tuple[MemoryUse, ...]:
    """What the placement needs in each memory of its hardware, against what it may use."""
    placed = known(placed)
    weights, kv, buffers, pinned = _weights(placed), _kv(placed), _buffers(placed), _pinned(placed)
    return tuple(
        MemoryUse(
            memory=memory.name,
            weights=weights.get(memory.name, 0),
            kv=kv.get(memory.name, 0),
            buffers=buffers.get(memory.name, 0),
            available=memory.available,
            pinned=pinned.get(memory.name, 0),
        )
        for memory in placed.hardware.memories
    )


def shortages(uses: Iterable[MemoryUse]) -> dict[str, int]:
    """Bytes missing per memory; empty when everything fits."""
    return {use.memory: use.used - use.available for use in uses if use.used > use.available}


def kv_block_bytes(model: Model, workload: Workload, kv_format: StoredFormat) -> int:
    """Cache bytes of one block for every sequence in flight, at full context (eq 4.12)."""
    sequences = workload.batch * workload.batches
    return rows_size(2 * sequences * workload.context * model.kv_heads, model.head_dim, kv_format)


def pinned_bytes(size: int) -> int:
    """Bytes that a page-locked allocation of `size` takes: PyTorch's host allocator rounds up to a power of two.

    So pinned regions take less than twice their size here (the caches of 544 tokens of 1 x 50 sequences of OPT-30B:
    1.38 times). The paper says more than twice (PARK-53, 75; Fig 11); the rest is not explained, and not modelled."""
    return 1 << (size - 1).bit_length() if size else 0


def page_locks(hardware: Hardware) -> bool:
    """Whether a driver of the machine page-locks memory: those of GPUs do."""
    return any(device.kind in ("cuda", "rocm") for device in hardware.devices)


def pinned_extra(workload: Workload, width: int, kv_format: StoredFormat) -> int:
    """What a block's page-locked keys, or values, of `width` elements per token take beyond their size: one
    allocation per batch."""
    size = size_of(workload.batch * workload.context * width, kv_format)
    return workload.batches * (pinned_bytes(size) - size)


def staging_bytes(placed: Placed, memory: str) -> int:
    """Buffers of what is streamed into `memory`.

    The streamed weights of prefetch + 1 stages, or one operation's after the other where nothing holds them together.
    And as many times a block's KV where it is made or used away from its home: of one batch (PARK-05)."""
    placed, depth = known(placed), placed.schedule.prefetch + 1
    return depth * (_streamed_weights(placed, memory) + _streamed_kv(placed, memory))


def alike(placed: Placed) -> dict[int, int]:
    """The first of all blocks that no rule tells apart, and how many they are."""
    if isinstance(placed, KnownPlan):
        return Counter(placed.first_alike)
    return Counter(first_alike(placed, placed.model.layers))


def _tensors(placed: Placed) -> Iterator[tuple[Tensor, int]]:
    """The tensors outside blocks and of the first of blocks that are alike, and how many each stands for."""
    yield from ((tensor, 1) for tensor in embedding_tensors(placed.model))
    for layer, count in alike(placed).items():
        yield from ((tensor, count) for tensor in block_tensors(placed.model, layer))
    yield from ((tensor, 1) for tensor in output_tensors(placed.model))


def _streamed_weights(placed: Placed, memory: str) -> int:
    """The largest operation's streamed bytes, or the largest stage's where all of one are held together."""
    work, ahead = placed.workload, placed.schedule.overlap == "next-layer" or placed.schedule.barrier
    together = held_together(ahead, work.batch, batches_together(placed), work.new_tokens)
    sizes: dict[tuple[str, int], int] = {}
    for tensor, _ in _tensors(placed):
        key = ("" if together else tensor.op, stage_of(placed, tensor.op, tensor.layer))
        sizes[key] = sizes.get(key, 0) + _streamed_bytes(placed, tensor, memory)
    return max(sizes.values(), default=0)


def _streamed_bytes(placed: Placed, tensor: Tensor, memory: str) -> int:
    """Bytes of a tensor that come to `memory`, or are expanded there, in the phase that needs more of them; of a table
    the rows of all tokens of a pass."""
    work, columns = placed.workload, tensor.elements // tensor.shape[0]
    looked_up = batches_together(placed) * work.batch * work.new_tokens if tensor.op == "embedding" else None
    most = 0
    for phase in PHASES:
        coming = 0
        for start, stop in _rows_in(placed, tensor, phase, memory):
            for piece in homes(placed, tensor):
                count = min(stop, piece.stop) - max(start, piece.start)
                if count > 0:
                    coming += _arriving(piece.rule, (looked_up or count) * columns, memory)
        most = max(most, coming)
    return most


def _arriving(rule: Residence, elements: int, memory: str) -> int:
    """Bytes of what comes to `memory`, and of what its 4-bit groups become there, come or not."""
    expanded = size_of(elements, rule.expanded) if rule.format == "q4" else 0
    return expanded + (0 if memory in (rule.memory, *rule.replicas) else size_of(elements, rule.format))


def _rows_in(placed: Placed, tensor: Tensor, phase: Phase, memory: str) -> Iterator[tuple[int, int]]:
    """Rows of a tensor that are used by devices of `memory`."""
    linear = tensor.op not in UNDIVIDED
    extent = tensor.shape[0] if linear else 1
    for piece in places(placed, tensor.op, tensor.layer, phase, extent, "rows"):
        if _memory_of(placed, piece.rule.device) == memory:
            yield (piece.start, piece.stop) if linear else (0, tensor.shape[0])


def _streamed_kv(placed: Placed, memory: str) -> int:
    """A block's keys and values that come to `memory`, are expanded or turned there, or made there to be sent home: of
    one batch at a time."""
    workload = placed.workload.model_copy(update={"batches": 1})
    most = 0
    for layer in alike(placed):
        held = passing(placed, layer, memory)
        used = pieces_of(placed, layer)[0].used
        size = kv_block_bytes(placed.model, workload, used) if held.whole else 0
        size += sum(_piece_bytes(placed, each, workload, each.rule.format) for each in held.arriving)
        size += sum(_piece_bytes(placed, each, workload, each.used) for each in held.expanded)
        most = max(most, size)
    return most


def _piece_bytes(placed: Placed, piece: CachePiece, workload: Workload, fmt: StoredFormat) -> int:
    """Bytes of some heads' keys or values at full context, for every sequence in flight."""
    rows = workload.batch * workload.batches * workload.context * piece.heads
    rows = cached_elements(placed.model, placed.schedule.cache, rows)
    return rows_size(rows, placed.model.head_dim, fmt)


def _memories_of(placed: Placed, op: str, layer: int | None, phase: Phase) -> set[str]:
    """The memories of the devices that run the parts of an operation."""
    axis, extent = op_extent(placed.model, op)
    return {_memory_of(placed, piece.rule.device) for piece in places(placed, op, layer, phase, extent, axis)}


def devices_used(placed: Placed) -> tuple[str, ...]:
    """Devices that run at least one operation or a part of one, in the hardware's order."""
    placed = known(placed)
    ends = [(op, None) for op in ("embedding", "final_norm", "head")]
    names = (*(op for op in BLOCK_OPS if op != "attention"), *DIVIDED)
    used = set[str]()
    for op, layer in (*ends, *((op, layer) for layer in alike(placed) for op in names)):
        axis, extent = op_extent(placed.model, op)
        for phase in PHASES:
            used |= {piece.rule.device for piece in places(placed, op, layer, phase, extent, axis)}
    return tuple(device.name for device in placed.hardware.devices if device.name in used)


def _weights(placed: Placed) -> dict[str, int]:
    rules = {tensor.name: residence(placed, tensor) for tensor, _ in _tensors(placed) if tensor.layer is None}
    total: dict[str, int] = {}
    for tensor, count in _tensors(placed):
        columns = tensor.elements // tensor.shape[0]
        table = rules[tensor.tied_to] if tensor.tied_to is not None else None
        for piece in homes(placed, tensor):
            rule = piece.rule
            tied = _copies(table) if table is not None and table.format == rule.format else ()
            size = size_of((piece.stop - piece.start) * columns, rule.format)
            for memory in _copies(rule):
                total[memory] = total.get(memory, 0) + (0 if memory in tied else count * size)
    return total


def _copies(rule: Residence) -> tuple[str, ...]:
    """The memories that hold a weight."""
    return (rule.memory, *rule.replicas)


def _kv(placed: Placed) -> dict[str, int]:
    total: dict[str, int] = {}
    for layer, count in alike(placed).items():
        for piece in pieces_of(placed, layer):
            size = _piece_bytes(placed, piece, placed.workload, piece.rule.format)
            total[piece.rule.memory] = total.get(piece.rule.memory, 0) + count * size
        for store, size in _stored(placed, layer):
            total[store] = total.get(store, 0) + count * size
    for memory, size in partial_keys(placed).items():
        total[memory] = total.get(memory, 0) + size
    return total


def _stored(placed: Placed, layer: int) -> Iterator[tuple[str, int]]:
    """The store of a block's known tokens, and what it holds of all sequences."""
    rule, sequences = prefix_rule(placed, layer), placed.workload.batch * placed.workload.batches
    if rule is not None:
        yield rule.memory, sum(stored_sizes(placed, layer, sequences).values())


def _pinned(placed: Placed) -> dict[str, int]:
    """What page-locked caches take beyond their sizes, where drivers of GPUs page-lock: every batch's keys, and
    values, of a block that another memory's devices use are an allocation of their own (PARK-53, 67, 75).

    Weights are taken to be page-locked in place (assumed: rounded up matrix by matrix, OPT-30B beside a batch of 50
    would not fit the machine on which the paper runs it).

    This limits plans that also compute on the host to 4 x 61, the paper's 4 x 60 is just below (PARK-67): 4-bit keys
    of 544 tokens of 61 sequences of OPT-30B just stay below 2^27 bytes, one more takes 2^28, and 103 GB of caches leave
    no room for the uncompressed weights of a host that computes (22 GB are missing). Its search does not see memory. A
    search that does falls back to streaming everything, which lacks nothing up to 4 x 122. FlexGen's caches are
    pageable: the published 4 x 100 fits, as do 22 sequences more, for which no rule of the text accounts."""
    total: dict[str, int] = {}
    if not page_locks(placed.hardware):
        return total
    for layer, count in alike(placed).items():
        for piece in _streamed_pinned(placed, layer):
            width = (piece.stop - piece.start) * placed.model.head_dim
            width = cached_elements(placed.model, placed.schedule.cache, width)
            extra = pinned_extra(placed.workload, width, piece.rule.format)
            total[piece.rule.memory] = total.get(piece.rule.memory, 0) + count * extra
    return total


def _streamed_pinned(placed: Placed, layer: int) -> Iterator[Slice[KvRule]]:
    """Page-locked keys and values of a block that come to another memory in decode steps."""
    for what, op in _CACHES:
        for piece in kv_homes(placed, what, layer, placed.model.kv_heads):
            away = _memories_of(placed, op, layer, "decode") - {piece.rule.memory}
            if piece.rule.path == "pinned" and away:
                yield piece


_CACHES: tuple[tuple[Cached, str], ...] = (("keys", "scores"), ("values", "wv"))


def _buffers(placed: Placed) -> dict[str, int]:
    total = _stops(placed)
    batches = batches_together(placed)
    buffers = buffer_bytes(placed.model, placed.workload, divided=_divided(placed), batches=batches)
    working = [_memory_of(placed, name) for name in devices_used(placed)]
    for memory in working:
        total[memory] = total.get(memory, 0) + buffers + staging_bytes(placed, memory)
    for memory in _resting(placed).difference(working):
        total[memory] = total.get(memory, 0) + kept_bytes(placed.model, placed.workload)
    return total


def _resting(placed: Placed) -> set[str]:
    """The memories that keep weights, storage apart: norms and biases are kept there as a device reads them."""
    rules = (piece.rule for tensor, _ in _tensors(placed) for piece in homes(placed, tensor))
    storage = {memory.name for memory in placed.hardware.memories if memory.kind == STORAGE}
    return {memory for rule in rules for memory in (rule.memory, *rule.replicas)} - storage


def _divided(placed: Placed) -> bool:
    """Whether any block's attention is divided in any phase."""
    passes = prefill(placed.workload), decode(placed.workload, 1)
    return any(divides_attention(placed, layer, it) for layer in alike(placed) for it in passes)


def _stops(placed: Placed) -> dict[str, int]:
    """Where data stops on its way from storage, or to be page-locked: two buffers, as large as the largest of it."""
    paths = {rule.path for rule in placed.residence} | {rule.path for rule in placed.kv}
    if not paths & {"pin-on-transfer", "bounce"}:
        return {}
    largest: dict[str, int] = {}
    sizes: dict[tuple[str, str, int | None], int] = {}
    for tensor, _ in _tensors(placed):
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
        for what in ("keys", "values"):
            for cached in kv_homes(placed, what, layer, placed.model.kv_heads):
                memory = _stop(placed, cached.rule.path, cached.rule.memory)
                if memory is not None:
                    size = kv_block_bytes(placed.model, one, cached.rule.format) + 2 * BLOCK
                    largest[memory] = max(largest.get(memory, 0), size)
        for memory, size in _known_stops(placed, layer):
            largest[memory] = max(largest.get(memory, 0), size + 2 * BLOCK)
    return {memory: STOPS * size for memory, size in largest.items()}


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


def _memory_of(placed: Placed, device: str) -> str:
    return placed.hardware.device(device).memory
