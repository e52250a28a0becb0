"""Bandwidth as a fluid: running tasks share each physical memory, and each physical link, max-min fairly.

A task alone runs at its price, which is a measured fact, whatever the memory's nominal bandwidth says. When
several tasks want more of a memory than it has, their byte rates are raised together until each has what
it asks for or one of its memories is full (progressive filling)."""

from collections.abc import Mapping
from math import inf

from helmsman.lowering.graph import Task
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.hardware import Hardware, Link, lane_owner

_LINK = "link "
"""Before the name of a link's pool: memories and links may have equal names."""


class Pools:
    """The physical memories and links of a machine and what each can deliver, bytes/s.

    Lanes of one link, and links that share another's lanes, draw from one pool (PARK-43)."""

    def __init__(self, hardware: Hardware) -> None:
        self._root = {memory.name: _root(hardware, memory.name) for memory in hardware.memories}
        self._link = {link.name: _LINK + _owner(hardware, link) for link in hardware.links}
        self.capacity = {root: hardware.memory(root).bandwidth.value for root in self._root.values()}
        for link in hardware.links:
            self.capacity.setdefault(_LINK + link.name, link.bandwidth.value)

    def uses(self, task: Task) -> dict[str, int]:
        """How many times a task's bytes count in each pool."""
        uses: dict[str, int] = {}
        for memory in task.memories:
            root = self._root[memory]
            uses[root] = uses.get(root, 0) + 1
        if task.kind == "transfer":
            uses[self._link[lane_owner(task.resource)]] = 1
        return uses

    def most(self, uses: Mapping[str, int]) -> float:
        """Bytes/s of a task that has these pools to itself."""
        return min((self.capacity[pool] / times for pool, times in uses.items()), default=inf)

    @property
    def rates(self) -> list[float]:
        """The capacities by number of pool."""
        return list(self.capacity.values())

    def numbered(self, uses: Mapping[str, int]) -> list[tuple[int, int]]:
        """`uses` by number of pool."""
        numbers = {name: number for number, name in enumerate(self.capacity)}
        return [(numbers[pool], times) for pool, times in uses.items()]


def _owner(hardware: Hardware, link: Link) -> str:
    """The link whose physical lanes `link` uses. Raises BadInputError when `shares` goes round in a circle."""
    by_name = {other.name: other for other in hardware.links}
    seen = {link.name}
    while link.shares is not None:
        if link.shares in seen:
            remedy = "let `shares` end at a physical link"
            raise BadInputError("a link shares itself", field="hardware.links.shares", value=link.shares, remedy=remedy)
        seen.add(link.shares)
        link = by_name[link.shares]
    return link.name


def _root(hardware: Hardware, name: str) -> str:
    """The physical memory behind `name`. Raises BadInputError when `shares` goes round in a circle."""
    seen = {name}
    while (shared := hardware.memory(name).shares) is not None:
        if shared in seen:
            raise BadInputError(
                "a memory shares its own bandwidth",
                field="hardware.memories.shares",
                value=shared,
                remedy="let `shares` end at a physical memory",
            )
        seen.add(shared)
        name = shared
    return name
