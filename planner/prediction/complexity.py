"""How much a plan asks of whoever runs it: one device, whole layers apart, operations apart, shared matrices."""

from collections.abc import Iterable
from enum import IntEnum
from itertools import chain

from helmsman.lowering.graph import CACHED, RepeatingGraph, Task
from helmsman.lowering.pass_shape import SizedPass, pass_of
from helmsman.lowering.placement import Placed, batches_together, shaped
from helmsman.planner.prediction.predict import mean_step
from helmsman.scheduler.iteration import prefill


class Complexity(IntEnum):
    """From the simplest kind of plan to the most intricate."""

    ONE_DEVICE = 0
    LAYERS = 1
    OPERATIONS = 2
    MATRICES = 3

    @property
    def words(self) -> str:
        """What a plan of this kind does, for people."""
        return _WORDS[self]


_WORDS = {
    Complexity.ONE_DEVICE: "one device does everything",
    Complexity.LAYERS: "whole layers on either device",
    Complexity.OPERATIONS: "operations of a layer apart, or weights that stream",
    Complexity.MATRICES: "matrices shared by devices",
}


def complexity(placed: Placed) -> Complexity:
    """The kind of `placed`: of its prompt pass or its decode step, whichever is more intricate.

    One device: it computes everything and nothing moves. Layers: a layer's operations are all on one device, which
    has their weights and caches. Operations: a layer's operations are on several devices, or weights or caches move to
    where they are used. Matrices: an operation is divided between devices."""
    plan = shaped(placed)
    together = batches_together(plan)
    passes = prefill(plan.workload, together), mean_step(plan.workload, together)
    return max(_of_pass(_different_tasks(pass_of(plan, one_pass))) for one_pass in passes)


def _different_tasks(lowered: SizedPass | RepeatingGraph) -> Iterable[Task]:
    """Return the tasks of a pass, those that repeat each other in later blocks once."""
    graph = lowered.shape.graph if isinstance(lowered, SizedPass) else lowered
    return chain.from_iterable(run.tasks for run in graph.runs)


def _of_pass(tasks: Iterable[Task]) -> Complexity:
    operations: dict[tuple[int | None, str], set[str]] = {}
    layers: dict[int, set[str]] = {}
    moves = streams = False
    for task in tasks:
        if task.kind == "transfer":
            moves = True
            streams = streams or task.payload == "weights" or task.payload in CACHED
        else:
            operations.setdefault((task.layer, task.op), set()).add(task.resource)
            if task.layer is not None:
                layers.setdefault(task.layer, set()).add(task.resource)
    if any(len(devices) > 1 for devices in operations.values()):
        return Complexity.MATRICES
    if streams or any(len(devices) > 1 for devices in layers.values()):
        return Complexity.OPERATIONS
    everywhere = {device for devices in operations.values() for device in devices}
    return Complexity.LAYERS if moves or len(everywhere) > 1 else Complexity.ONE_DEVICE
