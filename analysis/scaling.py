"""Memory and links move at other speeds from minute to minute: predictions scaled by what a probe read.

Bytes streamed from memory take (rate when profiled / rate now) times as long, and so do the bytes of a transfer;
compute, launches, overheads and latencies stay (measuring rule: probes beside every run)."""

from collections.abc import Iterable
from statistics import median

from helmsman.lowering.graph import Task
from helmsman.planner.costs import Estimate
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.trace import Probe


class Scaling:
    """How much slower each device's memory and each link were in each run than when they were profiled."""

    def __init__(self, hardware: Hardware, probes: Iterable[Probe]) -> None:
        profiled = {("read", device.name): device.read.value for device in hardware.devices}
        profiled |= {("link", link.name): link.bandwidth.value for link in hardware.links}
        seen: dict[tuple[str, str, int], list[float]] = {}
        for probe in probes:
            if (probe.what, probe.name) in profiled:
                seen.setdefault((probe.what, probe.name, probe.run), []).append(probe.value)
        self._slower = {key: profiled[key[:2]] / median(values) for key, values in seen.items()}

    def seconds(self, run: int, task: Task, estimate: Estimate) -> float:
        """The median prediction of `task` at the speeds of `run`; unchanged where nothing was probed.

        Only `estimate.memory` is scaled: the seconds that are bytes over a bandwidth."""
        what = "link" if task.kind == "transfer" else "read"
        return estimate.mid + (self._slower.get((what, task.resource, run), 1.0) - 1.0) * estimate.memory

    def factors(self) -> dict[str, float]:
        """`read cpu` or `link h2d` -> rate now / rate when profiled, the median over runs."""
        found: dict[str, list[float]] = {}
        for (what, name, _), slower in sorted(self._slower.items()):
            found.setdefault(f"{what} {name}", []).append(1.0 / slower)
        return {name: median(values) for name, values in found.items()}
