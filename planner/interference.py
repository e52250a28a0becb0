"""Work that a busy link delays: a device's tasks take longer while data moves into or out of its memory (PARK-43).

A link of the record says how much: `slows[device]` = f, so work of that device proceeds at 1 / (1 + f) while a
transfer runs on the link; `interrupts` says it of transfers so small that their latency is most of them: what wakes to
move them takes a processor's time whatever they hold. Delays of several busy links add up, 1 / (1 + f + g): each holds
up the same work by what it moves itself, four drives of one rate four times as much as one, and none of the order of
drives matters.

What was measured beside the link is not slowed by it again. Figures of operation tables with `link_busy` (the
columns host, accelerator and decompress) were taken while the link from the host to the accelerator was moving
weights (PARK-47), so that link is counted in them; every other link, and every link for rooflines and tables measured
alone, is not. A factor is all that a link costs a device, the bandwidth of a memory they share included: sharing that
bandwidth (`lowering.pools`) lowers the speed further only where it leaves less than this.
"""

from collections.abc import Callable
from typing import Literal

from helmsman.lowering.graph import Task
from helmsman.schemas.figures import Figure
from helmsman.schemas.hardware import Hardware, is_small, lane_owner

Slowings = tuple[tuple[str, float], ...]
"""Traffic that slows a task while it is under way, and by how much each."""

Slowed = Callable[[Task], Slowings]
End = Literal["low", "mid", "high"]


READ: dict[End, Callable[[Figure], float]] = {
    "low": lambda f: f.p10,
    "mid": lambda f: f.value,
    "high": lambda f: f.p90,
}
"""A figure at the end of its interval."""


OPPOSITE: dict[End, End] = {"low": "high", "mid": "mid", "high": "low"}
"""The end of a rate that makes seconds of one end."""


def slowings(hardware: Hardware, end: End = "mid") -> dict[str, Slowings]:
    """By device the traffic that slows it, what does by 0 left out; `end` of each figure's interval."""
    found: dict[str, Slowings] = {}
    for link in hardware.links:
        for traffic, parts in ((link.name, link.slows), (_small(link.name), link.interrupts)):
            for device, figure in (parts or {}).items():
                if (extra := READ[end](figure)) > 0.0:
                    found[device] = (*found.get(device, ()), (traffic, extra))
    return found


class Traffic:
    """What is under way while a task runs, as `slowings` call it."""

    def __init__(self, hardware: Hardware) -> None:
        self._links = {link.name: link for link in hardware.links}

    def of(self, task: Task) -> str | None:
        """The link on which a task moves something; small transfers apart where the record tells them apart."""
        link = self._links.get(lane_owner(task.resource))
        if link is None:
            return None
        return _small(link.name) if link.interrupts is not None and is_small(link, task.bytes) else link.name

    @property
    def all(self) -> tuple[str, ...]:
        """Whatever there may be."""
        return tuple(name for link in self._links for name in (link, _small(link)))


def _small(link: str) -> str:
    return f"{link}:small"


def alone(hardware: Hardware) -> Slowed:
    """What slows tasks whose prices were all measured on an otherwise idle machine."""
    known = slowings(hardware)
    return lambda task: known.get(lane_owner(task.resource), ())


def beside(found: Slowings, link: str | None) -> Slowings:
    """`found` without the link that a price already counts."""
    return tuple((name, extra) for name, extra in found if lane_owner(name) != link)


def speed(found: Slowings, busy: Callable[[str], bool]) -> float:
    """The speed of work, relative to idle links, while such traffic is `busy`."""
    return 1.0 / (1.0 + sum(extra for traffic, extra in found if busy(traffic)))
