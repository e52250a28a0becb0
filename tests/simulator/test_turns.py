"""Stages of batches in turns, followed natively: as a plain loop follows them, and refusals of what cannot be."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from together import together

from helmsman.timing._clock import TurnStage, followed

if TYPE_CHECKING:
    from helmsman.timing._clock import Awaited, TimedTask

Stage = tuple["list[list[TimedTask]]", "list[list[TimedTask]]", "list[TimedTask]", list[int], list[int], int, float]
"""Head, tail, last, outputs, users, to, launching."""


def plain(stages: list[Stage], buffers: int, lanes: int) -> float:
    """Return the seconds until all tasks are done, by a plain loop: it notes when lanes are free and when tasks end."""
    free, ends = [0.0] * lanes, [list[float]() for _ in stages]
    rooms = [0.0] * len(stages)

    def run(number: int, tasks: list[TimedTask]) -> None:
        for lane, seconds, join, own, before, buffered in tasks:
            begins = [free[lane] + join if free[lane] else 0.0, *[rooms[number]] * buffered]
            begins += [ends[number][task] + after for task, after in own]
            begins += [ends[number - 1][stages[number - 1][3][output]] + after for output, after in before]
            free[lane] = max(begins) + seconds
            ends[number].append(free[lane])

    for head in stages[0][0]:
        run(0, head)
    for number, (under, stage) in enumerate(pairwise(stages), 1):
        brought = [place for place in range(number) if stages[place][4] and stages[place][5] == stage[5]]
        if len(brought) >= buffers:
            oldest = brought[-buffers]
            rooms[number] = max(ends[oldest][user] for user in stages[oldest][4])
        for tail, head in zip(under[1], stage[0], strict=True):
            run(number - 1, tail)
            run(number, head)
    for tasks in (*stages[-1][1], stages[-1][2]):
        run(len(stages) - 1, tasks)
    return max(*free, sum(stage[6] for stage in stages))


def drawn(chance: random.Random, batches: int, outputs: int) -> Stage:
    """A stage whose predecessor has so many `outputs`."""
    made = 0

    def awaited(count: int) -> Awaited:
        numbers = chance.sample(range(count), min(count, chance.randint(0, 2)))
        return tuple((number, chance.choice((0.0, 0.25))) for number in numbers)

    def tasks(count: int) -> list[TimedTask]:
        nonlocal made
        result: list[TimedTask] = []
        for _ in range(count):
            wait, joined = awaited(made), chance.choice((0.0, 0.125))
            seconds = 0.5 + chance.random()
            result.append((chance.randrange(3), seconds, joined, wait, awaited(outputs), chance.random() < 0.3))
            made += 1
        return result

    head = [tasks(chance.randint(1, 3)) for _ in range(batches)]
    first = made
    tail, last = [tasks(chance.randint(0, 2)) for _ in range(batches)], tasks(chance.randint(0, 1))
    users = chance.sample(range(first), chance.randint(0, 2)) if first > 1 else []
    return head, tail, last, chance.sample(range(first), min(first, batches)), users, chance.randint(0, 1), 0.25


@together("seed", range(40))
def test_stages_are_followed_as_a_plain_loop_does(seed: int) -> None:
    chance = random.Random(seed)
    batches, stages, outputs = chance.randint(1, 3), list[Stage](), 0
    for _ in range(chance.randint(1, 9)):
        stages.append(drawn(chance, batches, outputs))
        outputs = len(stages[-1][3])
    for buffers in (2, 3):
        native = [TurnStage(*stage) for stage in stages]
        assert followed(native, buffers, 3) == pytest.approx(plain(stages, buffers, 3), rel=1e-12)


def stage(lane: int = 0, own: Awaited = (), before: Awaited = (), batches: int = 1, **more: Any) -> TurnStage:
    task = (lane, 1.0, 0.0, own, before, False)
    facts: dict[str, Any] = {"outputs": [0], "users": [], "to": 0, "launching": 0.0, **more}
    return TurnStage(head=[[task]] * batches, tail=[[]] * batches, last=[], **facts)


@together(
    ("stages", "buffers", "lanes", "said"),
    [
        ([], 2, 1, "needs stages"),
        ([stage()], 1, 1, "two buffers"),
        ([stage()], 2, 0, "lanes"),
        ([stage()], 2, 10**9, "lanes"),
        ([stage(lane=1)], 2, 1, "no such lane"),
        ([stage(lane=-1)], 2, 1, "no such lane"),
        ([stage(own=((1, 0.0),))], 2, 1, "not done"),
        ([stage(before=((0, 0.0),))], 2, 1, "an output"),
        ([stage(), stage(before=((1, 0.0),))], 2, 1, "an output"),
        ([stage(outputs=[7]), stage(before=((0, 0.0),))], 2, 1, "not done"),
        ([stage(), stage(batches=2)], 2, 1, "different batches"),
        ([None], 2, 1, "no stage"),
    ],
)
def test_what_cannot_be_is_refused(stages: Any, buffers: int, lanes: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        followed(stages, buffers, lanes)


def test_stages_that_nobody_keeps_are_followed() -> None:
    made: Any = (stage() for _ in range(200))
    assert followed(made, 2, 1) == 200.0
