"""The clock of a machine: the native event loop, fed with tasks of the lowering.

A lane is a queue, as the executor's are: a task starts when those that it waits for and the task before it on its lane
are done, and handed over (`timing.handovers`). Tasks that run at once share the bandwidth of memories and links
(`timing.pools`) and delay each other (`timing.interference`)."""

from array import array
from collections.abc import Callable

from helmsman.lowering.graph import Task
from helmsman.timing._clock import Loop
from helmsman.timing.handovers import Handovers
from helmsman.timing.host_thread import HostThread
from helmsman.timing.interference import Slowed, Slowings, interrupts, under_way
from helmsman.timing.pools import Pools, Uses


def _alike(_: str) -> int:
    return 0


class Clock:
    """A clock at 0 s; `loop`: the native loop, from which times are read.

    `pools`: the memories and links that tasks share; `slowed`: what delays a task; `between`: the time between tasks,
    and the thread that launches them; `kind_of`: the number of the kind of a lane, by which the loop sums up what
    worked at once; `record`: whether the loop keeps when every task ran."""

    def __init__(
        self,
        pools: Pools,
        slowed: Slowed | None = None,
        between: Handovers | None = None,
        kind_of: Callable[[str], int] = _alike,
        record: bool = False,
    ) -> None:
        self.pools, self.slowed, self.kind_of = pools, slowed, kind_of
        self.between = between if between is not None and between.known else None
        self.loop = Loop(pools.rates, record)
        self.lanes: dict[str, int] = {}
        self._thread: HostThread | None = None
        if between is not None and between.thread.known:
            self._thread = between.thread
        self._held, self._launching = list[float](), 0.0
        self._links = {link.name: link for link in pools.hardware.links}
        self._works = dict[tuple[object, ...], int]()
        self._uses = dict[int, int]()
        self._kinds = dict[str, int]()
        self._traffic: dict[tuple[str, ...], int] = {(): -1}
        self._slowings: dict[Slowings, int] = {(): -1}

    @property
    def makespan(self) -> float:
        """Return the latest end, seconds, no less than one thread of the host works that launches for all devices."""
        return max(self.loop.now, self._launching)

    def work(self, task: Task, alone: float) -> int:
        """Return the number of the work that `task` does in `alone` seconds by itself. Raises ValueError for seconds
        that are negative or not a number."""
        slowings = self.slowed(task) if self.slowed is not None else ()
        key = task.resource, task.kind, task.bytes, task.format, task.memories, alone, slowings
        number = self._works.get(key)
        if number is None:
            number = self._works[key] = self._add(task, alone, slowings)
        return number

    def own_work(self, task: Task, alone: float) -> int:
        """Return a number of its own for the work of a task that does other work than all before it."""
        return self._add(task, alone, self.slowed(task) if self.slowed is not None else ())

    def feed(self, works: "array[int]", dep_counts: "array[int]", deps: "array[int]") -> None:
        """Add tasks in topological order: of each the number of its work and how many tasks it waits for, and the
        numbers of these, of all tasks in one array. Raises ValueError for a dependency that has not come before."""
        self.loop.feed(works, dep_counts, deps)
        if self._thread is not None:
            self._launching += sum(map(self._held.__getitem__, works))

    def run(self, unfinished: int = 0) -> None:
        """Go on until at most `unfinished` tasks are left. Raises ValueError where tasks wait for each other."""
        try:
            self.loop.run(unfinished)
        except RuntimeError:
            raise ValueError("the task graph has a cycle") from None

    def _add(self, task: Task, alone: float, slowings: Slowings) -> int:
        if not alone >= 0.0:
            raise ValueError(f"task {task.id} cannot take {alone} s")
        rate, uses = self.pools.asked(task, alone)
        number = self.loop.add_work(
            self._lane(task.resource),
            alone,
            rate,
            self._use(uses) if rate else -1,
            self._moving(under_way(self._links, task, slowings)) if self.slowed is not None else -1,
            self._slowing(slowings),
        )
        if self._thread is not None:
            self._held.append(self._thread.seconds(task, alone))
        return number

    def _lane(self, name: str) -> int:
        """Return the number of a lane; a new one is made with the time between its tasks and those of other lanes."""
        if name not in self.lanes:
            between = self.between
            number = self.loop.add_lane(self.kind_of(name), between.join(name) if between is not None else 0.0)
            if between is not None:
                for other, place in self.lanes.items():
                    self.loop.set_handover(place, number, between.after(other, name))
                    self.loop.set_handover(number, place, between.after(name, other))
            self.lanes[name] = number
        return self.lanes[name]

    def _use(self, uses: Uses) -> int:
        """Return the number of uses, by their identity: pools keep those that they return."""
        key = id(uses)
        if key not in self._uses:
            self._uses[key] = self.loop.add_uses(self.pools.numbered(uses))
        return self._uses[key]

    def _slowing(self, slowings: Slowings) -> int:
        if slowings not in self._slowings:
            parts = ([pair for pair in slowings if interrupts(pair[0]) is kind] for kind in (False, True))
            slows, interrupting = ([(self._kind(name), extra) for name, extra in part] for part in parts)
            self._slowings[slowings] = self.loop.add_slowings(slows, interrupting)
        return self._slowings[slowings]

    def _moving(self, traffic: tuple[str, ...]) -> int:
        if traffic not in self._traffic:
            self._traffic[traffic] = self.loop.add_traffic([self._kind(name) for name in traffic])
        return self._traffic[traffic]

    def _kind(self, traffic: str) -> int:
        return self._kinds.setdefault(traffic, len(self._kinds))
