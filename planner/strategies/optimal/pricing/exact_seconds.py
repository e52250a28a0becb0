"""Seconds that a block of one way asks of every lane in one phase, from the graph that lowering makes of it."""

from collections.abc import Sequence

import numpy as np

from helmsman.lowering.graph import Task, TaskGraph
from helmsman.planner.strategies.optimal.pricing.amounts import Basis
from helmsman.planner.strategies.optimal.pricing.chains import OPS
from helmsman.planner.strategies.optimal.pricing.critical_path import CriticalPath, finished
from helmsman.planner.strategies.optimal.pricing.lowered_parts import CHAIN, TURNING
from helmsman.planner.strategies.optimal.pricing.task_kinds import computed, entering, goes_home, settled
from helmsman.planner.strategies.optimal.program.ways import Numbers
from helmsman.timing.interference import by_links
from helmsman.timing.makespan import makespan
from helmsman.timing.pools import Pools


def exact(basis: Basis, tasks: Sequence[Task], summed: Numbers) -> Numbers:
    """Seconds (lanes) of the graph of a block of a way whose sum of parts is `summed`."""
    total = basis.total([task for task in tasks if task.layer is not None and not entering(task)])
    work = TaskGraph(basis.iteration, settled(tasks))
    path, times = _path(basis, work), [_inside(basis, task) for task in work.tasks]
    delayed = _delayed(basis, work)
    if basis.iteration.phase == "prefill" and any(map(goes_home, tasks)):
        delayed = max(delayed, _delayed(basis, TaskGraph(basis.iteration, settled(tasks, True))))
    total[basis.places[CHAIN]] = delayed + min(path.at(times))
    for name, until in zip(TURNING, path.until(times), strict=True):
        total[basis.places[name]] = delayed + until
    for name, busy in basis.beside.items():
        counts = (busy.kept(task) if computed(task) is not None else busy.idle for task in work.tasks)
        slower = [seconds * count for seconds, count in zip(times, counts, strict=True)]
        total[basis.places[name]] = path.until(slower, busy.idle)[1] + sum(map(busy.counted, tasks))
    return np.maximum(total, summed)


def _delayed(basis: Basis, work: TaskGraph) -> float:
    """Seconds that the operations of a block are longer under way because links and memories are shared. What is
    sent home counts only as far as it is there before they are done, at half its speed."""
    ends = finished(work.tasks, [_inside(basis, task) for task in work.tasks])
    home = {task.id: end for task, end in zip(work.tasks, ends, strict=True) if goes_home(task)}
    done = max(end for task, end in zip(work.tasks, ends, strict=True) if not goes_home(task))

    def inside(task: Task) -> float:
        seconds = _inside(basis, task)
        return min(seconds, max(0.0, done - home[task.id] + seconds) / 2) if task.id in home else seconds

    return makespan(work, inside, Pools(basis.costs.hardware), by_links(basis.costs.slowed())) - done


def _inside(basis: Basis, task: Task) -> float:
    """Seconds of a task, none if the block before may have left what it brings where it is used."""
    return 0.0 if entering(task) else basis.price(task)


def _path(basis: Basis, work: TaskGraph) -> CriticalPath:
    last = [place for place, task in enumerate(work.tasks) if computed(task) == OPS[-1]]
    here = tuple(place for place in last if basis.side(work.tasks[place]) == "host")
    enters = next(basis.side(task) for task in work.tasks if computed(task) is not None)
    away = tuple(place for place in last if place not in here)
    return CriticalPath(work.tasks, (here, away), basis.latencies, enters == "accelerator")
