"""The simulation of one pass: how long its tasks, the whole, and its pauses take."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from helmsman.lowering.graph import Task, TaskGraph
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.trace import Span
from helmsman.simulator.replay import replay
from helmsman.timing.handovers import Handovers
from helmsman.timing.interference import Slowed
from helmsman.timing.works import apart


@dataclass(frozen=True, slots=True)
class SimulatedPass:
    """Seconds of each task by id; `extent`: from the end of the pass before to its own end; `idle`: of it, without work
    before the last task ended; `launching`: of it, after that, while the thread of the host still works that launches
    for all devices (`timing.host_thread`).

    `in_turn`: known to run one task at a time in order of the graph, whatever the tasks take."""

    tasks: Mapping[str, float]
    extent: float
    idle: float
    launching: float = 0.0
    in_turn: bool = False


class Simulator:
    """Simulates passes that have the same tasks and dependencies and differ in their seconds only.

    Where a replay runs one task at a time in order of the graph, every other does: which task is ready then
    follows from the tasks done before it, whatever they took. Only the first such pass is replayed."""

    def __init__(self, hardware: Hardware, slowed: Slowed | None, between: Handovers) -> None:
        self.hardware, self.slowed, self.between = hardware, slowed, between
        self._in_turn = False

    def simulate(self, graph: TaskGraph, seconds: Callable[[Task], float]) -> SimulatedPass:
        """Return the simulation of `graph`, whose tasks take `seconds` alone on their lanes."""
        begins = self.between.begins(apart(graph))
        if self._in_turn:
            durations = {task.id: seconds(task) for task in graph.tasks}
            return SimulatedPass(durations, begins + sum(durations.values()), begins, in_turn=True)
        done = replay(graph, seconds, self.hardware, self.slowed, self.between)
        times = list(zip(done.start, done.end, strict=True))
        self._in_turn = all(after[0] == before[1] for before, after in pairwise(times))
        return _simulated((task.id for task in graph.tasks), times, begins, done.makespan, self._in_turn)


def from_spans(spans: Sequence[Span], begins: float, held: float) -> SimulatedPass:
    """Return the simulated pass that `spans` (at least one) describe; it began `begins` seconds after the one before
    ended and kept the thread that launches for all devices busy for `held` seconds."""
    return _simulated((span.task for span in spans), [(span.start_s, span.end_s) for span in spans], begins, held)


def idle(times: Iterable[tuple[float, float]], begun: float) -> float:
    """Return seconds from `begun` to the last end during which nothing runs; `times`: (start, end) of what runs."""
    total, reached = 0.0, begun
    for start, end in sorted(times):
        total += max(0.0, start - reached)
        reached = max(reached, end)
    return total


def _simulated(
    tasks: Iterable[str], times: Sequence[tuple[float, float]], begins: float, least: float, in_turn: bool = False
) -> SimulatedPass:
    """`least`: seconds that the pass takes at least from the start of its first task."""
    first, last = min(start for start, _ in times), max(end for _, end in times)
    durations = {task: end - start for task, (start, end) in zip(tasks, times, strict=True)}
    begun, launching = first - begins, max(0.0, least - (last - first))
    return SimulatedPass(durations, last - begun + launching, idle(times, begun), launching, in_turn)
