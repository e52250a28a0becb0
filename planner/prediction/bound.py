"""The lower bound: each byte of a pass read once, all memories at full bandwidth at once, capacities respected."""

from collections.abc import Sequence

from helmsman.lowering.graph import RepeatingGraph, Task, TaskGraph, runs_of
from helmsman.planner.cost.device_rates import cache_rate
from helmsman.schemas.formats import size_of
from helmsman.schemas.hardware import Device, Hardware, Memory
from helmsman.timing.pools import together

_CACHED = ("attention", "scores", "wv")
_LEAST_STORED = size_of(64, "q4") / (size_of(64, "q4") + size_of(64, "f32"))
"""Of what an expansion reads and writes, the part that it reads: more where groups become shorter values."""


def lower_bound(graph: TaskGraph | RepeatingGraph, hardware: Hardware, cached: bool = False) -> float:
    """Seconds that no placement on `hardware` can beat for the work of `graph`.

    The larger of two bounds: bytes over all memories, and FLOPs over all devices at their peak. `cached`: KV may
    come from the last-level cache, as the L3 blend prices it (eq 4.14). Batches of one pass can share a reading of the
    weights; what is kept in 4-bit groups is read as such; what is read of more than there is was there in turns."""
    speedup = _cache_speedup(hardware) if cached else 1.0
    total, flops, start = 0.0, 0, 0
    for run in runs_of(graph):
        work = [task for task in run.tasks if task.kind not in ("transfer", "decompress", "pin", "reshape")]
        once = [task for task in work if task.batch == 0 or task.kind in _CACHED]
        read = sum([task.bytes / speedup if task.kind in _CACHED else task.bytes for task in once])
        total += run.times * (read - _expanded(run.tasks, start))
        flops += run.times * sum([task.flops for task in work])
        start += run.times * len(run.tasks)
    total = min(max(0.0, total), float(sum(memory.available for memory in hardware.memories)))
    return max(bytes_bound(total, hardware), flops_bound(flops, graph.iteration.phase, hardware))


def _expanded(tasks: Sequence[Task], start: int) -> float:
    """By how many bytes the operations read more than memories hold in 4-bit groups; `start`: the number of the first
    of these tasks. What comes is expanded in the turn that brings it."""
    more = 0.0
    for task in tasks:
        if task.kind == "decompress":
            coming = [tasks[dep - start] for dep in task.deps if dep >= start]
            moved = sum(before.bytes for before in coming if before.kind == "transfer" and _same_payload(before, task))
            more += task.bytes - 2 * max(moved, _LEAST_STORED * task.bytes)
    return more


def _same_payload(one: Task, other: Task) -> bool:
    return (one.layer, one.operation, one.payload) == (other.layer, other.operation, other.payload)


def bytes_bound(total: float, hardware: Hardware) -> float:
    """Least t in which `total` resident bytes can be read: every memory reads at most its best rate x t
    and holds at most its capacity; memories that share a physical one also share its rate."""
    groups = _groups(hardware)
    if _readable(groups, float("inf")) < total:
        return float("inf")
    high = 1e-12
    while _readable(groups, high) < total:
        high *= 2
    low = 0.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _readable(groups, middle) < total else (low, middle)
    return low


def flops_bound(total: int, phase: str, hardware: Hardware) -> float:
    """Least seconds for `total` FLOPs with the devices that can work together at their highest peaks."""
    return total / max(
        sum(_peak(other, phase) for other in hardware.devices if _together(device, other))
        for device in hardware.devices
    )


def _cache_speedup(hardware: Hardware) -> float:
    return max([1.0, *(cache_rate(d) / d.read.value for d in hardware.devices if d.cache_bytes)])


def _together(device: Device, other: Device) -> bool:
    return device.name not in other.excludes and other.name not in device.excludes


def _peak(device: Device, phase: str) -> float:
    peaks = [c.flops.value for c in device.compute if c.phase == phase] or [c.flops.value for c in device.compute]
    return max(peaks) * max([1.0, *(s.value for c in device.efficiency if c.bound == "compute" for s in c.share)])


_Group = tuple[float, list[tuple[int, float]]]
"""A physical memory: its rate, and (bytes, rate) of what lives in it."""


def _groups(hardware: Hardware) -> list[_Group]:
    members: dict[str, list[Memory]] = {}
    for memory in hardware.memories:
        members.setdefault(memory.shares or memory.name, []).append(memory)
    groups = []
    for root, memories in members.items():
        parts = [(memory.available, _rate(memory, hardware)) for memory in memories]
        seen = [_best_read(memory, hardware) for memory in memories]
        groups.append((max(_bandwidth(hardware.memory(root)), *seen), parts))
    return groups


def _rate(memory: Memory, hardware: Hardware) -> float:
    return max(_bandwidth(memory), _best_read(memory, hardware))


def _bandwidth(memory: Memory) -> float:
    """Bytes/s of a memory: the larger of what one user and what all at once were measured to reach, which was at
    different times."""
    return max(memory.bandwidth.value, together(memory).value)


def _best_read(memory: Memory, hardware: Hardware) -> float:
    """The best bytes/s that a device reaches in `memory`: shares of a measured record may exceed 1."""
    return max((_best_share(d) * d.read.value for d in hardware.devices if d.memory == memory.name), default=0.0)


def _best_share(device: Device) -> float:
    return max([1.0, *(s.value for c in device.efficiency if c.bound == "memory" for s in c.share)])


def _readable(groups: list[_Group], seconds: float) -> float:
    """Bytes that can be read within `seconds` under every constraint."""
    return sum([min(rate * seconds, sum([min(size, own * seconds) for size, own in parts])) for rate, parts in groups])
