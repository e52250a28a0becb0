"""Time between tasks: what it takes until work that waits for another lane begins, and a pass after the one before.

A task that waits for a transfer begins the link's `handover` after that ended: an event is signalled, and a thread
that waits for it goes on. A task that waits for other lanes begins, whatever ended last, the device's `join` after the
task before it on its own lane, since it is handed over by itself and looks at every event. A pass of a run begins when
it has been handed over in so many pieces (`between_passes`): the time of one process, however many devices there are.
The simulator and predictions add the same seconds to the same tasks. Where one thread of the host launches for all
devices, a pass takes no less than that thread works (`thread`)."""

from dataclasses import dataclass
from functools import cached_property, partial

from helmsman.hwdb.percentiles import End, duration_at
from helmsman.schemas.figures import Figure
from helmsman.schemas.hardware import Device, Hardware, lane_owner
from helmsman.timing.host_thread import HostThread
from helmsman.timing.works import Works


@dataclass(frozen=True)
class Handovers:
    """The seconds between tasks on a machine, at one `end` of every figure's interval; those of launches at the end
    `launching`, by default the same."""

    hardware: Hardware
    end: End = "mid"
    launching: End | None = None

    @cached_property
    def known(self) -> bool:
        """Whether the record has any."""
        return bool(self._after or self._joins)

    def after(self, lane: str, other: str) -> float:
        """Return seconds from the end of a task on `lane` to the start of one on the `other` lane that waits for it."""
        if lane == other or other not in self._devices:
            return 0.0
        return self._after.get(lane_owner(lane), 0.0)

    def join(self, lane: str) -> float:
        """Return seconds from the end of a task on `lane` to the start of the next, if that waits for other lanes."""
        return self._joins.get(lane, 0.0)

    def between_lanes(self, lanes: tuple[str, ...]) -> tuple[list[float], list[float]]:
        """Return `join` by lane, and `after` from lane to lane, row after row; found once for the same lanes."""
        if lanes not in self._between_lanes:
            after = [self.after(lane, other) for lane in lanes for other in lanes]
            self._between_lanes[lanes] = list(map(self.join, lanes)), after
        return self._between_lanes[lanes]

    @cached_property
    def thread(self) -> HostThread:
        """Return the thread of the host that launches for all devices."""
        return HostThread(self.hardware, partial(duration_at, end=self.launching or self.end))

    def begins(self, works: Works) -> float:
        """Return seconds from the end of the pass before to the start of this one."""
        between = self.hardware.between_passes
        if between is None:
            return 0.0
        once = duration_at(between.after(works.ends_on), self.end)
        return once + works.submissions * duration_at(between.submission, self.end)

    @cached_property
    def _between_lanes(self) -> dict[tuple[str, ...], tuple[list[float], list[float]]]:
        return {}

    @cached_property
    def _devices(self) -> dict[str, Device]:
        return {device.name: device for device in self.hardware.devices}

    @cached_property
    def _after(self) -> dict[str, float]:
        links = {link.name: self._seconds(link.handover) for link in self.hardware.links}
        return {name: seconds for name, seconds in links.items() if seconds > 0.0}

    @cached_property
    def _joins(self) -> dict[str, float]:
        devices = {name: self._seconds(device.join) for name, device in self._devices.items()}
        return {name: seconds for name, seconds in devices.items() if seconds > 0.0}

    def _seconds(self, figure: Figure | None) -> float:
        return 0.0 if figure is None else duration_at(figure, self.end)


def without_time_between(hardware: Hardware) -> Hardware:
    """Return the machine without time between tasks and for launching them."""
    links = tuple(link.model_copy(update={"handover": None}) for link in hardware.links)
    devices = tuple(device.model_copy(update={"join": None, "launching": None}) for device in hardware.devices)
    return hardware.model_copy(update={"links": links, "devices": devices, "between_passes": None})
