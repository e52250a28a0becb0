"""Where the ends of a model may be, and what is not in blocks then: its tasks and bytes."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

from helmsman.lowering.graph import Task
from helmsman.lowering.lower import lower
from helmsman.planner.memory.usage import memory_use
from helmsman.planner.strategies.optimal.configurations.block_ways import BlockWay, on_accelerator, on_host
from helmsman.planner.strategies.optimal.configurations.rules import Assignment, Ends, Side, place
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.scheduler.iteration import Iteration


def everywhere(accelerators: int) -> tuple[Ends, ...]:
    """Where the ends may be."""
    sides: tuple[Side, ...] = ("host", "accelerator", *range(1, accelerators))
    return tuple(product(sides, sides))


def first_of_alike(ends: Ends) -> bool:
    """Whether the ends name accelerators in order, beginning with the first."""
    named = dict.fromkeys(0 if side == "accelerator" else side for side in ends if side != "host")
    return list(named) == list(range(len(named)))


def outside_tasks(frame: Frame, ends: Ends, iteration: Iteration) -> tuple[Task, ...]:
    """The tasks of the ends of the model in one pass."""
    model, output = frame.model.with_layers(1), ends[1]
    on = 0 if isinstance(output, str) else output
    last = on_host(model) if output == "host" else replace(on_accelerator(model), on=on)
    placed = place(replace(frame, model=model), Assignment((last,), *ends, {}))
    return tuple(task for task in lower(placed, iteration).tasks if task.layer is None)


def used_bytes(frame: Frame, ends: Ends) -> Mapping[str, int]:
    """Bytes of every memory with every accelerator at work."""
    return {use.memory: use.used for use in memory_use(place(frame, Assignment(working(frame), *ends, {})))}


def working(frame: Frame) -> tuple[BlockWay, ...]:
    """A block on every accelerator, the others on the host."""
    model, host = frame.model, on_host(frame.model)
    away = (replace(on_accelerator(model), on=on) for on in range(len(frame.roles.accelerators)))
    return (*away, *(host,) * model.layers)[: model.layers]
