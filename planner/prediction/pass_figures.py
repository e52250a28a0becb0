"""The seconds of passes by the cost model, with the document that says where they come from, made when it is asked for.

A search and a study look at seconds alone; terms, bounds and what binds are of the same works and prices."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Protocol

from helmsman.hwdb.percentiles import ENDS, End
from helmsman.lowering.graph import RepeatingGraph, TaskGraph
from helmsman.lowering.pass_shape import SizedPass
from helmsman.planner.cost.estimate import Estimate
from helmsman.planner.cost.model import CostModel, work_of
from helmsman.planner.prediction.phase_document import added_document, phase_document
from helmsman.schemas.predicted import Interval, PhasePrediction
from helmsman.timing.makespan import sequence_makespan, works_makespan
from helmsman.timing.works import Works, alike

LoweredPass = TaskGraph | RepeatingGraph | SizedPass
"""The tasks of a pass, all or each kind once."""


class PhaseFigures(Protocol):
    """What is predicted of a phase."""

    @property
    def seconds(self) -> Interval:
        """The seconds of all of its passes."""

    @property
    def expected(self) -> float:
        """The median of the seconds alone."""

    @property
    def document(self) -> PhasePrediction:
        """All that a plan says of it."""


@dataclass(frozen=True)
class PassFigures:
    """The figures of one pass."""

    lowered: LoweredPass
    costs: CostModel

    @cached_property
    def seconds(self) -> Interval:
        """Return the seconds, all prices at one end together: what makes one product faster or slower than expected
        makes all so."""
        low, mid, high = self._at("low"), self.expected, self._at("high")
        ends = sorted((low, mid, high))  # a faster lane may starve the others of a memory they share
        return Interval(low=ends[0], mid=mid, high=ends[-1])

    @cached_property
    def expected(self) -> float:
        """Return the expected seconds alone."""
        return self._at("mid")

    def _at(self, end: End) -> float:
        """Return the seconds with all prices at one end."""
        times = list(map(attrgetter(end), self.prices))
        return works_seconds(self.works, self.costs, times, end) + self.costs.between(end).begins(self.works)

    @cached_property
    def document(self) -> PhasePrediction:
        """Return the prediction with the terms that the seconds are the sum of, and the gap to the lower bound."""
        graph = self.lowered.graph if isinstance(self.lowered, SizedPass) else self.lowered
        return phase_document(graph, self.works, self.prices, self.seconds, self.costs)

    @cached_property
    def works(self) -> Works:
        """Return the kinds of work."""
        return works_by_price(self.lowered)

    @cached_property
    def prices(self) -> list[Estimate]:
        """Return the price of one task of each."""
        return [self.costs.price(task) for task in self.works.kinds]


def works_by_price(lowered: LoweredPass) -> Works:
    """Return the kinds of work of a pass: tasks that are priced alike are of one."""
    if isinstance(lowered, SizedPass):
        return lowered.fact("works by price", lambda: alike(lowered, work_of))
    return alike(lowered, work_of)


@dataclass(frozen=True)
class PassesFigures:
    """The figures of a prompt in several passes, each with how many it stands for; `context`: tokens of the prompt."""

    passes: Sequence[tuple[PassFigures, float]]
    context: int
    costs: CostModel

    @cached_property
    def seconds(self) -> Interval:
        """Return the seconds of passes one after the other; what makes one slower makes all slower."""

        return Interval(**{end: self._total(getattr(one.seconds, end) for one, _ in self.passes) for end in ENDS})

    @cached_property
    def expected(self) -> float:
        """Return the expected seconds of all passes alone."""
        return self._total(one.expected for one, _ in self.passes)

    def _total(self, values: Iterable[float]) -> float:
        return sum(weight * value for value, (_, weight) in zip(values, self.passes, strict=True))

    @cached_property
    def document(self) -> PhasePrediction:
        """Return the prediction, with the terms of all passes."""
        documents = [(one.document, weight) for one, weight in self.passes]
        return added_document(documents, self.seconds, self.context, self.costs.hardware)


def works_seconds(works: Works, costs: CostModel, times: Sequence[float], end: End = "mid") -> float:
    """Return the seconds of works that take `times` alone, everything else at one `end` of its interval; what tasks
    share and what delays them is looked at where any overlap."""
    if not works.order.overlap:
        return sequence_makespan(works.order, times, costs.between(end))
    return works_makespan(works, times, costs.pools_at(end), costs.slowed(end), costs.between(end))
