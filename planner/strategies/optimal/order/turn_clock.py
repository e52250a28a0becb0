"""A pass of several batches that take turns, followed by the clock: a lane does its tasks one at a time, in the order
in which lowering makes them.

A turn ends where a block's work goes to another device (`lowering.turns`), so batches wait for each other in ways that
no pace of whole blocks tells: those were up to 29 % off."""

from collections.abc import Sequence
from typing import NamedTuple

_NEVER = float("-inf")

Awaited = tuple[tuple[int, float], ...]
"""Numbers of tasks, each with the seconds of handing over after it."""


class TimedTask(NamedTuple):
    """A task of a stage: the number of its lane, its seconds, and those of joining after the task before on that lane.
    It waits for tasks of its `own` stage, for outputs of the stage `before`, and for a buffer (`buffered`)."""

    lane: int
    seconds: float
    join: float
    own: Awaited
    before: Awaited
    buffered: bool


Tasks = tuple[TimedTask, ...]


class TurnStage(NamedTuple):
    """The tasks of a block, or of an end of the model, by batch: those in the turn that ends the stage before (`head`),
    those in the turn after (`tail`), and those after all turns (`last`). Tasks are numbered in that order.

    `outputs`: the tasks that make what the next stage reads; `users`: those that use what came to the accelerator `to`;
    `launching`: seconds of the thread that launches for all devices, if one does."""

    head: tuple[Tasks, ...]
    tail: tuple[Tasks, ...]
    last: Tasks
    outputs: tuple[int, ...]
    users: tuple[int, ...]
    to: int
    launching: float


class _ActiveStage:
    """A stage under way: when its tasks ended, when those that it waits for did (`before`), and when a buffer of its
    accelerator was free."""

    __slots__ = ("before", "ends", "free", "outputs", "stage")

    def __init__(self, stage: TurnStage, before: "_ActiveStage | None", free: float) -> None:
        self.stage, self.free = stage, free
        self.ends: list[float] = []
        self.before = before.ends if before is not None else []
        self.outputs = before.stage.outputs if before is not None else ()

    def run(self, tasks: Tasks, lanes: list[float]) -> None:
        """Some tasks, on `lanes` that were free at such times."""
        ends, before, outputs, free = self.ends, self.before, self.outputs, self.free
        for lane, seconds, join, own, others, buffered in tasks:
            start = lanes[lane] + join
            if start < 0.0:
                start = 0.0
            if buffered and free > start:
                start = free
            for number, after in own:
                ready = ends[number] + after
                if ready > start:
                    start = ready
            for number, after in others:
                ready = before[outputs[number]] + after
                if ready > start:
                    start = ready
            lanes[lane] = start = start + seconds
            ends.append(start)

    @property
    def used(self) -> float:
        """When all that came for it was used."""
        return max(self.ends[user] for user in self.stage.users)


def followed(stages: Sequence[TurnStage], buffers: int, lanes: int) -> float:
    """Seconds until all tasks of the stages of a model are done, with `buffers` (two at least) on every accelerator for
    stages to which something comes."""
    free = [_NEVER] * lanes
    under, brought = _ActiveStage(stages[0], None, 0.0), dict[int, list[_ActiveStage]]()
    for head in under.stage.head:
        under.run(head, free)
    for stage in stages[1:]:
        if under.stage.users:
            brought.setdefault(under.stage.to, []).append(under)
        earlier = brought.get(stage.to, ())
        ahead = _ActiveStage(stage, under, earlier[-buffers].used if len(earlier) >= buffers else 0.0)
        for tail, head in zip(under.stage.tail, stage.head, strict=True):
            under.run(tail, free)
            ahead.run(head, free)
        under = ahead
    for tail in (*under.stage.tail, under.stage.last):
        under.run(tail, free)
    return max(*free, sum(stage.launching for stage in stages))
