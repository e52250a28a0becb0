"""What the tasks of a block are about: operations, what is brought for them, what goes home, and what only crosses."""

from collections.abc import Sequence

from helmsman.lowering.dataflow import HIDDEN
from helmsman.lowering.graph import CACHED, Task

OUTPUT = ("final_norm", "head")
"""The operations after all blocks."""

MOVING = ("transfer", "decompress", "pin")


def settled(tasks: Sequence[Task], sent: bool = False) -> tuple[Task, ...]:
    """The first batch's tasks of the only block of a graph as if all that is brought were there, and nothing sent home
    for which nobody waits; `sent`: but for new keys and values."""
    needed = {dep for task in tasks for dep in task.deps}
    number: dict[int, int] = {}
    result: list[Task] = []
    for index, task in enumerate(tasks):
        idle = task.kind == "transfer" and index not in needed and not (sent and goes_home(task))
        if task.layer is not None and task.batch == 0 and not brought(task) and not idle:
            number[index] = len(result)
            result.append(task._replace(deps=tuple(number[dep] for dep in task.deps if dep in number)))
    return tuple(result)


def entering(task: Task) -> bool:
    """Whether a task takes the hidden state with which a block is entered to another side."""
    return task.kind == "transfer" and task.operation == HIDDEN


def activation(task: Task) -> bool:
    """Whether a task moves what operations made."""
    return task.kind == "transfer" and not brought(task) and not goes_home(task)


def brought(task: Task) -> bool:
    """Whether a task brings or expands what lives elsewhere."""
    return task.kind in MOVING and (task.payload == "weights" or cache_comes(task))


def cache_comes(task: Task) -> bool:
    """Whether a task brings or expands past keys and values."""
    return task.kind in MOVING and task.payload in CACHED and not goes_home(task)


def brings(task: Task, lane: str) -> bool:
    """Whether a task brings or expands weights, or keys and values, on a lane."""
    return task.resource == lane and (weights_of(task) is not None or cache_comes(task))


def goes_home(task: Task) -> bool:
    """Whether a task takes new keys and values home."""
    return task.payload == "new cache entries"


def computed(task: Task) -> str | None:
    """The operation of a block that a task computes."""
    return task.op if task.layer is not None and task.kind not in MOVING else None


def weights_of(task: Task) -> str | None:
    """The operation for which weights come, or are expanded."""
    return task.operation if task.layer is not None and task.payload == "weights" else None
