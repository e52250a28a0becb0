"""How chains count beside busy lanes: a second of one of these counts for a share, one of an operation for what they
leave, so that what both count in total is at most the seconds of any pass."""

from dataclasses import dataclass
from typing import Protocol

from helmsman.lowering.graph import Task
from helmsman.planner.strategies.optimal.pricing.interplay import Interplay
from helmsman.planner.strategies.optimal.pricing.links import Links
from helmsman.planner.strategies.optimal.pricing.task_kinds import brings

ALL_LINKS = "all links"
"""The links by which weights come to any accelerator, as a lane is named beside them."""


class BusyLane(Protocol):
    """A chain beside a busy `lane`, or several, of which a second counts for a `share` of one."""

    @property
    def lane(self) -> str:
        """Beside what."""

    @property
    def share(self) -> float:
        """Return what a second counts of the fastest that comes."""

    @property
    def idle(self) -> float:
        """How much a second counts in which nothing is computed that is slowed, whatever comes."""

    def kept(self, task: Task) -> float:
        """How much a second of an operation counts."""

    def counted(self, task: Task) -> float:
        """The seconds that a task counts which keeps a lane busy; none of others."""


@dataclass(frozen=True, eq=False)
class OneBusyLane:
    """Beside one lane; `interplay`: of operations and what keeps it busy."""

    lane: str
    share: float
    interplay: Interplay

    @property
    def idle(self) -> float:
        """See BusyLane."""
        return 1 - self.share

    def kept(self, task: Task) -> float:
        """See BusyLane."""
        return self.interplay.kept(task, self.share)

    def counted(self, task: Task) -> float:
        """See BusyLane."""
        return self.share * self.interplay.counted(task, self.share) if brings(task, self.lane) else 0.0


@dataclass(frozen=True, eq=False)
class AllBusyLinks:
    """Beside the links of all accelerators, `own` among them."""

    own: str
    share: float
    links: Links
    lane: str = ALL_LINKS

    @property
    def idle(self) -> float:
        """See BusyLane."""
        return self.links.counts(self.share).idle

    def kept(self, task: Task) -> float:
        """See BusyLane: an operation of an accelerator is not slowed by what comes to others."""
        return self.links.kept(task, self.share)

    def counted(self, task: Task) -> float:
        """See BusyLane."""
        return self.share * self.links.counted(task, self.share) if brings(task, self.own) else 0.0
