"""The lower bound: each byte of a pass read once, all memories at full bandwidth at once, capacities respected."""

from helmsman.lowering.graph import TaskGraph
from helmsman.schemas.hardware import Hardware, Memory


def lower_bound(graph: TaskGraph, hardware: Hardware) -> float:
    """Seconds that no placement on `hardware` can beat for the work of `graph`.

    The larger of two bounds: bytes over all memories, and FLOPs over all devices at their peak."""
    work = [task for task in graph.tasks if task.kind != "transfer"]
    return max(
        bytes_bound(sum(task.bytes for task in work), hardware),
        flops_bound(sum(task.flops for task in work), graph.iteration.phase, hardware),
    )


def bytes_bound(total: int, hardware: Hardware) -> float:
    """Least t in which `total` resident bytes can be read: every memory reads at most its bandwidth x t
    and holds at most its capacity; memories that share a physical one also share its bandwidth."""
    if _readable(hardware, float("inf")) < total:
        return float("inf")
    high = 1e-12
    while _readable(hardware, high) < total:
        high *= 2
    low = 0.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _readable(hardware, middle) < total else (low, middle)
    return low


def flops_bound(total: int, phase: str, hardware: Hardware) -> float:
    """Least seconds for `total` FLOPs with every device at its highest peak of the phase."""
    peaks = [
        max((c.flops.value for c in device.compute if c.phase == phase), default=0.0)
        or max(c.flops.value for c in device.compute)
        for device in hardware.devices
    ]
    return total / sum(peaks)


def _readable(hardware: Hardware, seconds: float) -> float:
    """Bytes that can be read within `seconds` under every constraint."""
    groups: dict[str, list[Memory]] = {}
    for memory in hardware.memories:
        groups.setdefault(memory.shares or memory.name, []).append(memory)
    return sum(
        min(
            hardware.memory(root).bandwidth.value * seconds,
            sum(min(memory.available, memory.bandwidth.value * seconds) for memory in members),
        )
        for root, members in groups.items()
    )
