"""Which terms make a pass longer, or shorter, than predicted: the difference between two critical paths.

Sums over lanes do not tell: lanes overlap, and what is slower on a lane for which nobody waits costs nothing. So both
schedules, the measured one and the one predicted at the speeds of the run, are followed back from their last task: each
task on the path began when the last of its dependencies, or the task before it on its lane, was done. The tasks of a
path and the time between them add up to its seconds, without rest and without overlap; the terms of the one less those
of the other add up to the difference. Where the path runs over another lane than predicted, terms of the lane that was
to bind come out negative: its work is no longer waited for. What the thread that launches for
all devices still works after the last task is a term of its own. Of a pass of which an engine shows no more than its
end, all of the difference is one term."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from helmsman.analysis.passes import MeasuredPass
from helmsman.lowering.graph import Task
from helmsman.schemas.check_report import ErrorPart, ErrorParts
from helmsman.schemas.trace import WHOLE_PASS
from helmsman.simulator.replay import replay
from helmsman.timing.pools import THREAD
from helmsman.timing.works import apart

BETWEEN = "time between tasks"
"""The term of what a path spends in no task: hand-overs, joins, and whatever else no price has."""
MAX_FOLLOWED = 32
"""Passes whose schedules are followed; those in the middle of all differences."""
SHOWN_SHARE = 0.8
"""Terms are told until they make up so much of the difference."""
MAX_SHOWN = 4

_Term = tuple[str, str]
_Moments = Sequence[tuple[float, float]]


def most_of(error: ErrorParts) -> tuple[ErrorPart, ...]:
    """Return the few parts that make up most of an error."""
    left, few = error.seconds, 0
    while few < min(MAX_SHOWN, len(error.parts)) and abs(left) > (1.0 - SHOWN_SHARE) * abs(error.seconds):
        left -= error.parts[few].seconds
        few += 1
    return error.parts[: max(few, 1)]


def difference(groups: Sequence[Sequence[MeasuredPass]]) -> ErrorParts:
    """Return the mean of measured less predicted seconds, at the speeds of each run, over steps, each a group of one
    pass, or over prompts, each all prompt passes of a run; and its parts.

    The mean over the groups in the middle half of all differences: one that was held up says nothing of the rest."""
    middle = _middle_half(sorted(groups, key=_excess))
    terms: dict[_Term, list[float]] = {}
    parts = [_parts(group) for group in middle]
    for term in dict.fromkeys(term for part in parts for term in part):
        terms[term] = [part.get(term, 0.0) for part in parts]
    means = [ErrorPart(op=op, resource=resource, seconds=fmean(of)) for (op, resource), of in terms.items()]
    means.sort(key=lambda part: (-abs(part.seconds), part.op, part.resource))
    return ErrorParts(seconds=sum(part.seconds for part in means), parts=tuple(means))


def prompt_groups(passes: Sequence[MeasuredPass]) -> list[list[MeasuredPass]]:
    """Return the passes over the prompt of every run that begins in the Trace."""
    runs: dict[int, list[MeasuredPass]] = {}
    for one in passes:
        if one.phase == "prefill":
            runs.setdefault(one.run, []).append(one)
    return [group for group in runs.values() if group[0].iteration == 0]


def _excess(group: Sequence[MeasuredPass]) -> float:
    """Measured less scaled seconds."""
    totals = [one.total() for one in group]
    return sum(total.measured - total.scaled for total in totals)


def _middle_half(groups: Sequence[Sequence[MeasuredPass]]) -> Sequence[Sequence[MeasuredPass]]:
    """At most MAX_FOLLOWED groups around the median, at most half of all, at least one or two."""
    count = max(2 - len(groups) % 2, min(MAX_FOLLOWED, len(groups) // 2))
    count -= (len(groups) - count) % 2
    first = (len(groups) - count) // 2
    return groups[first : first + count]


def _parts(group: Sequence[MeasuredPass]) -> dict[_Term, float]:
    parts: dict[_Term, float] = defaultdict(float)
    for one in group:
        if one.is_whole:
            total = one.total()
            parts[WHOLE_PASS, one.spans[0].resource] += total.measured - total.scaled
            continue
        tasks = one.expected.graph.tasks
        for term, seconds in critical_path(tasks, _measured(one, tasks), one.begun):
            parts[term] += seconds
        moments, launching = _predicted(one)
        for term, seconds in critical_path(tasks, moments, 0.0):
            parts[term] -= seconds
        if launching > 0.0:
            parts[THREAD, ""] -= launching
    return parts


def _measured(one: MeasuredPass, tasks: Sequence[Task]) -> _Moments:
    moments: Mapping[str, tuple[float, float]] = {span.task: (span.start_s, span.end_s) for span in one.spans}
    return [moments[task.id] for task in tasks]


def _predicted(one: MeasuredPass) -> tuple[_Moments, float]:
    """(start, end) of every task when each takes what is predicted at the speeds of the run, after the end of the pass
    before; and the seconds from the last end to that of the pass, while the host's thread still works."""
    expected = one.expected
    begins = expected.between.begins(apart(expected.graph))
    seconds = {
        task.id: one.scaling.seconds(one.run, task, expected.estimates[task.id]) for task in expected.graph.tasks
    }
    machine = one.scaling.machine(one.run)
    slowed = expected.costs.slowed_on(machine)
    done = replay(expected.graph, lambda task: seconds[task.id], machine, slowed, expected.between)
    moments = [(begins + start, begins + end) for start, end in zip(done.start, done.end, strict=True)]
    return moments, max(0.0, done.makespan - max(done.end))


def critical_path(tasks: Sequence[Task], moments: _Moments, begun: float) -> Iterator[tuple[_Term, float]]:
    """Terms and seconds of the critical path that ends with the last task, back to `begun`."""
    before = _before_on_lane(tasks)
    at: int | None = max(range(len(tasks)), key=lambda index: moments[index][1])
    while at is not None:
        task, (start, end) = tasks[at], moments[at]
        earlier = [*task.deps, *([before[at]] if before[at] is not None else [])]
        ended = [(moments[index][1], index) for index in earlier if index is not None]
        ready, following = max((dependency for dependency in ended if dependency[0] < end), default=(begun, None))
        if ready <= begun:
            ready, following = begun, None
        began = min(max(start, ready), end)
        yield (task.op, task.resource), end - began
        yield (BETWEEN, task.resource), began - ready
        at = following


def _before_on_lane(tasks: Sequence[Task]) -> list[int | None]:
    """Of every task the one before it on its lane: lanes are queues in the order of the graph."""
    last: dict[str, int] = {}
    before: list[int | None] = []
    for index, task in enumerate(tasks):
        before.append(last.get(task.resource))
        last[task.resource] = index
    return before
