"""Where another home of weights can matter, and how many blocks must have theirs there."""

from math import floor

from helmsman.planner.memory.usage import memory_use
from helmsman.planner.strategies.optimal.configurations.block_ways import from_storage, on_accelerator, on_host
from helmsman.planner.strategies.optimal.configurations.rules import Assignment, place
from helmsman.planner.strategies.streaming.place import Frame


def needs_store(frame: Frame) -> bool:
    """Whether a plan may keep weights in the store: where that was asked for, or host memory does not hold all weights
    and caches, with all caches page-locked. What comes through host memory never beats what lives there."""
    if frame.store is None or frame.store.requested:
        return frame.store is not None
    everything = (on_accelerator(frame.model, resident=False, cache="host"),) * frame.model.layers
    uses = memory_use(place(frame, Assignment(everything, "host", "host", {})))
    return any(use.used > use.available for use in uses if use.memory == frame.roles.host.memory)


def fullest(frame: Frame) -> Assignment:
    """The accelerator with all blocks that accelerators have room for, the embedding too where that is all, but
    for those that must be in the store: no plan keeps less in host memory and in the store, whose rates depend on
    that."""
    stored, here, layers = _least_stored(frame), _least_here(frame), frame.model.layers
    away = (on_accelerator(frame.model),) * (layers - stored - here)
    blocks = (*(from_storage(frame.model),) * stored, *away, *(on_host(frame.model),) * here)
    return Assignment(blocks, "host" if here else "accelerator", "accelerator", {})


def _least_here(frame: Frame) -> int:
    """Whole blocks that must be in host memory, since accelerators have no room for them: none where they may be in a
    store or in 4-bit groups."""
    roles, layers = frame.roles, frame.model.layers
    if not roles.separate or frame.store is not None or frame.quarters:
        return 0
    placed = place(frame, Assignment((on_accelerator(frame.model),) * layers, "host", "host", {}))
    uses = {use.memory: use for use in memory_use(placed)}
    away = {device.memory for device in roles.accelerators}
    size = sum(uses[memory].weights + uses[memory].kv for memory in away)
    room = sum(uses[memory].available for memory in away)
    return max(0, floor((size - room) * layers / max(1, size)))


def _least_stored(frame: Frame) -> int:
    """Whole blocks that neither host nor accelerator has room for; none where weights may be in 4-bit groups."""
    if frame.store is None or "weights" in frame.quarters:
        return 0
    layers = frame.model.layers
    placed = place(frame, Assignment((on_accelerator(frame.model),) * layers, "host", "accelerator", {}))
    memories = (frame.roles.host.memory, frame.accelerator.memory)
    uses = [use for use in memory_use(placed) if use.memory in memories]
    lacking = sum(use.weights for use in uses) - sum(use.available for use in uses)
    return max(0, lacking * layers // max(1, sum(use.weights for use in uses)))
