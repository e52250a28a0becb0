"""Seconds that the ends of a model ask of every lane in one phase."""

from collections.abc import Sequence

import numpy as np

from helmsman.lowering.graph import Task
from helmsman.planner.strategies.optimal.pricing.amounts import Basis
from helmsman.planner.strategies.optimal.pricing.lowered_parts import CHAIN, TURNING
from helmsman.planner.strategies.optimal.pricing.task_kinds import OUTPUT
from helmsman.planner.strategies.optimal.program.ways import Numbers


def of_ends(basis: Basis, tasks: Sequence[Task], blocks: int) -> Numbers:
    """Seconds (lanes) of the ends of a model of so many blocks, from their `tasks`: what blocks ask for is done before
    the output of the last batch begins, but for keys and values that go home."""
    last = max((task.batch for task in tasks), default=0)
    outputs = [task for task in tasks if task.op in OUTPUT and task.batch == last]
    after, total = basis.seconds_of(outputs), basis.total(tasks)
    left = after - basis.total(outputs) - blocks * np.maximum(*basis.sent)
    total += basis.used_lanes * np.maximum(0.0, left)
    chain = _chain(basis, tasks, last)
    total[basis.places[CHAIN]] = chain
    for name, latency in zip(TURNING, basis.latencies[::-1], strict=True):
        total[basis.places[name]] = chain - latency
    for name, busy in basis.beside.items():
        crossing = busy.idle * basis.latencies[0]
        total[basis.places[name]] = chain - (1 - busy.idle) * (chain - after) - crossing
    return total


def _chain(basis: Basis, tasks: Sequence[Task], last: int) -> float:
    """Seconds of the chain outside blocks: the first batch begins, and the outputs of all follow each other; or all
    begin one after the other, and the last one's output follows."""
    once = basis.seconds_of(task for task in tasks if task.kind == "transfer" and not task.batch)
    works = [task for task in tasks if task.kind != "transfer"]
    outputs, begins = ([task for task in works if (task.op in OUTPUT) == is_output] for is_output in (True, False))
    first = basis.seconds_of(task for task in begins if not task.batch) + basis.seconds_of(outputs)
    others = basis.seconds_of(begins) + basis.seconds_of(task for task in outputs if task.batch == last)
    return once + max(first, others)
