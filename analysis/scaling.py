"""Memories, links and processors work at other speeds from minute to minute: predictions scaled by what probes read.

What several devices reach in a memory they share, and what they keep of their arithmetic while all compute, is probed
by all of them at once, and scales by itself. Bytes streamed from memory take (rate when profiled / rate now) times as
long, and so do the bytes of a transfer and the FLOPs of what arithmetic bounds; launches, overheads and latencies stay
(probes beside every run). A processor's memory is probed by matrix products with one token in the plan's format, and
their rate is divided by that of the same products in the profile: a faster memory speeds up their reads, not their
arithmetic."""

from collections.abc import Callable, Iterable, Mapping
from statistics import median

from helmsman.lowering.graph import Task
from helmsman.planner.cost.device_rates import product_rate, weights_rate
from helmsman.planner.cost.estimate import Estimate
from helmsman.schemas.figures import Figure, scaled_figure
from helmsman.schemas.hardware import Hardware, Memory
from helmsman.schemas.trace import Probe

TOGETHER = ("joint", "joint_compute")
"""Fields of a memory that hold rates of several devices at once; probes of them have the same names."""


class Scaling:
    """How much slower each device's memory and each link were in each run than when they were profiled."""

    def __init__(self, hardware: Hardware, probes: Iterable[Probe]) -> None:
        self._hardware = hardware
        seen: dict[tuple[str, str, int], list[float]] = {}
        for probe in probes:
            profiled = profiled_rate(hardware, probe)
            if profiled is not None:
                seen.setdefault((probe.what, probe.name, probe.run), []).append(probe.value / profiled)
        self._slower = {key: 1.0 / median(values) for key, values in seen.items()}

    def seconds(self, run: int, task: Task, estimate: Estimate) -> float:
        """Return the median prediction of `task` at the speeds of `run`; unchanged where nothing was probed.

        Only `estimate.memory` and `estimate.compute` are: seconds that are bytes over a bandwidth, or FLOPs over a
        rate."""
        what = "link" if task.kind == "transfer" else "read"
        moving = (self._slower.get((what, task.resource, run), 1.0) - 1.0) * estimate.memory
        computing = (self._slower.get(("compute", task.resource, run), 1.0) - 1.0) * estimate.compute
        return estimate.mid + moving + computing

    def machine(self, run: int) -> Hardware:
        """Return the machine on which several users of a memory reach what they did in `run`; as recorded where that
        was not probed."""
        now = {f"{what} {name}": 1.0 / slower for (what, name, of), slower in self._slower.items() if of == run}
        return replaced(self._hardware, now)

    def factors(self) -> dict[str, float]:
        """`read cpu`, `compute cpu` or `link h2d` -> rate now / rate when profiled, the median over runs."""
        rates: dict[str, list[float]] = {}
        for (what, name, _), slower in sorted(self._slower.items()):
            rates.setdefault(f"{what} {name}", []).append(1.0 / slower)
        return {name: median(values) for name, values in rates.items()}


def replaced(hardware: Hardware, now: Mapping[str, float]) -> Hardware:
    """Return the machine with the joint rates of its memories multiplied by `now`, whose keys are those of
    `Scaling.factors`: `joint dram` or `joint_compute dram` -> rate now / rate when profiled."""

    def memory(old: Memory) -> Memory:
        return with_joint_rates(old, lambda what, figure: scaled_figure(figure, now.get(f"{what} {old.name}", 1.0)))

    memories = tuple(map(memory, hardware.memories))
    return hardware if memories == hardware.memories else hardware.model_copy(update={"memories": memories})


def with_joint_rates(memory: Memory, moved: Callable[[str, Figure], Figure]) -> Memory:
    """Return the memory with every joint rate that it has replaced by `moved(field, figure)`."""
    rates = {what: moved(what, figure) for what in TOGETHER if (figure := getattr(memory, what)) is not None}
    return memory.model_copy(update=rates) if rates else memory


def profiled_rate(hardware: Hardware, probe: Probe) -> float | None:
    """Return the rate or share that the record has for what `probe` measured, in the unit of the probe; None where the
    record has none."""
    if probe.what in TOGETHER:
        shared = (getattr(memory, probe.what) for memory in hardware.memories if memory.name == probe.name)
        return next((figure.value for figure in shared if figure is not None), None)
    if probe.what == "link":
        return next((link.bandwidth.value for link in hardware.links if link.name == probe.name), None)
    device = next((device for device in hardware.devices if device.name == probe.name), None)
    if device is None:
        return None
    if probe.what == "read":
        if probe.format is None or probe.matrix_bytes is None:
            return device.read.value
        return weights_rate(device, probe.format, probe.matrix_bytes)
    if probe.format is None or probe.tokens is None:
        return None
    return product_rate(device, "decode", probe.format, probe.tokens)
