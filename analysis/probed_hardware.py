"""The machine as probes beside runs found it: its record with the rates that they read instead of those of the profile.

Bytes over a rate that was probed take as long as the probe and the operation's share of it say: what the profile read,
and how far that moved while it was taken, is in both and cancels. What stays uncertain is the share, launches and other
overheads, and how far the machine was from its probes while it ran. A run stands between two of them, and its own speed
is taken to be as far from their mean as they are. What is compared is a median over runs, which move one without
another, so that the spread is that of such a median, of order statistics (`hwdb.fit.settled`)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from helmsman.analysis.scaling import profiled_rate, with_joint_rates
from helmsman.hwdb.fit import settled
from helmsman.schemas.figures import Figure, scaled_figure
from helmsman.schemas.hardware import Device, Hardware, Link, Memory
from helmsman.schemas.trace import Probe

_What = tuple[str, str]
"""The kind of a probe (`read`, `compute`, `link`, `joint` or `joint_compute`), and the name of the device, link or
memory that it probes."""


@dataclass(frozen=True, slots=True)
class _Speed:
    """A rate beside the runs, as parts of what was profiled: the median over runs, and its 10th and 90th percentile;
    these are None where no run stood between two probes, which say nothing of how far they can be trusted."""

    value: float
    p10: float | None
    p90: float | None

    def of(self, figure: Figure) -> Figure:
        """Return the figure at this speed; with its own relative spread where that of the probes is not known."""
        if self.p10 is None or self.p90 is None:
            return scaled_figure(figure, self.value)
        value = self.value * figure.value
        ends = {"p10": min(self.p10 * figure.value, value), "p90": max(self.p90 * figure.value, value)}
        return figure.model_copy(update={"value": value, "disturbed": None, **ends})


def at_probed_rates(hardware: Hardware, probes: Iterable[Probe]) -> Hardware:
    """Return the record with every rate that `probes` read, and the spread of theirs; the rest, and what nothing
    probed, as it was profiled."""
    speeds = dict(_speeds(hardware, probes))
    if not speeds:
        return hardware
    return hardware.model_copy(
        update={
            "devices": tuple(_device(device, speeds) for device in hardware.devices),
            "links": tuple(_link(link, speeds) for link in hardware.links),
            "memories": tuple(_memory(memory, speeds) for memory in hardware.memories),
        }
    )


def _speeds(hardware: Hardware, probes: Iterable[Probe]) -> Iterable[tuple[_What, _Speed]]:
    seen: dict[_What, dict[int, list[float]]] = {}
    for probe in probes:
        profiled = profiled_rate(hardware, probe)
        if profiled is not None:
            seen.setdefault((probe.what, probe.name), {}).setdefault(probe.run, []).append(probe.value / profiled)
    return ((what, _speed(list(runs.values()))) for what, runs in seen.items())


def _speed(runs: list[list[float]]) -> _Speed:
    """`runs`: the probes of each, as parts of what was profiled."""
    means = [median(run) for run in runs]
    asides = [probe / mean for run, mean in zip(runs, means, strict=True) if len(run) > 1 for probe in run]
    value = median(means)
    if not asides:
        return _Speed(value, None, None)
    spread = settled(asides, "probed", sum(len(run) > 1 for run in runs))
    return _Speed(value, value * spread.p10, value * spread.p90)


def _device(device: Device, speeds: Mapping[_What, _Speed]) -> Device:
    changed: dict[str, Any] = {}
    if (read := speeds.get(("read", device.name))) is not None:
        changed["read"] = read.of(device.read)
    if (compute := speeds.get(("compute", device.name))) is not None:
        changed["compute"] = tuple(rate.model_copy(update={"flops": compute.of(rate.flops)}) for rate in device.compute)
    return device.model_copy(update=changed) if changed else device


def _link(link: Link, speeds: Mapping[_What, _Speed]) -> Link:
    speed = speeds.get(("link", link.name))
    return link if speed is None else link.model_copy(update={"bandwidth": speed.of(link.bandwidth)})


def _memory(memory: Memory, speeds: Mapping[_What, _Speed]) -> Memory:
    def moved(what: str, figure: Figure) -> Figure:
        speed = speeds.get((what, memory.name))
        return figure if speed is None else speed.of(figure)

    return with_joint_rates(memory, moved)
