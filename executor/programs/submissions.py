"""From tasks to submissions: what goes to a lane in one piece, and which other lanes it waits for.

Lanes work in order of submission, as GPU streams do. A submission waits for those of other lanes that its tasks
depend on, and only for those that nothing before it on its lane has waited for already."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

Clock = dict[str, int]
"""By lane, the latest step that is known to be done."""


@dataclass(frozen=True, slots=True)
class JointTasks:
    """Tasks that only make sense together. `chunks`: how often they are done in turns, task by task; None: once, in one
    piece of one lane, such as a stage that passes a prompt chunk by chunk itself."""

    tasks: tuple[int, ...]
    chunks: int | None = None


@dataclass(frozen=True, slots=True)
class SubmittedStep:
    """Tasks that are done in one piece, whatever happens on other lanes; `deps`: indices of earlier steps.

    `chunk`: in which turn; None for what is done once."""

    lane: str
    tasks: tuple[int, ...]
    deps: frozenset[int]
    chunk: int | None = None


@dataclass
class Submission:
    """Tasks that `lane` does in one piece, after the submissions `waits` of other lanes.

    `chunk`: in which turn; None for what is done once; `signals`: whether another lane waits for it."""

    lane: str
    tasks: list[int]
    waits: list[int]
    chunk: int | None = None
    signals: bool = False


@dataclass
class _LaneOrder:
    """The state that every lane knows of the others while steps are handed out in order."""

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


def steps_of(
    lanes: Sequence[str], deps: Sequence[Iterable[int]], together: Sequence[JointTasks]
) -> list[SubmittedStep]:
    """Tasks as steps, in an order in which every step follows those it depends on."""
    step_list = _StepList(lanes, deps, {task: group for group in together for task in group.tasks})
    for task in range(len(lanes)):
        step_list.add(task)
    return step_list.steps


@dataclass
class _StepList:
    """Steps so far; `place`: by task, the last step that does it."""

    lanes: Sequence[str]
    deps: Sequence[Iterable[int]]
    together: dict[int, JointTasks]
    steps: list[SubmittedStep] = field(default_factory=list)
    place: dict[int, int] = field(default_factory=dict)

    def add(self, task: int) -> int:
        """The step after which `task` is done."""
        if task not in self.place:
            group = self.together.get(task, JointTasks((task,)))
            needed = {dep for member in group.tasks for dep in self.deps[member]}.difference(group.tasks)
            before = frozenset([self.add(dep) for dep in sorted(needed)])
            if group.chunks is None:
                self.place.update(dict.fromkeys(group.tasks, len(self.steps)))
                self.steps.append(SubmittedStep(self.lanes[task], group.tasks, before))
            for chunk in range(group.chunks or 0):
                self._turn(group.tasks, chunk)
        return self.place[task]

    def _turn(self, tasks: Sequence[int], chunk: int) -> None:
        """Chunk `chunk` of `tasks`: what begins it waits until the chunk before has been through all of them."""
        before = frozenset(self.place[task] for task in tasks) if chunk else frozenset[int]()
        mine = set[int]()
        for task in tasks:
            inside = mine.intersection(self.deps[task])
            needed = before if chunk and not inside else {self.place[dep] for dep in self.deps[task]}
            self.place[task] = len(self.steps)
            self.steps.append(SubmittedStep(self.lanes[task], (task,), frozenset(needed), chunk))
            mine.add(task)


def submissions(steps: Sequence[SubmittedStep], joins: Callable[[int, int], bool]) -> list[Submission]:
    """The submissions of a pass in an order that never blocks: that of the steps.

    `joins`: whether the second of two tasks that follow each other on a lane may go with the first."""
    order = _LaneOrder()
    waits = [order.add(step.lane, step.deps) for step in steps]
    awaited = {dep for wait in waits for dep in wait}
    result: list[Submission] = []
    place: list[int] = []
    last: dict[str, int] = {}
    for index, step in enumerate(steps):
        open_one = result[last[step.lane]] if step.lane in last else None
        if open_one is None or waits[index] or open_one.signals or not _continues(open_one, step, joins):
            open_one = Submission(step.lane, [], sorted(place[dep] for dep in waits[index]), step.chunk)
            last[step.lane] = len(result)
            result.append(open_one)
        place.append(last[step.lane])
        open_one.tasks += step.tasks
        open_one.signals = index in awaited
    return result


def _continues(one: Submission, step: SubmittedStep, joins: Callable[[int, int], bool]) -> bool:
    return one.chunk == step.chunk and joins(one.tasks[-1], step.tasks[0])


def hazards(accesses: Sequence[Iterable[tuple[object, object]]]) -> list[set[int]]:
    """By task, the earlier ones that it must not overtake: (buffer, owner) pairs are used owner after owner."""
    owners: dict[object, object] = {}
    users: dict[object, set[int]] = {}
    before: dict[object, set[int]] = {}
    result = []
    for task, pairs in enumerate(accesses):
        deps = set[int]()
        for buffer, owner in pairs:
            if buffer not in owners or owners[buffer] != owner:
                owners[buffer], before[buffer], users[buffer] = owner, users.get(buffer, set()), set()
            users[buffer].add(task)
            deps |= before[buffer]
        result.append(deps)
    return result


def returning(accesses: Sequence[Iterable[tuple[object, object]]]) -> Iterator[int]:
    """The tasks of owners that come back to a buffer which another has used meanwhile: what was there is lost."""
    owners: dict[object, object] = {}
    before: dict[object, set[object]] = {}
    for task, pairs in enumerate(accesses):
        for buffer, owner in pairs:
            if owners.get(buffer) != owner:
                if owner in before.setdefault(buffer, set()):
                    yield task
                owners[buffer] = owner
                before[buffer].add(owner)
