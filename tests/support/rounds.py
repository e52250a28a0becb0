"""Rounds of a pipeline of accelerators as task graphs: its plan, and micro-batches that follow each other."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from lowered_serving import lower_serving
from serving_iteration import ServingIteration

from helmsman.lowering.graph import Task, TaskGraph
from helmsman.lowering.placement import Placement
from helmsman.planner.serving.pipeline_parallel import stage_layers
from helmsman.planner.serving.replica import ReplicaOptions, replica_of
from helmsman.schemas.plan import ComputeRule, KvRule, LayerRange, Residence, Select


def staged(placed: Placement, stages: int) -> Placement:
    """The plan whose stages are on accelerators of their own; the first has the embedding, the last the head."""
    replica = replica_of(placed, ReplicaOptions(pipeline_parallel=stages))
    devices, layers = replica.accelerators, stage_layers(placed.model, stages)
    cuts = [sum(layers[:stage]) for stage in range(stages + 1)]
    selects = [Select(layers=LayerRange(start=a, stop=b)) for a, b in pairwise(cuts)]
    ends = Select(names="embedding*"), Select()
    places = [*zip(selects, devices, strict=True), (ends[0], devices[0]), (ends[1], devices[-1])]
    return Placement(
        placed.model,
        replica.hardware,
        placed.workload,
        tuple(Residence(select=select, memory=device.memory, format="f16") for select, device in places),
        tuple(
            KvRule(select=select, memory=device.memory, format="f16")
            for select, device in zip(selects, devices, strict=True)
        ),
        tuple(ComputeRule(select=select, device=device.name) for select, device in places),
        placed.activations,
    )


def in_turn(plan: Placement, layers: Sequence[int], passes: Iterable[ServingIteration], stages: int) -> TaskGraph:
    """The passes of micro-batches as one graph. Pass n begins in slot n, when pass n - `stages`, its micro-batch's last
    one, is over; a pass is in one stage a slot, and every lane has its tasks in the order of slots, then of layers."""
    places = [(stage, layer) for stage, count in enumerate(layers) for layer in range(count)]
    found: list[tuple[tuple[int, int, int], int, Task]] = []
    for number, iteration in enumerate(passes):
        tasks = lower_serving(plan, iteration).tasks
        for place, task in enumerate(tasks):
            found.append((_turn(number, task, place, tasks, places), number, task))
    return TaskGraph(iteration, _renumbered(sorted(found, key=lambda each: each[0]), stages))


def _turn(
    number: int, task: Task, place: int, tasks: tuple[Task, ...], places: list[tuple[int, int]]
) -> tuple[int, int, int]:
    """Slot, layer of its stage and place of a task: what belongs to no layer is in the first or in the last."""
    layer = task.layer if task.layer is not None else (0 if 2 * place < len(tasks) else -1)
    stage, within = places[layer]
    return number + stage, within, place


def _renumbered(ordered: list[tuple[tuple[int, int, int], int, Task]], stages: int) -> tuple[Task, ...]:
    """Tasks in their new order, the first of each pass after the last of its micro-batch's pass before."""
    at: dict[tuple[int, int], int] = {(number, turn[2]): index for index, (turn, number, _) in enumerate(ordered)}
    last: dict[int, int] = {}
    for index, (_, number, task) in enumerate(ordered):
        if task.batch == 0 and task.layer is None:
            last[number] = index
    made = []
    for turn, number, task in ordered:
        deps = [at[number, dep] for dep in task.deps]
        if turn[2] == 0 and number >= stages:
            deps.append(last[number - stages])
        made.append(task._replace(deps=tuple(sorted(deps))))
    return tuple(made)
