"""Does it fit: bytes of weights, KV and buffers in every memory of a placement (eq 4.16, both sides)."""

from collections import Counter
from collections.abc import Iterable, Iterator

from helmsman.lowering.placement import KnownPlan, Placed, known
from helmsman.lowering.routing import experts_of
from helmsman.lowering.rules import homes, places, residence, slots_of
from helmsman.lowering.tensor import Tensor
from helmsman.planner.memory.alike_blocks import counted_tensors
from helmsman.planner.memory.buffers import buffers_by_memory
from helmsman.planner.memory.cache_bytes import caches_by_memory, snapshots_by_memory
from helmsman.planner.memory.page_locking import pinned_by_memory
from helmsman.schemas.formats import size_of
from helmsman.schemas.plan import Drafting, ExpertSlots, Residence
from helmsman.schemas.predicted import MemoryUse


def memory_use(placed: Placed) -> tuple[MemoryUse, ...]:
    """Return what the placement needs in each memory of its hardware, against what it may use; an engine's reserve has
    room for the buffers."""
    plan = known(placed)
    return plan.own_fact("memory use", lambda: _memory_use(plan))


def _memory_use(plan: KnownPlan) -> tuple[MemoryUse, ...]:
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
            buffers=max(buffers.get(memory.name, 0), memory.reserved or 0),
            available=memory.available,
            pinned=pinned.get(memory.name, 0),
        )
        for memory in plan.hardware.memories
    )


def with_drafter(uses: Iterable[MemoryUse], placed: Placed, drafting: Drafting) -> tuple[MemoryUse, ...]:
    """Return what is needed with what drafts tokens, and with the states that rejected ones would have changed."""
    sizes = snapshots_by_memory(placed, drafting.tokens)
    sizes[drafting.memory] = sizes.get(drafting.memory, 0) + drafting.size
    return tuple(use.model_copy(update={"drafter": sizes[use.memory]}) if use.memory in sizes else use for use in uses)


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
    for memory, size in _spare_slots(placed).items():
        total[memory] = total.get(memory, 0) + size
    return total


def _in_slots(placed: KnownPlan, tensor: Tensor) -> Iterator[tuple[str, int]]:
    """Yield where experts of a tensor are cached beside their home, and the bytes of its slots."""
    rule = slots_of(placed.expert_slots, tensor.layer or 0) if tensor.stacked else None
    if rule is not None:
        columns, fmt = tensor.elements // tensor.shape[0], homes(placed, tensor)[0].rule.format
        yield rule.memory, size_of(min(rule.slots, tensor.shape[0]) * columns, fmt)


def _spare_slots(placed: KnownPlan) -> dict[str, int]:
    """Return by memory the bytes of slots for experts that come beside those that stay: as many as a token chooses, for
    each matrix of one size; layers share them."""
    sizes: dict[tuple[str, str, int], int] = {}
    for tensor, _ in counted_tensors(placed) if placed.expert_slots else ():
        rule = slots_of(placed.expert_slots, tensor.layer or 0) if tensor.stacked else None
        experts = experts_of(placed.model, tensor.layer or 0)
        if rule is not None and experts is not None and _comes_beside(placed, rule, tensor):
            size = size_of(tensor.elements // tensor.shape[0], homes(placed, tensor)[0].rule.format)
            sizes[rule.memory, tensor.op, size] = experts.chosen * size
    result = Counter[str]()
    for (memory, _, _), size in sizes.items():
        result[memory] += size
    return result


def _comes_beside(placed: KnownPlan, rule: ExpertSlots, tensor: Tensor) -> bool:
    """Whether missing experts come to where others stay, in any phase."""
    if rule.eviction != "popularity":
        return False
    here = {device.name for device in placed.hardware.devices if device.memory == rule.memory}
    used = places(placed, tensor.op, tensor.layer, "prefill", tensor.shape[0], "experts")
    return rule.misses == "fetched" or all(piece.rule.device in here for piece in used)


def _copies(rule: Residence) -> tuple[str, ...]:
    """The memories that hold a weight."""
    return (rule.memory, *rule.replicas)
