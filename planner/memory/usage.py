"""Does it fit: bytes of weights, KV and buffers in every memory of a placement (eq 4.16, both sides)."""

from collections.abc import Iterable, Iterator

from helmsman.lowering.placement import KnownPlan, Placed, known
from helmsman.lowering.rules import homes, residence, slots_of
from helmsman.lowering.tensor import Tensor
from helmsman.planner.memory.alike_blocks import counted_tensors
from helmsman.planner.memory.buffers import buffers_by_memory
from helmsman.planner.memory.cache_bytes import caches_by_memory
from helmsman.planner.memory.page_locking import pinned_by_memory
from helmsman.schemas.formats import size_of
from helmsman.schemas.plan import MemoryUse, Residence


def memory_use(placed: Placed) -> tuple[MemoryUse, ...]:
    """Return what the placement needs in each memory of its hardware, against what it may use."""
    plan = known(placed)
    weights, kv, buffers, pinned = (
        plan.fact("weights by memory", lambda: _weights(plan)),
        caches_by_memory(plan),
        buffers_by_memory(plan),
        pinned_by_memory(plan),
    )
    return tuple(
        MemoryUse(
            memory=memory.name,
            weights=weights.get(memory.name, 0),
            kv=kv.get(memory.name, 0),
            buffers=buffers.get(memory.name, 0),
            available=memory.available,
            pinned=pinned.get(memory.name, 0),
        )
        for memory in plan.hardware.memories
    )


def shortages(uses: Iterable[MemoryUse]) -> dict[str, int]:
    """Bytes missing per memory; empty when everything fits."""
    return {use.memory: use.used - use.available for use in uses if use.used > use.available}


def _weights(placed: KnownPlan) -> dict[str, int]:
    rules = {tensor.name: residence(placed, tensor) for tensor, _ in counted_tensors(placed) if tensor.layer is None}
    total: dict[str, int] = {}
    for tensor, count in counted_tensors(placed):
        columns = tensor.elements // tensor.shape[0]
        table = rules[tensor.tied_to] if tensor.tied_to is not None else None
        for piece in homes(placed, tensor):
            rule = piece.rule
            tied = _copies(table) if table is not None and table.format == rule.format else ()
            size = size_of((piece.stop - piece.start) * columns, rule.format)
            for memory in _copies(rule):
                total[memory] = total.get(memory, 0) + (0 if memory in tied else count * size)
        for memory, size in _in_slots(placed, tensor):
            total[memory] = total.get(memory, 0) + count * size
    return total


def _in_slots(placed: KnownPlan, tensor: Tensor) -> Iterator[tuple[str, int]]:
    """Yield where experts of a tensor are cached beside their home, and the bytes of its slots."""
    rule = slots_of(placed.expert_slots, tensor.layer or 0) if tensor.stacked else None
    if rule is not None:
        columns, fmt = tensor.elements // tensor.shape[0], homes(placed, tensor)[0].rule.format
        yield rule.memory, size_of(min(rule.slots, tensor.shape[0]) * columns, fmt)


def _copies(rule: Residence) -> tuple[str, ...]:
    """The memories that hold a weight."""
    return (rule.memory, *rule.replicas)
