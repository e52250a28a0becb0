"""Names of the lanes of accelerators that differ in nothing but names, and which takes whose place."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from helmsman.planner.machine import Roles
from helmsman.planner.strategies.optimal.program.ways import Chosen
from helmsman.scheduler.iteration import Phase
from helmsman.timing.pools import Pools

Lane = tuple[Phase, str]

Names = Mapping[str, str]
"""What lanes are called, by what they are."""


def called(roles: Roles, lanes: Sequence[Lane]) -> tuple[Names, ...]:
    """By accelerator, what its lanes are called, by what they are of the first one's."""
    names_of = [dict(_named(roles, lanes, on)) for on in range(len(roles.accelerators))]
    return tuple({what: name for what, name in names.items() if what in names_of[0]} for names in names_of)


def turned(names: Sequence[Names], lanes: Sequence[Lane]) -> Iterator[Chosen]:
    """By turn, for every lane the column of the one that takes its place."""
    columns = {lane: column for column, lane in enumerate(lanes)}
    for turn in range(len(names)):
        renamed: dict[str, str] = {}
        for on, mine in enumerate(names):
            other = names[(on + turn) % len(names)]
            renamed |= {name: other[what] for what, name in mine.items()}
        yield np.array([columns[phase, renamed.get(name, name)] for phase, name in lanes], dtype=np.intp)


def _named(roles: Roles, lanes: Sequence[Lane], on: int) -> Iterator[tuple[str, str]]:
    device, pools = roles.accelerators[on], Pools(roles.hardware)
    yield "device", device.name
    yield "expanding", device.decompression_lane
    yield "memory", f"pool {pools.of_memory(device.memory)}"
    for what, pair in (("in", (roles.host.memory, device.memory)), ("out", (device.memory, roles.host.memory))):
        link = roles.hardware.link(*pair)
        assert link is not None
        yield what, link.name
        for number, pool in enumerate(pools.of_link(link.name)):
            yield f"{what} {number}", f"pool {pool}"
        yield from _beside(lanes, "", link.name)
    yield from _beside(lanes, "expanding ", device.decompression_lane)


def _beside(lanes: Sequence[Lane], what: str, lane: str) -> Iterator[tuple[str, str]]:
    """The chains beside a busy lane."""
    for _, name in lanes:
        share, _, of = name.partition(" of ")
        if of == lane:
            yield f"{what}{share}", name
