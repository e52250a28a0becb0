"""Seconds of a pass by the clock, from the first start to the last end."""

from collections.abc import Callable, Sequence

from helmsman.lowering.graph import Task, TaskGraph
from helmsman.timing.clock import Clock
from helmsman.timing.handovers import Handovers
from helmsman.timing.interference import Slowed
from helmsman.timing.pools import Pools
from helmsman.timing.works import Works, apart


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
    clock = Clock(pools, slowed, between)
    numbers = [clock.own_work(task, alone) for task, alone in zip(works.kinds, times, strict=True)]
    clock.feed(works.order.by_task(numbers), works.order.dep_counts, works.order.deps)
    clock.run()
    return clock.makespan
