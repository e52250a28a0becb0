"""Online passes on one time axis: when the next may begin after each, and the spans of all."""

from collections.abc import Iterable, Iterator

from serving_iteration import ServingIteration

from helmsman.lowering.graph import TaskGraph
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.trace import Span
from helmsman.simulator.replay import Price, Replay, replay, spans


def pass_seconds(made: Replay) -> float:
    """Seconds until the next pass may begin: a deferred one does not wait for its cohort (APEX-15)."""
    iteration = made.graph.iteration
    if not isinstance(iteration, ServingIteration) or iteration.overlap != "deferred":
        return made.makespan
    return max(end for task, end in zip(made.graph.tasks, made.end, strict=True) if task.batch == 0)


def trace_passes(graphs: Iterable[TaskGraph], price: Price, hardware: Hardware) -> Iterator[Span]:
    """The spans of passes that follow each other; what a cohort's attention shares with the next pass is not slowed."""
    begun = 0.0
    for graph in graphs:
        made = replay(graph, price, hardware)
        yield from spans(made, offset=begun)
        begun += pass_seconds(made)
