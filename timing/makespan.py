"""Seconds of a pass, from the first start to the last end: by the clock where tasks overlap, else by a sum."""

from array import array
from collections.abc import Callable, Sequence

from helmsman.lowering.graph import Task, TaskGraph
from helmsman.lowering.task_order import TaskOrder
from helmsman.timing._clock import sequence_seconds
from helmsman.timing.clock import Clock
from helmsman.timing.handovers import Handovers
from helmsman.timing.interference import Slowed
from helmsman.timing.pools import Pools
from helmsman.timing.works import Works, apart

_NO_WAITS = array("q")


def makespan(
    graph: TaskGraph,
    seconds: Callable[[Task], float],
    pools: Pools,
    slowed: Slowed | None = None,
    between: Handovers | None = None,
) -> float:
    """Return the seconds of a pass whose tasks take `seconds` alone; `pools`: what they share; `slowed`: what delays
    them; `between`: the time between them."""
    return works_makespan(apart(graph), [seconds(task) for task in graph.tasks], pools, slowed, between)


def works_makespan(
    works: Works, times: Sequence[float], pools: Pools, slowed: Slowed | None = None, between: Handovers | None = None
) -> float:
    """Return the same of a pass whose kinds of work take `times` alone. O(tasks x log), and x running tasks where a
    memory or link is contended."""
    if not works.order.overlap:
        return sequence_makespan(works.order, times, between)
    clock = Clock(pools, slowed, between)
    for task, alone in zip(works.kinds, times, strict=True):
        clock.own_work(task, alone)
    clock.feed(works.order.kind, works.order.dep_counts, works.order.deps)
    clock.run()
    return clock.makespan


def sequence_makespan(order: TaskOrder, times: Sequence[float], between: Handovers | None) -> float:
    """Return the seconds of tasks that run one at a time, so that none shares a memory or is delayed: each begins when
    the one before is done, and what it waits for on other lanes has been handed over and joined, as on the clock."""
    if between is None or not between.known:
        return sequence_seconds(order.kind, times, _NO_WAITS, (), ())
    return sequence_seconds(order.kind, times, order.waits, *between.between_lanes(order.lane_names))
