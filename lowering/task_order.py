"""The order of a pass: which kind of work every task does, and for which tasks it waits."""

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, repeat

from helmsman.lowering.graph import Task, TaskRun
from helmsman.schemas.hardware import lane_owner


@dataclass(frozen=True)
class TaskOrder:
    """All of a pass but what its kinds of work are.

    `lane_of`, `moves`: by kind its lane, and whether it is a transfer; `kind`: by task the number of its kind;
    `dep_counts`: for how many tasks it waits; `deps`: the numbers of these, those of the first task first."""

    lane_of: tuple[str, ...]
    moves: tuple[bool, ...]
    kind: "array[int]"
    dep_counts: "array[int]"
    deps: "array[int]"

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Return by kind the number of its tasks."""
        counted = Counter(self.kind)
        return tuple([counted[number] for number in range(len(self.lane_of))])

    @cached_property
    def lanes(self) -> tuple[str, ...]:
        """Return the lane of every task."""
        return tuple([self.lane_of[kind] for kind in self.kind])

    @cached_property
    def lane_names(self) -> tuple[str, ...]:
        """Return the lanes, by number."""
        return tuple(dict.fromkeys(self.lane_of))

    @cached_property
    def waits(self) -> "array[int]":
        """Return of every task that waits for other lanes its number, that of its lane, the task before it on its lane
        (-1: none), how many tasks of other lanes it waits for, and of each of these its number and that of its lane."""
        numbers = {lane: number for number, lane in enumerate(self.lane_names)}
        flat = array("q")
        for task, (before, others) in self.crossings.items():
            flat.extend((task, numbers[self.lanes[task]], -1 if before is None else before, len(others)))
            flat.extend([number for other in others for number in (other, numbers[self.lanes[other]])])
        return flat

    @cached_property
    def awaited_lanes(self) -> dict[int, frozenset[str]]:
        """Return by task the other lanes that it waits for, where there are any."""
        return {
            task: frozenset([self.lanes[other] for other in others]) for task, (_, others) in self.crossings.items()
        }

    @cached_property
    def crossings(self) -> dict[int, tuple[int | None, tuple[int, ...]]]:
        """Return by task that waits for other lanes the task before it on its own, if there is one, and those that it
        waits for there."""
        waited: dict[int, list[int]] = {}
        for task, dep in self._crossing:
            waited.setdefault(task, []).append(dep)
        last, result = dict[str, int](), dict[int, tuple[int | None, tuple[int, ...]]]()
        for task, lane in enumerate(self.lanes):
            if task in waited:
                result[task] = last.get(lane), tuple(waited[task])
            last[lane] = task
        return result

    @cached_property
    def overlap(self) -> bool:
        """Whether two tasks may run at the same time: not if each waits for the one before, or is next on its lane."""
        follows, lanes = {task for task, dep in self._waits() if dep == task - 1}, self.lanes
        return any(lanes[task] != lanes[task - 1] and task not in follows for task in range(1, len(lanes)))

    @cached_property
    def submissions(self) -> int:
        """Return in how many pieces lanes are given the pass: every transfer, and operations of a device that follow
        each other until one waits for another lane or another lane for it."""
        awaiting, awaited = {task for task, _ in self._crossing}, {dep for _, dep in self._crossing}
        last: dict[str, int] = {}
        count = 0
        for task, (lane, kind) in enumerate(zip(self.lanes, self.kind, strict=True)):
            before = last.get(lane)
            begins = before is None or before in awaited or task in awaiting
            count += begins or self.moves[kind]
            last[lane] = task
        return count

    @cached_property
    def ends_on(self) -> str:
        """Return the device whose operation is the last of the pass: the head's, wherever there is one; of transfers
        alone the link of the last."""
        last = next((kind for kind in reversed(self.kind) if not self.moves[kind]), self.kind[-1])
        return lane_owner(self.lane_of[last])

    def merged(self, kinds: Sequence[int]) -> "TaskOrder":
        """Return the same order where some kinds of work are one; `kinds`: by kind the number of the one it is then."""
        first = {number: place for place, number in reversed(list(enumerate(kinds)))}
        lanes = tuple([self.lane_of[first[number]] for number in range(len(first))])
        moves = tuple([self.moves[first[number]] for number in range(len(first))])
        kind = array("i", map(kinds.__getitem__, self.kind))
        return TaskOrder(lanes, moves, kind, self.dep_counts, self.deps)

    def _waits(self) -> Iterator[tuple[int, int]]:
        """Yield the tasks that wait, each with every task that it waits for."""
        waiting = chain.from_iterable(map(repeat, range(len(self.kind)), self.dep_counts))
        return zip(waiting, self.deps, strict=True)

    @cached_property
    def _crossing(self) -> list[tuple[int, int]]:
        """Return those that wait for a task of another lane."""
        lanes = self.lanes
        return [(task, dep) for task, dep in self._waits() if lanes[task] != lanes[dep]]


def order_of(runs: Sequence[TaskRun], numbers: Sequence[Sequence[int]], kinds: Sequence[Task]) -> TaskOrder:
    """Return the order of a pass; `numbers`: by run and task the number of its kind, among `kinds`."""
    kind, counts, deps = array("i"), array("i"), array("q")
    for run, of_run in zip(runs, numbers, strict=True):
        kind += array("i", of_run) * run.times
        counts += array("i", [len(task.deps) for task in run.tasks]) * run.times
        first = [dep for task in run.tasks for dep in task.deps]
        for number in range(run.times):
            later = number * len(run.tasks)
            deps.extend([dep + later for dep in first] if number else first)
    lanes = tuple([task.resource for task in kinds])
    moves = tuple([task.kind == "transfer" for task in kinds])
    return TaskOrder(lanes, moves, kind, counts, deps)
