"""One pass of one run: its measured spans beside what was expected of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from helmsman.analysis.expected import Expected
from helmsman.analysis.rows import Key, Sample
from helmsman.analysis.scaling import Scaling
from helmsman.planner.schedule import makespan
from helmsman.schemas.trace import Span


@dataclass(frozen=True, slots=True)
class Pass:
    """Iteration `iteration` of run `run`, which began when the pass before it ended (0.0 for prefill)."""

    run: int
    iteration: int
    begun: float
    spans: Sequence[Span]
    expected: Expected
    scaling: Scaling

    def total(self) -> Sample:
        """The whole pass, from the end of the one before to its own end: what a user waits."""
        estimates, graph = self.expected.estimates, self.expected.graph
        return Sample(
            run=self.run,
            tasks=len(graph.tasks),
            predicted=makespan(graph, lambda task: estimates[task.id].mid),
            scaled=makespan(graph, lambda task: self.scaling.seconds(self.run, task, estimates[task.id])),
            simulated=_extent(self.expected.simulated),
            measured=max(span.end_s for span in self.spans) - self.begun,
        )

    def terms(self) -> dict[Key, Sample]:
        """A term for each (phase, operation kind, resource), over tasks both expected and measured, and
        `idle`: what no task accounts for."""
        measured, simulated = _durations(self.spans), _durations(self.expected.simulated)
        groups: dict[Key, list[Sample]] = {}
        for task in self.expected.graph.tasks:
            if task.id in measured:
                estimate = self.expected.estimates[task.id]
                scaled = self.scaling.seconds(self.run, task, estimate)
                virtual = simulated.get(task.id, estimate.mid)
                sample = Sample(self.run, 1, estimate.mid, scaled, virtual, measured[task.id])
                groups.setdefault((task.phase, task.op, task.resource), []).append(sample)
        phase = self.expected.graph.iteration.phase
        found = {key: _sum(self.run, members) for key, members in groups.items()}
        return {**found, (phase, "idle", ""): self._idle()}

    def missing(self) -> list[str]:
        """Tasks of the plan that were not executed."""
        measured = {span.task for span in self.spans}
        return [task.id for task in self.expected.graph.tasks if task.id not in measured]

    def unknown(self) -> list[str]:
        """Executed tasks that the plan does not have."""
        return [span.task for span in self.spans if span.task not in self.expected.estimates]

    def _idle(self) -> Sample:
        virtual = _extent(self.expected.simulated) - _busy(self.expected.simulated)
        measured = max(span.end_s for span in self.spans) - self.begun - _busy(self.spans)
        return Sample(self.run, 0, virtual, virtual, virtual, max(0.0, measured))


def passes_of(spans: Iterable[Span], expected: Mapping[int, Expected], scaling: Scaling) -> list[Pass]:
    """Every (run, iteration) of a Trace, runs one after the other.

    A decode step whose predecessor is not in the Trace begins with its first task."""
    groups: dict[tuple[int, int], list[Span]] = {}
    for span in spans:
        groups.setdefault((span.run, span.iteration), []).append(span)
    ends = {key: max(span.end_s for span in mine) for key, mine in groups.items()}
    return [
        Pass(run, iteration, _begun(mine, ends.get((run, iteration - 1))), mine, expected[iteration], scaling)
        for (run, iteration), mine in sorted(groups.items(), key=lambda group: group[0])
    ]


def _begun(spans: Sequence[Span], before: float | None) -> float:
    if spans[0].iteration == 0:
        return 0.0
    return min(span.start_s for span in spans) if before is None else before


def _durations(spans: Iterable[Span]) -> dict[str, float]:
    return {span.task: span.end_s - span.start_s for span in spans}


def _sum(run: int, members: Sequence[Sample]) -> Sample:
    return Sample(
        run,
        len(members),
        sum(member.predicted for member in members),
        sum(member.scaled for member in members),
        sum(member.simulated for member in members),
        sum(member.measured for member in members),
    )


def _extent(spans: Iterable[Span]) -> float:
    """Seconds from the first start to the last end."""
    times = [(span.start_s, span.end_s) for span in spans]
    return max(end for _, end in times) - min(start for start, _ in times)


def _busy(spans: Iterable[Span]) -> float:
    """Seconds during which at least one span runs."""
    total, reached = 0.0, 0.0
    for start, end in sorted((span.start_s, span.end_s) for span in spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
