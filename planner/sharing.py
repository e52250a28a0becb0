"""How running tasks share memories and links: the simulator's rule (`lowering.pools`), for predictions."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from helmsman.lowering.graph import Task
from helmsman.lowering.pools import Pools
from helmsman.planner.works import Works

_ROUNDING = 1e-12

Uses = Mapping[str, int]


class Sharing:
    """What tasks ask of the pools of a machine, and the speeds at which they all get something."""

    def __init__(self, pools: Pools) -> None:
        self.pools = pools
        self._most: dict[tuple[str, tuple[str, ...]], tuple[Uses, float]] = {}

    def matters(self, works: Works, times: Sequence[float]) -> bool:
        """Whether lanes that work together may ask a pool for more than it has, when kinds of work take `times` alone;
        not where tasks follow each other."""
        if not works.overlap:
            return False
        wanted: dict[str, dict[str, float]] = {}
        for task, alone in zip(works.kinds, times, strict=True):
            rate, uses = self.asked(task, alone)
            for pool, count in uses.items():
                lanes = wanted.setdefault(pool, {})
                lanes[task.resource] = max(lanes.get(task.resource, 0.0), rate * count)
        return any(sum(lanes.values()) > self.pools.capacity[pool] for pool, lanes in wanted.items())

    def asked(self, task: Task, alone: float) -> tuple[float, Uses]:
        """Bytes/s that a task of `alone` seconds by itself draws, at most what its pools have; where they count."""
        key = task.resource, task.memories
        if key not in self._most:
            found = self.pools.uses(task)
            self._most[key] = found, self.pools.most(found)
        uses, most = self._most[key]
        return min(self.pools.drawn(task) / alone, most) if alone else 0.0, uses

    def speeds(
        self, flows: Mapping[int, tuple[float, Uses]], interrupted: Mapping[int, float] = MappingProxyType({})
    ) -> dict[int, float]:
        """Max-min fair speeds, relative to the bytes/s that each asks for, in (0, 1].

        `interrupted`: flows that run for such a part of the time only. They share as if they always ran, and have that
        part of what they would get; the others share what is left."""
        wanted: dict[str, float] = {}
        for rate, uses in flows.values():
            for pool, times in uses.items():
                wanted[pool] = wanted.get(pool, 0.0) + rate * times
        capacity = self.pools.capacity
        if all(rate <= capacity[pool] * (1 + _ROUNDING) for pool, rate in wanted.items()):
            return {index: interrupted.get(index, 1.0) for index in flows}
        flowing = {index: flow for index, flow in flows.items() if flow[0] > 0.0}
        found = self._filled(flowing, capacity)
        if not interrupted.keys() & flowing.keys():
            return found
        left, own = (
            dict(capacity),
            {index: found[index] * part for index, part in interrupted.items() if index in found},
        )
        for index, pace in own.items():
            rate, uses = flows[index]
            for pool, times in uses.items():
                left[pool] = max(0.0, left[pool] - rate * pace * times)
        return own | self._filled({index: flow for index, flow in flowing.items() if index not in own}, left)

    def _filled(self, flows: Mapping[int, tuple[float, Uses]], capacity: Mapping[str, float]) -> dict[int, float]:
        """Rates are raised together until each has what it asks for or one of its pools is full."""
        left, waiting, found = dict(capacity), dict(flows), dict[int, float]()
        while waiting:
            level, full = self._level(left, waiting)
            content = [index for index, (rate, _) in waiting.items() if rate <= level]
            settled = content or [index for index, (_, uses) in waiting.items() if full in uses]
            for index in settled:
                rate, uses = waiting.pop(index)
                given = min(rate, level)
                found[index] = given / rate
                for pool, times in uses.items():
                    left[pool] = max(0.0, left[pool] - given * times)
        return found

    def _level(self, left: Mapping[str, float], waiting: Mapping[int, tuple[float, Uses]]) -> tuple[float, str]:
        """To which rate all can be raised, and the pool that is full then."""
        times: dict[str, int] = {}
        for _, uses in waiting.values():
            for pool, count in uses.items():
                times[pool] = times.get(pool, 0) + count
        return min((left[pool] / count, pool) for pool, count in times.items())
