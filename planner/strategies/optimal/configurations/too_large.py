"""A model that all memories together do not hold."""

from helmsman.lowering.buffers import buffer_bytes
from helmsman.lowering.placement import batches_together
from helmsman.planner.memory.usage import memory_use
from helmsman.planner.strategies.optimal.configurations.block_ways import in_groups, on_host
from helmsman.planner.strategies.optimal.configurations.offered_ways import quarters
from helmsman.planner.strategies.optimal.configurations.rules import Assignment, place
from helmsman.planner.strategies.streaming.place import Frame


def too_large(frame: Frame) -> bool:
    """Whether weights and caches exceed all memories together, without those whose devices have no room to work in:
    of many batches, which would take long to lower."""
    packed = quarters(frame)
    smallest = in_groups(frame.model, packed) if packed else on_host(frame.model)
    placed = place(frame, Assignment((smallest,) * frame.model.layers, "host", "host", {}))
    uses = memory_use(placed)
    free = {use.memory: use.available for use in uses}
    work = buffer_bytes(frame.model, frame.workload, batches=batches_together(placed))
    away = {device.memory for device in frame.roles.accelerators if frame.roles.separate}
    free |= {memory: max(0, free[memory] - work) for memory in away}
    if not any(free[memory] for memory in away):
        free[frame.roles.host.memory] -= work
    return sum(use.weights + use.kv for use in uses) > sum(free.values())
