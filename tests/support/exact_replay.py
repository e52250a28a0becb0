"""The replay by other means: exact rationals, every task scanned at every event, rates raised together in steps."""

from collections.abc import Callable, Mapping
from fractions import Fraction

from helmsman.lowering.graph import Task
from helmsman.schemas.hardware import Hardware


def physical_memory(hardware: Hardware, name: str) -> str:
    while (shared := hardware.memory(name).shares) is not None:
        name = shared
    return name


def physical_link(hardware: Hardware, lane: str) -> str:
    links = {link.name: link for link in hardware.links}
    link = links[lane.split(":")[0]]
    while link.shares is not None:
        link = links[link.shares]
    return link.name


class ExactReplay:
    """Starts and ends of `tasks` that take price(task) seconds alone; cost O(tasks^2), so only for small graphs."""

    def __init__(
        self,
        tasks: tuple[Task, ...],
        price: Callable[[Task], float],
        hardware: Hardware,
        beside: Callable[[Task], str | None] = lambda _: None,
    ) -> None:
        self.tasks, self.beside = tasks, beside
        self.slows = {
            link.name: {device: Fraction(extra.value) for device, extra in (link.slows or {}).items()}
            for link in hardware.links
        }
        self.left = [Fraction(price(task)) for task in tasks]
        self.room = {("memory", m.name): Fraction(m.bandwidth.value) for m in hardware.memories}
        self.room |= {("link", ln.name): Fraction(ln.bandwidth.value) for ln in hardware.links}
        self.room |= {("lanes", ln.name): Fraction(ln.carries.value) for ln in hardware.links if ln.carries}
        self.drawn = [self._drawn(task, hardware) for task in tasks]
        self.full = [self._full(i) for i in range(len(tasks))]
        self.start: dict[int, Fraction] = {}
        self.end: dict[int, Fraction] = {}
        self.now = Fraction(0)

    @staticmethod
    def _drawn(task: Task, hardware: Hardware) -> list[tuple[str, str]]:
        drawn = [("memory", physical_memory(hardware, name)) for name in task.memories]
        if task.kind == "transfer":
            mine, physical = task.resource.split(":")[0], physical_link(hardware, task.resource)
            wide = any(link.name == physical and link.carries for link in hardware.links)
            drawn += [("link", mine), ("lanes", physical)] if wide else [("link", physical)]
        return drawn

    def _full(self, i: int) -> Fraction | None:
        """Bytes/s alone: never more than a memory or link has."""
        if not self.tasks[i].bytes or not self.left[i]:
            return None
        most = [self.room[pool] / self.drawn[i].count(pool) for pool in self.drawn[i]]
        return min(self.tasks[i].bytes / self.left[i], *most)

    def run(self) -> list[tuple[float, float]]:
        while len(self.end) < len(self.tasks):
            self._begin()
            running = [i for i in self.start if i not in self.end]
            speed = self._speeds(running)
            wait = min(self.left[i] / speed[i] for i in running)
            self.now += wait
            for i in running:
                self.left[i] -= speed[i] * wait
                if self.left[i] == 0:
                    self.end[i] = self.now
        return [(float(self.start[i]), float(self.end[i])) for i in range(len(self.tasks))]

    def _begin(self) -> None:
        blocked = {self.tasks[i].resource for i in self.start if i not in self.end}
        for i, task in enumerate(self.tasks):
            if i in self.start or task.resource in blocked:
                continue
            blocked.add(task.resource)
            if all(dep in self.end for dep in task.deps):
                self.start[i] = self.now

    def _allowed(self, running: list[int]) -> dict[int, Fraction]:
        """The speed that links with a transfer under way leave to every running task."""
        busy = {task.resource.split(":")[0] for task in (self.tasks[i] for i in running) if task.kind == "transfer"}
        return {i: 1 / (1 + sum(self._extra(i, link) for link in busy)) for i in running}

    def _extra(self, i: int, link: str) -> Fraction:
        own: Mapping[str, Fraction] = self.slows[link]
        counted = self.beside(self.tasks[i]) == link
        return Fraction(0) if counted else own.get(self.tasks[i].resource.split(":")[0], Fraction(0))

    def _speeds(self, running: list[int]) -> dict[int, Fraction]:
        """All flows grow together until each has what it wants, less what busy links cost it, or a pool is full."""
        allowed = self._allowed(running)
        alone = {i: rate for i in running if (rate := self.full[i]) is not None}
        full = {i: rate * allowed[i] for i, rate in alone.items()}
        rate, growing = dict.fromkeys(full, Fraction(0)), set(full)
        while growing:
            taken = {pool: sum(rate[i] * self.drawn[i].count(pool) for i in rate) for pool in self.room}
            users = {pool: sum(self.drawn[i].count(pool) for i in growing) for pool in self.room}
            spare = {pool: (self.room[pool] - taken[pool]) / users[pool] for pool in self.room if users[pool]}
            step = min(*(full[i] - rate[i] for i in growing), *spare.values())
            rate = {i: now + step if i in growing else now for i, now in rate.items()}
            tight = {pool for pool, most in spare.items() if most == step}
            growing = {i for i in growing if rate[i] < full[i] and not tight & set(self.drawn[i])}
        return {i: rate[i] / alone[i] if i in alone else allowed[i] for i in running}
