"""Work that a busy link delays: a device's tasks take longer while data moves into or out of its memory (PARK-43).

A link of the record says how much: `slows[device]` = f, so work of that device proceeds at 1 / (1 + f) while a
transfer runs on the link. Delays of several busy links add up, 1 / (1 + f + g): each holds up the same work by what
it moves itself, four drives of one rate four times as much as one, and none of the order of drives matters.

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
from helmsman.schemas.hardware import Hardware, lane_owner

Slowings = tuple[tuple[str, float], ...]
"""Links that slow a task while they are busy, and by how much each."""

Slowed = Callable[[Task], Slowings]
End = Literal["low", "mid", "high"]


def slowings(hardware: Hardware, end: End = "mid") -> dict[str, Slowings]:
    """By device the links that slow it, those by 0 left out; `end` of each figure's interval."""
    read: dict[End, Callable[[Figure], float]] = {
        "low": lambda f: f.p10,
        "mid": lambda f: f.value,
        "high": lambda f: f.p90,
    }
    found: dict[str, Slowings] = {}
    for link in hardware.links:
        for device, figure in (link.slows or {}).items():
            if (extra := read[end](figure)) > 0.0:
                found[device] = (*found.get(device, ()), (link.name, extra))
    return found


def alone(hardware: Hardware) -> Slowed:
    """What slows tasks whose prices were all measured on an otherwise idle machine."""
    known = slowings(hardware)
    return lambda task: known.get(lane_owner(task.resource), ())


def beside(found: Slowings, link: str | None) -> Slowings:
    """`found` without the link that a price already counts."""
    return tuple((name, extra) for name, extra in found if name != link)


def speed(found: Slowings, busy: Callable[[str], bool]) -> float:
    """The speed of work, relative to idle links, while those are `busy`."""
    return 1.0 / (1.0 + sum(extra for link, extra in found if busy(link)))
