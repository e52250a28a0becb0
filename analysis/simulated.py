"""The simulation of one pass: how long its tasks, the whole, and its pauses take."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from helmsman.lowering.graph import Task, TaskGraph
from helmsman.planner.handovers import Handovers
from helmsman.planner.interference import Slowed
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.trace import Span
from helmsman.simulator.replay import replay


@dataclass(frozen=True, slots=True)
class Simulated:
    """Seconds of each task by id; `extent`: from the end of the pass before to the last end; `idle`: of it, without
    work.

    `in_turn`: known to run one task at a time in order of the graph, whatever the tasks take."""

    tasks: Mapping[str, float]
    extent: float
    idle: float
    in_turn: bool = False


class Simulator:
    """Simulates passes that have the same tasks and dependencies and differ in their seconds only.

    Where a replay runs one task at a time in order of the graph, every other does: which task is ready then
    follows from the tasks done before it, whatever they took. Only the first such pass is replayed."""

    def __init__(self, hardware: Hardware, slowed: Slowed | None = None, between: Handovers | None = None) -> None:
        self.hardware, self.slowed = hardware, slowed
        self.between = between or Handovers(hardware)
        self._in_turn = False

    def simulate(self, graph: TaskGraph, seconds: Callable[[Task], float]) -> Simulated:
        """The simulation of `graph`, whose tasks take `seconds` alone on their lanes."""
        begins = self.between.begins(graph)
        if self._in_turn:
            durations = {task.id: seconds(task) for task in graph.tasks}
            return Simulated(durations, begins + sum(durations.values()), begins, True)
        done = replay(graph, seconds, self.hardware, self.slowed, self.between)
        times = list(zip(done.start, done.end, strict=True))
        self._in_turn = all(after[0] == before[1] for before, after in pairwise(times))
        return _simulated((task.id for task in graph.tasks), times, begins, self._in_turn)


def from_spans(spans: Sequence[Span], begins: float) -> Simulated:
    """The simulated pass that `spans` (at least one) describe; it began `begins` seconds after the one before ended."""
    return _simulated((span.task for span in spans), [(span.start_s, span.end_s) for span in spans], begins)


def idle(times: Iterable[tuple[float, float]], begun: float) -> float:
    """Seconds from `begun` to the last end during which nothing runs; `times`: (start, end) of what runs."""
    total, reached = 0.0, begun
    for start, end in sorted(times):
        total += max(0.0, start - reached)
        reached = max(reached, end)
    return total


def _simulated(
    tasks: Iterable[str], times: Sequence[tuple[float, float]], begins: float, in_turn: bool = False
) -> Simulated:
    begun = min(start for start, _ in times) - begins
    durations = {task: end - start for task, (start, end) in zip(tasks, times, strict=True)}
    return Simulated(durations, max(end for _, end in times) - begun, idle(times, begun), in_turn)
