"""Work that other work delays: a device's tasks take longer while data moves into or out of its memory (PARK-43), and
while another device computes.

A link of the record says how much: `slows[device]` = f, so work of that device proceeds at 1 / (1 + f) while a
transfer runs on the link. Delays of several busy links add up, 1 / (1 + f + g): each holds up the same work by what it
moves itself, four drives of one rate four times as much as one, and none of the order of drives matters.

`interrupts` says it of processors that move the link's data beside their own work, as those of a loopback accelerator
do: by the size of transfers, since what wakes to move a few bytes takes its time whatever they are. Interrupted work
asks its memories for all it wants while it runs, and not at all in between, so that sharing and interruptions multiply.

Devices that share a memory may be made of the same cores, or of one chip whose clock falls when all of it computes.
`joint_compute` of the memory is the part of its FLOP/s that a device keeps then, so what arithmetic bounds is slowed as
long as another such task is under way on the other device, by the part of its seconds that is arithmetic. What memory
bounds is not: what devices read together is a figure of its own (`joint`).

What was measured beside the link is not slowed by it again. Figures of operation tables with `link_busy` (the
columns host, accelerator and decompress) were taken while the link from the host to the accelerator was moving
weights (PARK-47), so that link is counted in them; every other link, and every link for rooflines and tables measured
alone, is not. A factor is all that a link costs a device, the bandwidth of a memory they share included: sharing that
bandwidth (`timing.pools`) lowers the speed further only where it leaves less than this.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import permutations

from helmsman.hwdb.percentiles import OPPOSITE, End, duration_at, rate_at
from helmsman.lowering.graph import Task
from helmsman.schemas.hardware import Hardware, Link, is_small, lane_owner
from helmsman.timing.pools import Pools

Slowings = tuple[tuple[str, float], ...]
"""Traffic, or arithmetic, that slows a task while it is under way, and by how much each."""

Slowed = Callable[[Task], Slowings]


SIZES = ("small", "large")
"""Of transfers that interrupt."""

_COMPUTING = "computing"
"""Suffix of the name under which a device's arithmetic is listed in `Slowings`: `cpu:computing`."""


def slowings(hardware: Hardware, end: End = "mid") -> dict[str, Slowings]:
    """By device the traffic and the arithmetic of others that slow it, what does by 0 left out; `end` of each figure's
    interval."""
    result: dict[str, Slowings] = {}
    for device, name, extra in (*_by_traffic(hardware, end), *_by_arithmetic(hardware, end)):
        if extra > 0.0:
            result[device] = (*result.get(device, ()), (name, extra))
    return result


def _by_traffic(hardware: Hardware, end: End) -> Iterator[tuple[str, str, float]]:
    """Yield (device, name of a link's traffic, what that adds to the device's seconds as a share of them)."""
    for link in hardware.links:
        for device, figure in (link.slows or {}).items():
            yield device, link.name, duration_at(figure, end)
        for device, parts in (link.interrupts or {}).items():
            for size in SIZES:
                yield device, _sized(link.name, size), duration_at(getattr(parts, size), end)


def _by_arithmetic(hardware: Hardware, end: End) -> Iterator[tuple[str, str, float]]:
    """Yield (device, name of another device's arithmetic, what that adds to the device's seconds as a share of them)
    for every ordered pair of devices that share a memory and no cores."""
    if all(memory.joint_compute is None for memory in hardware.memories):
        return
    pools = Pools(hardware)
    for memory in hardware.memories:
        if memory.joint_compute is None:
            continue
        extra = 1.0 / rate_at(memory.joint_compute, OPPOSITE[end]) - 1.0
        users = [device for device in hardware.devices if pools.of_memory(device.memory) == memory.name]
        for device, other in permutations(users, 2):
            if other.name not in device.excludes and device.name not in other.excludes:
                yield device.name, _arithmetic(other.name), extra


def under_way(links: Mapping[str, Link], task: Task, slowed: Slowings) -> tuple[str, ...]:
    """Return the names under which a running `task` slows others in `Slowings`: of a transfer its link, and that link
    with the size of the transfer; of a task that another device's arithmetic slows (`slowed`), its own device's
    arithmetic; of other tasks none."""
    owner = lane_owner(task.resource)
    link = links.get(owner)
    if link is None:
        return (_arithmetic(owner),) if any(is_arithmetic(name) for name, _ in slowed) else ()
    return link.name, _sized(link.name, "small" if is_small(link, task.bytes) else "large")


def is_arithmetic(traffic: str) -> bool:
    """Whether an entry of `Slowings` is a device's arithmetic rather than a link's traffic."""
    return traffic.endswith(f":{_COMPUTING}")


def interrupts(traffic: str) -> bool:
    """Whether it takes a processor's time, and not its memory's: copies that it makes do. Threads of one core go on
    side by side, and ask their memories for less."""
    return lane_owner(traffic) != traffic and not is_arithmetic(traffic)


def streaming(traffic: str) -> str | None:
    """Return the link that delays work by so much while large transfers run; None for what small ones and devices
    do."""
    small = traffic == _sized(lane_owner(traffic), "small")
    return None if small or is_arithmetic(traffic) else lane_owner(traffic)


def _sized(link: str, size: str) -> str:
    return f"{link}:{size}"


def _arithmetic(device: str) -> str:
    return f"{device}:{_COMPUTING}"


def alone(hardware: Hardware) -> Slowed | None:
    """Return the function that gives, by task, the traffic that slows it where all prices were measured on an otherwise
    idle machine; None where no traffic slows anything. Which tasks arithmetic bounds only their prices tell
    (`CostModel.slowed`)."""
    by_device = ((device, of_arithmetic(slowing, 0.0)) for device, slowing in slowings(hardware).items())
    known = {device: traffic for device, traffic in by_device if traffic}
    return (lambda task: known.get(lane_owner(task.resource), ())) if known else None


def of_arithmetic(slowings: Slowings, part: float) -> Slowings:
    """Return `slowings` with those by other devices' arithmetic multiplied by `part`, the share of a task's seconds
    that is arithmetic; those of 0 are left out."""
    parts = ((name, part * extra if is_arithmetic(name) else extra) for name, extra in slowings)
    return tuple((name, extra) for name, extra in parts if extra > 0.0)


def by_links(slowed: Slowed | None) -> Slowed | None:
    """Return the function `slowed` with the slowings by links alone, for lower bounds: in a pass two devices may
    compute, and a processor copy and compute, one after the other."""
    if slowed is None:
        return None
    return lambda task: tuple(pair for pair in slowed(task) if lane_owner(pair[0]) == pair[0])


def beside(slowings: Slowings, link: str | None) -> Slowings:
    """`slowings` without the link that a price already counts."""
    return tuple((name, extra) for name, extra in slowings if lane_owner(name) != link)


def speed(slowings: Slowings, busy: Callable[[str], bool]) -> float:
    """Return the speed of work, relative to idle links, while links that are `busy` move much."""
    large = ((streaming(traffic), extra) for traffic, extra in slowings)
    return 1.0 / (1.0 + sum(extra for link, extra in large if link is not None and busy(link)))
