"""How chains count beside a busy lane: a second of that counts for a share, one of an operation for what it leaves, so
that what both count in total is at most the seconds of any pass."""

from dataclasses import dataclass

from helmsman.lowering.graph import Task
from helmsman.planner.strategies.optimal.pricing.interplay import Interplay
from helmsman.planner.strategies.optimal.pricing.task_kinds import brings


@dataclass(frozen=True, eq=False)
class BusyLane:
    """A chain beside one busy `lane`, of which a second counts for a `share` of one of the fastest that comes;
    `interplay`: of operations and what keeps the lane busy."""

    lane: str
    share: float
    interplay: Interplay

    @property
    def idle(self) -> float:
        """Return how much a second counts in which nothing is computed that is slowed, whatever comes."""
        return 1 - self.share

    def kept(self, task: Task) -> float:
        """Return how much a second of an operation counts."""
        return self.interplay.kept(task, self.share)

    def counted(self, task: Task) -> float:
        """Return the seconds that a task counts which keeps the lane busy; none of others."""
        return self.share * self.interplay.counted(task, self.share) if brings(task, self.lane) else 0.0
