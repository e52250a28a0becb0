"""Which rows the accelerator has of a matrix that both sides share in prompts, to which they come.

Unlike in decode steps what crosses takes long: the host waits for all that it reads before it begins. So a group of
operations is shared such that the host is done, what it reads included, when the accelerator is or when the rows have
come, whichever is later; these also come while nothing is shared, in attention."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from helmsman.lowering.graph import Task
from helmsman.lowering.operation import PANEL
from helmsman.lowering.ops import op_extent
from helmsman.planner.cost.model import CostModel
from helmsman.planner.strategies.optimal.pricing.chains import GROUPS
from helmsman.planner.strategies.optimal.pricing.task_kinds import activation, computed, weights_of
from helmsman.schemas.model import Model


@dataclass(frozen=True)
class PromptShares:
    """Of one block's tasks in prompts: `here` on the host, `there` on the accelerator, to which its weights come, and
    `split` between both in whatever shares."""

    costs: CostModel
    here: Sequence[Task]
    there: Sequence[Task]
    split: Sequence[Task]

    @property
    def shares(self) -> dict[str, float]:
        """By operation with weights."""
        groups = (tuple(op for op in group if op in self._link) for group in GROUPS)
        return {op: self._share(group) for group in groups for op in group}

    def in_panels(self, model: Model) -> dict[str, float]:
        """Return the shares with whole panels on the host, none too many: there a panel of a prompt takes long."""
        return {op: _rounded(share, op_extent(model, op)[1]) for op, share in self.shares.items()}

    def _share(self, group: tuple[str, ...]) -> float:
        """Where the host's seconds for the rest of a group are those of the accelerator, or of the link."""
        host, away, link = (sum(of[op] for op in group) for of in (self._host, self._away, self._link))
        read = sum(self._reads[op] for op in group)
        slack = self._other * host / sum(self._host[op] for op in self._link)
        return min((host + read) / (host + away), (host + read + slack) / (host + link))

    @property
    def _other(self) -> float:
        """Seconds of the accelerator for what has no weights."""
        return sum(seconds for op, seconds in self._away.items() if op not in self._link)

    @cached_property
    def _host(self) -> Mapping[str, float]:
        return self._seconds(self.here)

    @cached_property
    def _away(self) -> Mapping[str, float]:
        return self._seconds(self.there)

    def _seconds(self, tasks: Sequence[Task]) -> Mapping[str, float]:
        return {op: self.costs.price(task).mid for task in tasks if (op := computed(task)) is not None}

    @cached_property
    def _link(self) -> Mapping[str, float]:
        return {op: self.costs.price(task).mid for task in self.there if (op := weights_of(task)) is not None}

    @cached_property
    def _reads(self) -> Mapping[str, float]:
        """Seconds for what an operation is the first to need on the host; of what both made, the accelerator's part."""
        reads, host, known = dict.fromkeys(self._link, 0.0), next(iter(self.here)).resource, set[int]()
        for task in self.split:
            op = computed(task)
            if op in reads and task.resource == host:
                fresh = [dep for dep in task.deps if dep not in known and activation(self.split[dep])]
                known.update(fresh)
                reads[op] = sum(self.costs.price(self.split[dep]).mid for dep in fresh)
        return reads


def _rounded(share: float, extent: int) -> float:
    """The accelerator's share of so many rows, with whole panels on the host."""
    return 1 - int((1 - share) * extent / PANEL) * PANEL / extent
