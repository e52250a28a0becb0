"""The time in which several work at once: transfers to accelerators, processors, accelerators (PARK-06, 64)."""

from collections.abc import Mapping
from dataclasses import dataclass

from helmsman.schemas.hardware import Hardware, lane_owner

H2D, CPU, GPU, OTHER = range(4)


@dataclass(frozen=True, slots=True)
class OverlapShares:
    """Seconds of a replay by what worked; they add up to its makespan.

    `h2d`: only links into an accelerator's memory (storage's too); `h2d_cpu`, `cpu_gpu`, `h2d_gpu`, `all`: these
    together; `gpu`, `cpu`: one kind alone; `other`: only links out of accelerators; `idle`: nothing."""

    h2d: float = 0.0
    h2d_cpu: float = 0.0
    h2d_gpu: float = 0.0
    cpu_gpu: float = 0.0
    all: float = 0.0
    gpu: float = 0.0
    cpu: float = 0.0
    other: float = 0.0
    idle: float = 0.0

    @property
    def total(self) -> float:
        """Return the makespan."""
        alone = self.h2d + self.gpu + self.cpu + self.other + self.idle
        return alone + self.h2d_cpu + self.h2d_gpu + self.cpu_gpu + self.all

    def plus(self, other: "OverlapShares", times: float = 1.0) -> "OverlapShares":
        """Return the sum with `times` as much of another replay."""
        return OverlapShares(*(getattr(self, name) + times * getattr(other, name) for name in FIELDS))


FIELDS = ("h2d", "h2d_cpu", "h2d_gpu", "cpu_gpu", "all", "gpu", "cpu", "other", "idle")
_NAMES = {
    (True, False, False): "h2d",
    (True, True, False): "h2d_cpu",
    (True, False, True): "h2d_gpu",
    (False, True, True): "cpu_gpu",
    (True, True, True): "all",
    (False, False, True): "gpu",
    (False, True, False): "cpu",
}


class LaneKinds:
    """Which lanes of a machine are transfers to accelerators, processors, accelerators, or other links."""

    count = 4

    def __init__(self, hardware: Hardware) -> None:
        self._flags = {device.name: CPU if device.kind == "cpu" else GPU for device in hardware.devices}
        accelerated = {device.memory for device in hardware.devices if device.kind != "cpu"}
        self._flags |= {link.name: H2D if link.target_memory in accelerated else OTHER for link in hardware.links}

    def flag(self, lane: str) -> int:
        """Return the bit of a lane's kind; lanes the machine does not know count as other links."""
        return self._flags.get(lane_owner(lane), OTHER)

    def shares(self, masks: Mapping[int, float]) -> OverlapShares:
        """`masks`: seconds by the set of kinds that worked, a bit each."""
        totals = dict.fromkeys(FIELDS, 0.0)
        for mask, seconds in masks.items():
            kinds = (bool(mask >> H2D & 1), bool(mask >> CPU & 1), bool(mask >> GPU & 1))
            totals[_NAMES.get(kinds, "other" if mask else "idle")] += seconds
        return OverlapShares(**totals)
