"""Work that a busy link delays: a device's tasks take longer while data moves into or out of its memory (PARK-43).

A link of the record says how much: `slows[device]` = f, so work of that device proceeds at 1 / (1 + f) while a
transfer runs on the link. Delays of several busy links add up, 1 / (1 + f + g): each holds up the same work by what it
moves itself, four drives of one rate four times as much as one, and none of the order of drives matters.

`interrupts` says it of processors that move the link's data beside their own work, as those of a loopback accelerator
do: by the size of transfers, since what wakes to move a few bytes takes its time whatever they are. Interrupted work
asks its memories for all it wants while it runs, and not at all in between, so that sharing and interruptions multiply.

What was measured beside the link is not slowed by it again. Figures of operation tables with `link_busy` (the
columns host, accelerator and decompress) were taken while the link from the host to the accelerator was moving
weights (PARK-47), so that link is counted in them; every other link, and every link for rooflines and tables measured
alone, is not. A factor is all that a link costs a device, the bandwidth of a memory they share included: sharing that
bandwidth (`lowering.pools`) lowers the speed further only where it leaves less than this.
"""

from collections.abc import Callable, Container, Mapping

from helmsman.lowering.graph import Task
from helmsman.planner.percentiles import End, duration_at
from helmsman.schemas.hardware import Hardware, Link, is_small, lane_owner

Slowings = tuple[tuple[str, float], ...]
"""Traffic that slows a task while it is under way, and by how much each."""

Slowed = Callable[[Task], Slowings]


SIZES = ("small", "large")
"""Of transfers that interrupt."""


def slowings(hardware: Hardware, end: End = "mid") -> dict[str, Slowings]:
    """By device the traffic that slows it, what does by 0 left out; `end` of each figure's interval."""
    found: dict[str, Slowings] = {}
    for link in hardware.links:
        each = [(device, link.name, figure) for device, figure in (link.slows or {}).items()]
        for device, parts in (link.interrupts or {}).items():
            each += [(device, _sized(link.name, size), getattr(parts, size)) for size in SIZES]
        for device, traffic, figure in each:
            if (extra := duration_at(figure, end)) > 0.0:
                found[device] = (*found.get(device, ()), (traffic, extra))
    return found


def under_way(links: Mapping[str, Link], task: Task) -> tuple[str, ...]:
    """What is under way while a task runs, as `slowings` call it: nothing, or its link and the size of what moves."""
    link = links.get(lane_owner(task.resource))
    if link is None:
        return ()
    return link.name, _sized(link.name, "small" if is_small(link, task.bytes) else "large")


def interrupts(traffic: str) -> bool:
    """Whether it takes a processor's time, and not its memory's."""
    return lane_owner(traffic) != traffic


def streaming(traffic: str) -> str | None:
    """The link that delays work by so much while large transfers run; None for what small ones do."""
    return None if traffic == _sized(lane_owner(traffic), "small") else lane_owner(traffic)


def _sized(link: str, size: str) -> str:
    return f"{link}:{size}"


def alone(hardware: Hardware) -> Slowed:
    """What slows tasks whose prices were all measured on an otherwise idle machine."""
    known = slowings(hardware)
    return lambda task: known.get(lane_owner(task.resource), ())


def beside(found: Slowings, link: str | None) -> Slowings:
    """`found` without the link that a price already counts."""
    return tuple((name, extra) for name, extra in found if lane_owner(name) != link)


def speed(found: Slowings, busy: Callable[[str], bool]) -> float:
    """The speed of work, relative to idle links, while links that are `busy` move much."""
    large = ((streaming(traffic), extra) for traffic, extra in found)
    return 1.0 / (1.0 + sum(extra for link, extra in large if link is not None and busy(link)))


def speeds(found: Slowings, moving: Container[str]) -> tuple[float, float]:
    """The speeds of work that memories know of, and of work that is interrupted, while such traffic is `moving`."""
    delays = [(interrupts(traffic), extra) for traffic, extra in found if traffic in moving]
    slowed, interrupted = (sum(extra for which, extra in delays if which is kind) for kind in (False, True))
    return 1.0 / (1.0 + slowed), 1.0 / (1.0 + interrupted)
