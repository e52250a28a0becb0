"""Passes of batches in turns, followed by the clock, against the plans that they are of."""

import random
from dataclasses import replace

import pytest
from daily import one_in
from plain_clock import makespan
from questions import asked, simulated

from helmsman.lowering.lower import lower
from helmsman.planner.prediction.predict import pass_seconds
from helmsman.planner.strategies.optimal.configurations.block_ways import on_accelerator
from helmsman.planner.strategies.optimal.configurations.rules import BUFFERS, Assignment, place
from helmsman.planner.strategies.optimal.order.order import seconds
from helmsman.planner.strategies.optimal.search.compositions import Aim
from helmsman.planner.strategies.optimal.search.tracks import Tracks
from helmsman.planner.strategies.optimal.search.turn_stages import TurnStages
from helmsman.planner.strategies.optimal.strategy import Optimal
from helmsman.planner.strategies.streaming.question import Question
from helmsman.planner.strategies.streaming.store import WeightStore

STEP, BOTH = Aim("decode step", {"decode": 1.0}), Aim("request", {"prefill": 1.0, "decode": 127.0})

STORE = WeightStore(("nvme0",), (1.0,), "direct", requested=True)


def drawn(optimal: Optimal, chance: random.Random) -> tuple[Assignment, tuple[int, ...]]:
    """Blocks in one to four ways at random, and their rows."""
    blocks = optimal.blocks
    ways = [chance.randrange(len(blocks.ways)) for _ in range(chance.randint(1, 3))]
    ways += [blocks.ways.index(on_accelerator(blocks.frame.model))] * chance.randint(0, 1)
    rows = tuple(chance.choice(ways) for _ in range(blocks.count))
    ends = chance.choice(blocks.arrangements)
    return Assignment(tuple(blocks.ways[row] for row in rows), *ends, blocks.shares), rows


def with_store(question: Question) -> Question:
    return replace(question, frame=replace(question.frame, store=STORE))


def in_groups(question: Question) -> Question:
    return replace(question, frame=replace(question.frame, quarters=("weights", "kv")))


@pytest.mark.parametrize(
    "question",
    one_in(
        2,
        [
            asked("opt-125m", "a4000-7950x", batch=4, batches=2),
            asked("Qwen3-0.6B", "rtx3090-5950x", layers=9, batches=4),
            in_groups(asked("opt-125m", "rtx4060-laptop", batch=4, batches=3)),
            with_store(asked("opt-125m", "a4000-7950x", batch=4, batches=2)),
            asked("opt-125m", "a100x2-dgx", layers=8, batch=16, batches=2),
            asked("Qwen3-0.6B", "l40s-epyc7413", layers=9, batches=2),
        ],
    ),
    ids=["opt", "four batches", "4-bit groups", "store", "two accelerators", "eager"],
)
def test_passes_take_what_tasks_of_their_plans_take_one_after_the_other_on_every_lane(question):
    """With the time between tasks, at prices that do not depend on the plan; no prediction of the plan is shorter."""
    optimal, chance = Optimal(question, BOTH), random.Random(3)
    blocks = optimal.blocks
    for phase in blocks.phases:
        stages = TurnStages(blocks, phase)
        for _ in range(3):
            chosen, rows = drawn(optimal, chance)
            graph = lower(place(blocks.frame, chosen), blocks.members[0].iteration(phase))
            took = stages.seconds((chosen.embedding, chosen.output), rows, BUFFERS)
            between = blocks.costs.between()
            alone = makespan(graph, lambda task: blocks.costs.price(task).mid, between=between)
            thread = sum(between.thread.seconds(task, blocks.costs.price(task).mid) for task in graph.tasks)
            assert took == pytest.approx(max(alone, thread), rel=1e-9), (phase, chosen)
            assert took <= pass_seconds(graph, blocks.costs) * (1 + 1e-9)


@pytest.mark.nightly
def test_estimates_are_what_the_simulator_replays_to_within_a_hundredth():
    """Where memories are not what binds: of the best plan's blocks and of others, in their order and at random."""
    question = asked("Qwen3-32B", "a4000-7950x", layers=8, vram=15 * 10**8, batch=8, batches=2)
    question = replace(question, frame=replace(question.frame, weights="q4_0"))
    optimal, chance = Optimal(question, STEP), random.Random(3)
    blocks, tracks = optimal.blocks, Tracks(optimal.blocks)
    for chosen in (optimal.finalists[0].chosen, *(drawn(optimal, chance)[0] for _ in range(4))):
        ends, rows = (chosen.embedding, chosen.output), [blocks.ways.index(way) for way in chosen.blocks]
        for _ in range(2):
            took = seconds(rows, tracks.track(ends, STEP.weights), BUFFERS)
            again = replace(chosen, blocks=tuple(blocks.ways[row] for row in rows))
            assert took == pytest.approx(simulated(question, place(question.frame, again)), rel=0.01)
            chance.shuffle(rows)
