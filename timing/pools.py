"""The physical memories and links of a machine, and which tasks draw on them: what they share while they overlap.

A task alone runs at its price, which is a measured fact, whatever a memory's nominal bandwidth says. When several
tasks want more of a memory than it has, their byte rates are raised together until each has what it asks for or one
of its memories is full: bandwidth is a fluid, shared max-min fairly (the simulator does that). So no pass is faster
than the seconds that one of its pools must work.

Products read at a share of what plain reads reach, alone and beside each other: two devices that multiply, together far
below what a memory has, slow each other down as two that read do. So a product draws the bytes that plain reads would
have moved meanwhile (`Pools.drawn`), where a record has these shares (`joint_products`).

A task that busy links delay (`slows` of a link) asks for as much less: a measured delay contains what sharing memories
costs, so the two do not multiply, and the lower speed counts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from math import inf

from helmsman.lowering.graph import Task
from helmsman.lowering.nearest_format import nearest
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.figures import Figure
from helmsman.schemas.hardware import Hardware, Link, Memory, lane_owner
from helmsman.timing._clock import fair_speeds
from helmsman.timing.host_thread import HostThread

THREAD = "host thread"
"""The pool of seconds of the thread that launches for all devices, a second a second (`timing.host_thread`)."""

_LINK = "link "
_LANES = "lanes "
"""Before the name of a link's pool and of its lanes': memories and links may have equal names."""


Rate = Callable[[Figure], float]

Uses = Mapping[str, int]
"""How many times the bytes of a task count in each pool."""


def median_of(figure: Figure) -> float:
    """Return the seconds or bytes/s that are expected of a figure."""
    return figure.value


def together(memory: Memory) -> Figure:
    """Bytes/s of all users of a memory at once."""
    return memory.joint or memory.bandwidth


class Pools:
    """The physical memories and links of a machine and what each can deliver, bytes/s; and the thread of the host,
    if one is given that launches for all devices, of which tasks draw seconds.

    Lanes of one link, and links that share another's lanes, draw from one pool; where those lanes carry more than
    that link alone reaches, from one for each and one for the lanes (PARK-43)."""

    def __init__(self, hardware: Hardware, of: Rate = median_of, thread: HostThread | None = None) -> None:
        """`of`: which end of the intervals of what several users of a memory reach together; `thread`: the one that
        launches for all devices; without it tasks share memories and links alone."""
        self.hardware = hardware
        self._of = of
        self._root = {memory.name: _root(hardware, memory.name) for memory in hardware.memories}
        self._link = {link.name: _link_pools(hardware, link) for link in hardware.links}
        self.capacity = {root: of(together(hardware.memory(root))) for root in self._root.values()}
        for link in hardware.links:
            self.capacity[_LINK + link.name] = link.bandwidth.value
            if link.carries is not None:
                self.capacity[_LANES + link.name] = link.carries.value
        self._products = {root: hardware.memory(root).joint_products for root in self._root.values()}
        self._thread = thread if thread is not None and thread.known else None
        if self._thread is not None:
            self.capacity[THREAD] = 1.0
        self._most = dict[tuple[str, tuple[str, ...]], tuple[Uses, float]]()

    def uses(self, task: Task) -> dict[str, int]:
        """How many times a task's bytes count in each pool."""
        uses = self._uses_of(task.memories)
        if task.kind == "transfer":
            uses |= dict.fromkeys(self._link[lane_owner(task.resource)], 1)
        return uses

    def drawn(self, task: Task) -> float:
        """Return bytes of plain reads that a task stands for beside others: of a product more than its own, as it reads
        at a share of what they reach together."""
        if task.kind != "linear" or len(task.memories) != 1:
            return float(task.bytes)
        known = nearest(task.format, self._products[self._root[task.memories[0]]])
        return float(task.bytes) if known is None else task.bytes / self._of(known.share)

    def asked(self, task: Task, alone: float) -> tuple[float, Uses]:
        """Return the bytes/s that a task of `alone` seconds by itself draws, at most what its pools have, and how often
        its bytes count in each."""
        key = task.resource, task.memories
        if key not in self._most:
            used = self.uses(task)
            self._most[key] = used, self.most(used)
        uses, most = self._most[key]
        return min(self.drawn(task) / alone, most) if alone else 0.0, uses

    def fair_speeds(self, flows: Sequence[tuple[float, Uses]]) -> list[float]:
        """Return the max-min fair speeds of flows that run at once, relative to the bytes/s that each asks for, in
        (0, 1]. `flows`: what they ask for, as `asked` returns it."""
        speeds = fair_speeds([rate for rate, _ in flows], [self.numbered(uses) for _, uses in flows], self.rates)
        return [speed if rate else 1.0 for speed, (rate, _) in zip(speeds, flows, strict=True)]

    def called(self, pool: str) -> str:
        """Return a pool in words: `dram bandwidth`, `h2d bandwidth`, `host thread`."""
        if pool == THREAD:
            return THREAD
        return f"{pool.removeprefix(_LINK).removeprefix(_LANES)} bandwidth"

    def of_link(self, name: str) -> tuple[str, ...]:
        """Return the pools that a transfer of a link draws on beside memories."""
        return self._link[name]

    def of_memory(self, name: str) -> str:
        """Return the pools that a memory's bytes draw on."""
        return self._root[name]

    def _uses_of(self, memories: Iterable[str]) -> dict[str, int]:
        uses: dict[str, int] = {}
        for memory in memories:
            root = self._root[memory]
            uses[root] = uses.get(root, 0) + 1
        return uses

    def per_byte(self, link: Link) -> dict[str, float]:
        """Return seconds that each pool must work for every byte that `link` brings at its own rate."""
        uses = self._uses_of((link.source_memory, link.target_memory)) | dict.fromkeys(self._link[link.name], 1)
        part = min(1.0, self.most(uses) / link.bandwidth.value)
        return {pool: times * part / self.capacity[pool] for pool, times in uses.items()}

    def most(self, uses: Mapping[str, int]) -> float:
        """Bytes/s of a task that has these pools to itself."""
        return min((self.capacity[pool] / times for pool, times in uses.items()), default=inf)

    def draws(self, task: Task, alone: float) -> dict[str, float]:
        """Return seconds that each pool must work for a task that takes `alone` seconds by itself.

        A task that alone already exceeds what a pool nominally has counts as using all of it."""
        uses = self.uses(task)
        moved = min(self.drawn(task), self.most(uses) * alone)
        drawn = {pool: times * moved / self.capacity[pool] for pool, times in uses.items()}
        return drawn if self._thread is None else drawn | {THREAD: self._thread.seconds(task, alone)}

    @property
    def rates(self) -> list[float]:
        """Return the capacities by number of pool."""
        return list(self.capacity.values())

    def numbered(self, uses: Mapping[str, int]) -> list[tuple[int, int]]:
        """`uses` by number of pool."""
        return [(self._numbers[pool], times) for pool, times in uses.items()]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.capacity)}


def _link_pools(hardware: Hardware, link: Link) -> tuple[str, ...]:
    """Return the pools that a transfer of `link` draws on beside memories."""
    owner = _owner(hardware, link)
    return (_LINK + owner.name,) if owner.carries is None else (_LINK + link.name, _LANES + owner.name)


def _owner(hardware: Hardware, link: Link) -> Link:
    """Return the link whose physical lanes `link` uses. Raises BadInputError when `shares` goes round in a circle."""
    by_name = {other.name: other for other in hardware.links}
    seen = {link.name}
    while link.shares is not None:
        if link.shares in seen:
            remedy = "let `shares` end at a physical link"
            raise BadInputError("a link shares itself", field="hardware.links.shares", value=link.shares, remedy=remedy)
        seen.add(link.shares)
        link = by_name[link.shares]
    return link


def _root(hardware: Hardware, name: str) -> str:
    """Return the physical memory behind `name`. Raises BadInputError when `shares` goes round in a circle."""
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
