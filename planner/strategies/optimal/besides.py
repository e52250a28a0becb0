"""How chains count beside busy lanes: a second of one of these counts for a share, one of an operation for what they
leave, so that what both count in total is at most the seconds of any pass."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Protocol

from helmsman.lowering.graph import Task
from helmsman.lowering.pools import Pools
from helmsman.planner.costs import CostModel, work_of
from helmsman.planner.interference import speed
from helmsman.planner.sharing import Sharing, Uses
from helmsman.planner.strategies.optimal.interplay import Interplay
from helmsman.planner.strategies.optimal.task_kinds import brings, weights_of
from helmsman.schemas.hardware import Device, Link

ALL_LINKS = "all links"
"""The links by which weights come to any accelerator, as a lane is named beside them."""

_LARGE, _SEVERAL = 1 / 8, 2
"""Of the bytes of the largest matrix: smaller transfers count for nothing beside all links. So many links are
several."""


class Beside(Protocol):
    """A chain beside a busy `lane`, or several, of which a second counts for a `share` of one."""

    @property
    def lane(self) -> str:
        """Beside what."""

    @property
    def share(self) -> float:
        """What a second counts of the fastest that comes."""

    @property
    def idle(self) -> float:
        """How much a second counts in which nothing is computed that is slowed, whatever comes."""

    def kept(self, task: Task) -> float:
        """How much a second of an operation counts."""

    def counted(self, task: Task) -> float:
        """The seconds that a task counts which keeps a lane busy; none of others."""


@dataclass(frozen=True, eq=False)
class BesideOne:
    """Beside one lane; `interplay`: of operations and what keeps it busy."""

    lane: str
    share: float
    interplay: Interplay

    @property
    def idle(self) -> float:
        """See Beside."""
        return 1 - self.share

    def kept(self, task: Task) -> float:
        """See Beside."""
        return self.interplay.kept(task, self.share)

    def counted(self, task: Task) -> float:
        """See Beside."""
        return self.share * self.interplay.counted(task, self.share) if brings(task, self.lane) else 0.0


@dataclass(frozen=True, eq=False)
class BesideAll:
    """Beside the links of all accelerators, `own` among them."""

    own: str
    share: float
    links: "Links"
    lane: str = ALL_LINKS

    @property
    def idle(self) -> float:
        """See Beside."""
        return 1 - self.share * max(links for _, links in self.links.alone)

    def kept(self, task: Task) -> float:
        """See Beside: an operation of an accelerator is not slowed by what comes to others."""
        if task.resource != self.links.host.name:
            return self.idle
        return min(1.0, *((1 - self.share * links) / work for work, links in self.links.beside(task)))

    def counted(self, task: Task) -> float:
        """See Beside."""
        large = brings(task, self.own) and task.bytes >= self.links.least.bytes
        return self.share * self.links.costs.price(task).mid if large else 0.0


@dataclass(frozen=True, eq=False)
class Links:
    """Links from the memory of a `host` to several accelerators, on which large transfers count: those of no fewer
    bytes than the `least`, beside which, as its latency counts most, operations lose least."""

    costs: CostModel
    host: Device
    each: tuple[Link, ...]
    least: Task
    known: dict[object, tuple[tuple[float, float], ...]] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def alone(self) -> tuple[tuple[float, float], ...]:
        """1, and the sum of the speeds of some links, by which of them are busy, while the host rests."""
        return tuple((1.0, sum(self._sharing.speeds(dict(enumerate(some))).values())) for some in self._busy)

    def beside(self, task: Task) -> tuple[tuple[float, float], ...]:
        """The speed that an operation of the host keeps, and the sum of those of the links, by which are busy."""
        key = work_of(task)
        if key not in self.known:
            self.known[key] = tuple(self._speeds(task))
        return self.known[key]

    @property
    def share(self) -> float:
        """Which share of its speed a link keeps while all are busy and the host rests."""
        return self.alone[-1][1] / len(self.each)

    def together(self, task: Task) -> tuple[float, float]:
        """The shares of their speeds that an operation, and each link of what it has while the host rests, keep while
        all links are busy."""
        if task.resource != self.host.name:
            return 1.0, 1.0
        work, links = self.beside(task)[-1]
        return work, links / self.alone[-1][1]

    def shares(self, task: Task) -> Iterator[float]:
        """For which shares bounds are tight: of a link beside which an operation counts in full, and where one link and
        all of them leave as much."""
        found = self.beside(task)
        (one, of_one), (every, of_all) = found[0], found[-1]
        most = 1 / max(links for _, links in self.alone)
        yield min(most, *((1 - work) / links for work, links in found))
        if one > every:
            yield min(most, (one - every) / (of_all * one - of_one * every))

    def _speeds(self, task: Task) -> Iterator[tuple[float, float]]:
        rate, uses = self._sharing.asked(task, self.costs.price(task).mid)
        slowed = self.costs.slowed()
        for names, some in zip(self._names, self._busy, strict=True):
            own = speed(slowed(task), names.__contains__) if slowed else 1.0
            fair = self._sharing.speeds({-1: (rate * own, uses), **dict(enumerate(some))})
            yield own * fair.pop(-1, 1.0), sum(fair.values())

    @cached_property
    def _names(self) -> tuple[tuple[str, ...], ...]:
        """Which may be busy, one of them first, all of them last."""
        counts = range(1, len(self.each) + 1)
        return tuple(tuple(link.name for link in some) for count in counts for some in combinations(self.each, count))

    @cached_property
    def _busy(self) -> tuple[tuple[tuple[float, Uses], ...], ...]:
        """What those ask for."""
        flows = {link.name: self._asked(link) for link in self.each}
        return tuple(tuple(flows[name] for name in names) for names in self._names)

    def _asked(self, link: Link) -> tuple[float, Uses]:
        task = replace(self.least, resource=link.name, memories=(link.source_memory, link.target_memory))
        return self._sharing.asked(task, self.costs.price(task).mid)

    @cached_property
    def _sharing(self) -> Sharing:
        return Sharing(Pools(self.costs.hardware))


def links_to(costs: CostModel, host: Device, away: Sequence[Device], there: Sequence[Task]) -> Links | None:
    """The links by which weights come to several accelerators; None where they do not. `there`: the tasks of a block on
    one of them, to which all comes."""
    links = [costs.hardware.link(host.memory, device.memory) for device in away if device.memory != host.memory]
    found, coming = tuple(link for link in links if link is not None), [task for task in there if weights_of(task)]
    if len(found) < _SEVERAL or not coming:
        return None
    largest = max(coming, key=lambda task: task.bytes)
    return Links(costs, host, found, replace(largest, bytes=round(largest.bytes * _LARGE)))
