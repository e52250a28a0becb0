"""One pass of one run, all tasks of which were executed: its spans beside what was expected of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from helmsman.analysis.expected_pass import ExpectedPass
from helmsman.analysis.rows import Key, Sample
from helmsman.analysis.scaling import Scaling
from helmsman.analysis.simulated_pass import idle
from helmsman.scheduler.iteration import Phase
from helmsman.schemas.trace import WHOLE_PASS, Span
from helmsman.timing.pools import THREAD


@dataclass(frozen=True, slots=True)
class MeasuredPass:
    """Iteration `iteration` of run `run`, which began when the pass before it ended (0.0 for prefill)."""

    run: int
    iteration: int
    begun: float
    spans: Sequence[Span]
    expected: ExpectedPass
    scaling: Scaling

    @property
    def is_whole(self) -> bool:
        """Whether the engine showed no more of it than its begin and its end."""
        return self.spans[0].op == WHOLE_PASS

    @property
    def phase(self) -> Phase:
        """Whether it is over the prompt."""
        return self.expected.graph.iteration.phase

    def total(self) -> Sample:
        """Return the whole pass, from the end of the one before to its own end: what a user waits."""
        return Sample(
            run=self.run,
            tasks=len(self.expected.graph.tasks),
            predicted=self.expected.schedule(lambda _, estimate: estimate.mid),
            scaled=self.expected.schedule(
                lambda task, estimate: self.scaling.seconds(self.run, task, estimate), self.scaling.machine(self.run)
            ),
            simulated=self.expected.simulated.extent,
            measured=max(span.end_s for span in self.spans) - self.begun,
        )

    def terms(self) -> dict[Key, Sample]:
        """Return a term for each (phase, operation kind, resource); `idle`: what no task accounts for; and, where the
        thread that launches for all devices is expected to work longer than they do, by how much (`host thread`). None
        of a pass of which only the whole is known."""
        if self.is_whole:
            return {}
        measured = {span.task: span.end_s - span.start_s for span in self.spans}
        groups: dict[Key, list[tuple[float, ...]]] = {}
        for task in self.expected.graph.tasks:
            estimate = self.expected.estimates[task.id]
            scaled = self.scaling.seconds(self.run, task, estimate)
            simulated = self.expected.simulated.tasks[task.id]
            seconds = (estimate.mid, scaled, simulated, measured[task.id])
            groups.setdefault((task.phase, task.op, task.resource), []).append(seconds)
        result = {key: _sum(self.run, members) for key, members in groups.items()}
        result[self.phase, "idle", ""] = self._idle()
        if (launching := self.expected.simulated.launching) > 0.0:
            result[self.phase, THREAD, ""] = Sample(self.run, 0, launching, launching, launching, 0.0)
        return result

    def _idle(self) -> Sample:
        virtual = self.expected.simulated.idle
        measured = idle(((span.start_s, span.end_s) for span in self.spans), self.begun)
        return Sample(self.run, 0, virtual, virtual, virtual, measured)


def passes_of(spans: Iterable[Span], expected: Mapping[int, ExpectedPass], scaling: Scaling) -> list[MeasuredPass]:
    """Return every (run, iteration) of a Trace, runs one after the other.

    A decode step whose predecessor is not in the Trace begins with its first task."""
    groups: dict[tuple[int, int], list[Span]] = {}
    for span in spans:
        groups.setdefault((span.run, span.iteration), []).append(span)
    ends = {key: max(span.end_s for span in mine) for key, mine in groups.items()}
    return [
        MeasuredPass(run, iteration, _begun(mine, ends.get((run, iteration - 1))), mine, expected[iteration], scaling)
        for (run, iteration), mine in sorted(groups.items(), key=lambda group: group[0])
    ]


def prompts(passes: Iterable[MeasuredPass]) -> list[Sample]:
    """Return the prompt passes of every run that begins in the Trace, added up to one sample a run."""
    return requests(one for one in passes if one.phase == "prefill")


def requests(passes: Iterable[MeasuredPass]) -> list[Sample]:
    """Return the request of every run that begins in the Trace: its prompt passes and decode steps, added up to one
    sample a run."""
    runs: dict[int, list[MeasuredPass]] = {}
    for one in passes:
        runs.setdefault(one.run, []).append(one)
    return [_added([one.total() for one in mine]) for mine in runs.values() if mine[0].iteration == 0]


def _added(samples: Sequence[Sample]) -> Sample:
    rows = [(sample.predicted, sample.scaled, sample.simulated, sample.measured) for sample in samples]
    return replace(_sum(samples[0].run, rows), tasks=sum(sample.tasks for sample in samples))


def _begun(spans: Sequence[Span], before: float | None) -> float:
    if spans[0].iteration == 0:
        return 0.0
    return min(span.start_s for span in spans) if before is None else before


def _sum(run: int, members: Sequence[tuple[float, ...]]) -> Sample:
    predicted, scaled, simulated, measured = (sum(column) for column in zip(*members, strict=True))
    return Sample(run, len(members), predicted, scaled, simulated, measured)
