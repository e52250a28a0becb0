"""How storage devices share the reading of every weight, and what reading it together takes (PARK-39..42)."""

from collections.abc import Iterable, Sequence
from functools import lru_cache

from helmsman.planner.cost.balance import Measure, balance
from helmsman.schemas.hardware import Hardware, Link
from helmsman.schemas.storage import STORAGE

_MOST_STEPS = 60
"""The number of steps of balancing at most; a model of the devices is measured for nothing."""

_TOLERANCE = 1 + 1e-9
"""The ratio of the longest time to the shortest at which shares are balanced: to rounding."""


def stripes(hardware: Hardware, storage: tuple[str, ...], target: str) -> tuple[float, ...]:
    """Shares of a weight that memories `storage` bring to memory `target`, all finishing together; they sum to 1.

    Devices without a link there are treated alike: lowering names what is missing."""
    links = tuple(hardware.link(name, target) for name in storage)
    known = [link for link in links if link is not None]
    if len(known) < len(links) or len(links) < 2:
        return (1.0 / len(storage),) * len(storage)
    return _balanced(tuple((link.bandwidth.value, *_ceiling(hardware, link)) for link in known))


def together(hardware: Hardware, target: str) -> dict[str, float]:
    """The share of every storage memory linked to `target` when all of them bring a weight together."""
    names = tuple(m.name for m in hardware.memories if m.kind == STORAGE and hardware.link(m.name, target) is not None)
    return dict(zip(names, stripes(hardware, names, target), strict=True)) if names else {}


def parallel(hardware: Hardware, moved: Iterable[tuple[str, float, int]]) -> float:
    """Seconds of transfers that begin together: (link, seconds alone, bytes) of each.

    Those of one link follow each other; links that share lanes move no more than those carry."""
    alone: dict[str, float] = {}
    shared: dict[str, list[tuple[str, float]]] = {}
    by_name = {link.name: link for link in hardware.links}
    for name, seconds, size in moved:
        alone[name] = alone.get(name, 0.0) + seconds
        lanes, rate = _ceiling(hardware, by_name[name])
        shared.setdefault(lanes, []).append((name, size / rate))
    together = [sum(use for _, use in uses) for uses in shared.values() if len({name for name, _ in uses}) > 1]
    return max([*alone.values(), *together], default=0.0)


def _ceiling(hardware: Hardware, link: Link) -> tuple[str, float]:
    """The physical lanes behind `link`, and what they carry, bytes/s; its own where it has them to itself."""
    by_name, seen = {other.name: other for other in hardware.links}, set[str]()
    while link.shares is not None and link.name not in seen:
        seen.add(link.name)
        link = by_name[link.shares]
    return link.name, (link.carries or link.bandwidth).value


@lru_cache(maxsize=64)
def _balanced(lanes: tuple[tuple[float, str, float], ...]) -> tuple[float, ...]:
    even = (1.0 / len(lanes),) * len(lanes)
    return balance(even, simultaneous(lanes), iterations=_MOST_STEPS, tolerance=_TOLERANCE).shares


def simultaneous(lanes: Sequence[tuple[float, str, float]]) -> Measure:
    """Seconds of devices that read at the same time: (own rate, name of the lanes, what those carry) of each.

    Devices behind the same lanes share them max-min fairly until the first is done, and so on."""

    def measure(shares: tuple[float, ...]) -> tuple[float, ...]:
        ends, now = [0.0] * len(shares), 0.0
        left = {device: share for device, share in enumerate(shares) if share > 0}
        while left:
            speeds = _speeds(lanes, tuple(left))
            first = min(left, key=lambda device: left[device] / speeds[device])
            step = left[first] / speeds[first]
            now += step
            left = {device: share - step * speeds[device] for device, share in left.items() if device != first}
            ends[first] = now
            for device in [device for device, share in left.items() if share <= 1e-15]:
                ends[device] = now
                del left[device]
        return tuple(ends)

    return measure


def _speeds(lanes: Sequence[tuple[float, str, float]], active: tuple[int, ...]) -> dict[int, float]:
    """Max-min fair rates of the active devices."""
    speeds: dict[int, float] = {}
    for name in {lanes[device][1] for device in active}:
        here = sorted((device for device in active if lanes[device][1] == name), key=lambda d: lanes[d][0])
        rest = lanes[here[0]][2]
        for count, device in enumerate(here):
            speeds[device] = min(lanes[device][0], rest / (len(here) - count))
            rest -= speeds[device]
    return speeds
