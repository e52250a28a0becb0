"""How much a plan asks of whoever runs it: one device, whole layers apart, operations apart, shared matrices."""

from enum import IntEnum

from helmsman.lowering.graph import CACHED, Task
from helmsman.lowering.lower import lower
from helmsman.lowering.placement import Placed, batches_together, known
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
    placed = known(placed)
    together = batches_together(placed)
    passes = prefill(placed.workload, together), mean_step(placed.workload, together)
    return max(_of_pass(lower(placed, one_pass).tasks) for one_pass in passes)


def _of_pass(tasks: tuple[Task, ...]) -> Complexity:
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
