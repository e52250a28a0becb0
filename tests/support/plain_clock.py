"""The clock by other means: plain Python, every running task looked at whenever one starts or ends, rates raised
together until each flow has what it asks for or one of its pools is full."""

from collections.abc import Callable, Mapping
from math import inf

from helmsman.lowering.graph import Task, TaskGraph
from helmsman.schemas.hardware import Hardware
from helmsman.timing.handovers import Handovers
from helmsman.timing.interference import Slowed, interrupts, under_way
from helmsman.timing.pools import Pools, Uses

Price = Callable[[Task], float]


def makespan(graph: TaskGraph, price: Price, slowed: Slowed | None = None, between: Handovers | None = None) -> float:
    """Seconds of a pass whose tasks share no memory and no link."""
    if slowed is None:
        return _recurrence(graph, price, between)
    return _Run(graph, price, None, slowed, between).seconds()


def scheduled(
    graph: TaskGraph, hardware: Hardware, price: Price, slowed: Slowed | None, between: Handovers | None = None
) -> float:
    """Seconds of a pass whose tasks share the machine's memories and links; no less than its launching thread works."""
    seconds = _Run(graph, price, Pools(hardware), slowed, between).seconds()
    launching = sum(between.thread.seconds(task, price(task)) for task in graph.tasks) if between else 0.0
    return max(seconds, launching)


def _recurrence(graph: TaskGraph, price: Price, between: Handovers | None) -> float:
    free: dict[str, float] = {}
    ends: list[float] = []
    for task in graph.tasks:
        others = [(ends[dep], graph.tasks[dep].resource) for dep in task.deps]
        start = free.get(task.resource, 0.0) + (_join(task, graph, between) if task.resource in free else 0.0)
        for end, lane in others:
            start = max(start, end + (between.after(lane, task.resource) if between else 0.0))
        free[task.resource] = end = start + price(task)
        ends.append(end)
    return max(ends, default=0.0)


def _join(task: Task, graph: TaskGraph, between: Handovers | None) -> float:
    waits = any(graph.tasks[dep].resource != task.resource for dep in task.deps)
    return between.join(task.resource) if between is not None and waits else 0.0


class _Run:
    """A pass under way. `left`: by running task its seconds alone that are left; `ended`: by task when it was done."""

    def __init__(
        self, graph: TaskGraph, price: Price, pools: Pools | None, slowed: Slowed | None, between: Handovers | None
    ) -> None:
        self.graph, self.price, self.pools, self.between = graph, price, pools, between
        self.slowings = [slowed(task) if slowed is not None else () for task in graph.tasks]
        links = {link.name: link for link in pools.hardware.links} if pools is not None else {}
        if between is not None:
            links = {link.name: link for link in between.hardware.links}
        self.links = links
        self.now = 0.0
        self.left: dict[int, float] = {}
        self.ended: dict[int, float] = {}
        self.freed: dict[str, float] = {}
        self.waiting: dict[str, list[int]] = {}
        for index, task in enumerate(graph.tasks):
            self.waiting.setdefault(task.resource, []).append(index)

    def seconds(self) -> float:
        """Run to the end."""
        while len(self.ended) < len(self.graph.tasks):
            later = self._start()
            speeds = self._speeds()
            step = min((left / speeds[index] for index, left in self.left.items()), default=inf)
            if later - self.now < step:
                step = later - self.now
            for index in list(self.left):
                self.left[index] -= step * speeds[index]
            self.now += step
            for index in [index for index, left in self.left.items() if left <= 1e-15 + 1e-13 * self.now]:
                del self.left[index]
                self.ended[index] = self.freed[self.graph.tasks[index].resource] = self.now
        return max(self.ended.values(), default=0.0)

    def _start(self) -> float:
        """Start what can start; when the next can that waits for nothing but time."""
        later = inf
        busy = {self.graph.tasks[index].resource for index in self.left}
        for lane, queue in self.waiting.items():
            if not queue or lane in busy or any(dep not in self.ended for dep in self.graph.tasks[queue[0]].deps):
                continue
            moment = self._moment(queue[0])
            if moment > self.now:
                later = min(later, moment)
                continue
            index = queue.pop(0)
            self.left[index] = self.price(self.graph.tasks[index])
        return later

    def _moment(self, index: int) -> float:
        task = self.graph.tasks[index]
        after = [0.0]
        if task.resource in self.freed:
            after.append(self.freed[task.resource] + _join(task, self.graph, self.between))
        for dep in task.deps:
            handover = self.between.after(self.graph.tasks[dep].resource, task.resource) if self.between else 0.0
            after.append(self.ended[dep] + handover)
        return max(after)

    def _speeds(self) -> dict[int, float]:
        """Relative to running alone."""
        tasks = {index: self.graph.tasks[index] for index in self.left}
        moving = {name for index, task in tasks.items() for name in under_way(self.links, task, self.slowings[index])}
        most, part = {}, {}
        for index in tasks:
            extra = {False: 0.0, True: 0.0}
            for name, factor in self.slowings[index]:
                if name in moving:
                    extra[interrupts(name)] += factor
            most[index], part[index] = 1 / (1 + extra[False]), 1 / (1 + extra[True])
        if self.pools is None:
            return {index: most[index] * part[index] for index in tasks}
        flows = {index: self.pools.asked(task, self.price(task)) for index, task in tasks.items()}
        asked = {index: (rate * most[index], uses) for index, (rate, uses) in flows.items() if rate}
        shares = self._shares(asked, part)
        return {index: most[index] * shares.get(index, part[index]) for index in tasks}

    def _shares(self, asked: Mapping[int, tuple[float, Uses]], part: Mapping[int, float]) -> dict[int, float]:
        """Interrupted flows share as if they always ran, and have their part of that; the others share the rest."""
        assert self.pools is not None
        capacity = dict(self.pools.capacity)
        wanted = {pool: sum(rate * uses.get(pool, 0) for rate, uses in asked.values()) for pool in capacity}
        if all(wanted[pool] <= capacity[pool] * (1 + 1e-12) for pool in capacity):
            return {}
        every = fair(asked, capacity)
        own = {index: every[index] * part[index] for index in asked if part[index] < 1.0}
        for index, share in own.items():
            rate, uses = asked[index]
            for pool, times in uses.items():
                capacity[pool] = max(0.0, capacity[pool] - rate * share * times)
        return own | fair({index: flow for index, flow in asked.items() if index not in own}, capacity)


def fair(flows: Mapping[int, tuple[float, Uses]], capacity: Mapping[str, float]) -> dict[int, float]:
    """Max-min fair speeds relative to what each asks for."""
    left, waiting, speeds = dict(capacity), dict(flows), dict[int, float]()
    while waiting:
        times = {pool: sum(uses.get(pool, 0) for _, uses in waiting.values()) for pool in left}
        level, full = min((left[pool] / count, pool) for pool, count in times.items() if count)
        settled = [index for index, (rate, _) in waiting.items() if rate <= level]
        for index in settled or [index for index, (_, uses) in waiting.items() if full in uses]:
            rate, uses = waiting.pop(index)
            speeds[index] = min(rate, level) / rate
            for pool, count in uses.items():
                left[pool] = max(0.0, left[pool] - min(rate, level) * count)
    return speeds
