"""From tasks to submissions: what goes to a lane in one piece, and which other lanes it waits for.

Lanes work in order of submission, as GPU streams do. A submission waits for those of other lanes that its tasks
depend on, and only for those that nothing before it on its lane has waited for already."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

Clock = dict[str, int]
"""By lane, the latest step that is known to be done."""


@dataclass(frozen=True, slots=True)
class Step:
    """Tasks that are done in one piece, whatever happens on other lanes; `deps`: indices of earlier steps."""

    lane: str
    tasks: tuple[int, ...]
    deps: frozenset[int]


@dataclass
class Submission:
    """Tasks that `lane` does in one piece, after the submissions `waits` of other lanes.

    `signals`: whether another lane waits for it."""

    lane: str
    tasks: list[int]
    waits: list[int]
    signals: bool = False


@dataclass
class _Order:
    """What every lane knows about the others while steps are handed out in order."""

    lanes: list[str] = field(default_factory=list)
    after: list[Clock] = field(default_factory=list)
    now: dict[str, Clock] = field(default_factory=dict)

    def add(self, lane: str, deps: Iterable[int]) -> list[int]:
        """The steps that the next one, on `lane`, must wait for; latest first, so that they imply the others."""
        known, waits = dict(self.now.get(lane, {})), list[int]()
        for dep in sorted(deps, reverse=True):
            if self.lanes[dep] != lane and known.get(self.lanes[dep], -1) < dep:
                waits.append(dep)
                for other, step in self.after[dep].items():
                    known[other] = max(known.get(other, -1), step)
        known[lane] = len(self.lanes)
        self.lanes.append(lane)
        self.after.append(known)
        self.now[lane] = known
        return waits


def steps_of(lanes: Sequence[str], deps: Sequence[Iterable[int]], together: Sequence[Sequence[int]]) -> list[Step]:
    """Tasks as steps, in an order in which every step follows those it depends on.

    `together`: tasks that only make sense in one piece, such as those that pass a prompt chunk by chunk."""
    group = {task: tuple(members) for members in together for task in members}
    place: dict[int, int] = {}
    found: list[Step] = []

    def add(task: int) -> int:
        if task in place:
            return place[task]
        members = group.get(task, (task,))
        needed = {dep for member in members for dep in deps[member]}.difference(members)
        before = frozenset(add(dep) for dep in sorted(needed))
        place.update(dict.fromkeys(members, len(found)))
        found.append(Step(lanes[task], members, before))
        return place[task]

    for task in range(len(lanes)):
        add(task)
    return found


def submissions(steps: Sequence[Step], joins: Callable[[int, int], bool]) -> list[Submission]:
    """The submissions of a pass in an order that never blocks: that of the steps.

    `joins`: whether the second of two tasks that follow each other on a lane may go with the first."""
    order = _Order()
    waits = [order.add(step.lane, step.deps) for step in steps]
    awaited = {dep for each in waits for dep in each}
    found: list[Submission] = []
    place: list[int] = []
    last: dict[str, int] = {}
    for index, step in enumerate(steps):
        open_one = found[last[step.lane]] if step.lane in last else None
        if open_one is None or waits[index] or open_one.signals or not joins(open_one.tasks[-1], step.tasks[0]):
            open_one = Submission(step.lane, [], sorted(place[dep] for dep in waits[index]))
            last[step.lane] = len(found)
            found.append(open_one)
        place.append(last[step.lane])
        open_one.tasks += step.tasks
        open_one.signals = index in awaited
    return found


def hazards(accesses: Sequence[Iterable[tuple[object, object]]]) -> list[set[int]]:
    """By task, the earlier ones that it must not overtake: (buffer, owner) pairs are used owner after owner."""
    owners: dict[object, object] = {}
    users: dict[object, set[int]] = {}
    before: dict[object, set[int]] = {}
    found = []
    for task, pairs in enumerate(accesses):
        deps = set[int]()
        for buffer, owner in pairs:
            if buffer not in owners or owners[buffer] != owner:
                owners[buffer], before[buffer], users[buffer] = owner, users.get(buffer, set()), set()
            users[buffer].add(task)
            deps |= before[buffer]
        found.append(deps)
    return found
