"""How operations and what comes to an accelerator slow each other, as prices of their seconds beside a busy link.

While an operation o and a transfer t run at once they keep shares r and v of their speeds. A second of the link counts
for s x c(t), one of an operation for m(o). Where s x c(t) x v + m(o) x r <= 1 for all that may run at once, what an
operation or a transfer counts in total is a bound on any pass. m is what the fastest transfer leaves, of which a second
counts in full, and c what operations leave to those that are slower."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from helmsman.lowering.graph import Task
from helmsman.planner.cost.model import CostModel, work_of
from helmsman.planner.strategies.optimal.program.ways import Numbers
from helmsman.planner.strategies.streaming.shared_rows import delays


@dataclass(frozen=True, eq=False)
class Interplay:
    """Of operations that are `working` and what may be `coming` on a link. `known`, `shares`: what was asked before."""

    costs: CostModel
    working: Sequence[Task]
    coming: Sequence[Task]
    known: dict[object, tuple[Numbers, Numbers]] = field(default_factory=dict, init=False, repr=False)
    shares: dict[float, Numbers] = field(default_factory=dict, init=False, repr=False)

    def counted(self, transfer: Task, share: float) -> float:
        """Seconds of a transfer as they count where one of the fastest counts in full, and that for a `share`."""
        place = self._place.get(transfer.bytes)
        return 0.0 if place is None else float(self.costs.price(transfer).mid * self._counts(share)[place])

    def kept(self, task: Task, share: float) -> float:
        """How much every second of an operation counts where one of the link counts for a `share`."""
        if not share or not self._kinds:
            return 1.0
        work, link = self._speeds(task)
        return float(min(1.0, ((1 - share * self._counts(share) * link) / work).min()))

    def speeds(self, task: Task) -> tuple[float, float]:
        """The shares of their speeds that an operation and the fastest transfer keep beside each other."""
        work, link = self._speeds(task)
        return (float(work[0]), float(link[0])) if len(work) else (1.0, 1.0)

    def _counts(self, share: float) -> Numbers:
        """By kind of transfer."""
        if share not in self.shares:
            work, link = (np.array(speeds) for speeds in zip(*map(self._speeds, self.working), strict=True))
            left = np.minimum(1.0, (1 - share * link[:, :1]) / work[:, :1])
            self.shares[share] = np.clip(((1 - left * work) / (share * link)).min(axis=0), 0.0, 1.0)
        return self.shares[share]

    def _speeds(self, task: Task) -> tuple[Numbers, Numbers]:
        """Of an operation beside every kind of transfer, and of that."""
        key = work_of(task)
        if key not in self.known:
            slower = delays(self.costs, task, self._kinds)
            work, link = (np.array([1 / pair[side] for pair in slower]) for side in (0, 1))
            self.known[key] = work, link
        return self.known[key]

    @cached_property
    def _kinds(self) -> tuple[Task, ...]:
        """One transfer of every size, the fastest first."""
        sizes = {task.bytes: task for task in self.coming if task.bytes}
        return tuple(sorted(sizes.values(), key=lambda task: self.costs.price(task).mid / task.bytes))

    @cached_property
    def _place(self) -> dict[int, int]:
        return {task.bytes: place for place, task in enumerate(self._kinds)}
