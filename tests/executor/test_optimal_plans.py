"""Blocks in every way that `optimal` composes, executed: the tokens of the plan that the CPU runs alone."""

import random
from typing import Any

import numpy as np
import pytest
from layer_machines import two_cpus
from op_plans import as_plan
from plans import make_plan
from shapes import small_model
from splits import make_frame

from helmsman.executor.engine import Engine
from helmsman.executor.measure import spans_of
from helmsman.planner.costs import CostOptions
from helmsman.planner.strategies.optimal.block_ways import BlockWay, block_ways
from helmsman.planner.strategies.optimal.compositions import Aim
from helmsman.planner.strategies.optimal.rules import Assignment, place
from helmsman.planner.strategies.optimal.strategy import Optimal
from helmsman.planner.strategies.streaming.question import Question
from helmsman.schemas.plan import Plan
from helmsman.schemas.workload import Workload

FAMILIES = ("opt", "qwen3", "llama")
PROMPT, OUTPUT = 8, 5


def question(family: str, batch: int) -> Question:
    work = Workload(prompt_tokens=PROMPT, output_tokens=OUTPUT, batch=batch, context=PROMPT + OUTPUT + 3)
    return Question(make_frame(small_model(family), work), CostOptions())


def outcome(checkpoint: Any, plan: Plan) -> tuple[Any, Any]:
    tokens = np.random.default_rng(7).integers(3, 500, (plan.workload.batch, PROMPT), dtype=np.int32)
    with Engine.load(plan, checkpoint, two_cpus()) as engine:
        made = engine.generate(tokens, OUTPUT, ignore_eos=True)
        spans_of(plan, 0, made)
        return np.array(made.tokens), engine.logits(tokens, prompt=PROMPT - 2)


def drawn(asked: Question, seed: int) -> Assignment:
    """Any ways for the blocks, any sides for the ends."""
    source = random.Random(seed)
    model = asked.frame.model
    ways: list[BlockWay] = [source.choice(block_ways(model)) for _ in range(model.layers)]
    ends = source.choice(("host", "accelerator")), source.choice(("host", "accelerator"))
    return Assignment(tuple(ways), *ends, Optimal(asked, Aim("step", {"decode": 1.0})).blocks.shares, 1 + seed % 2)


@pytest.mark.parametrize("seed", range(12))
def test_any_composition_makes_the_tokens_of_the_cpu_alone(checkpoints, seed):
    family, batch = FAMILIES[seed % 3], 1 + 2 * (seed % 2)
    asked = question(family, batch)
    plan = as_plan(place(asked.frame, drawn(asked, seed)))
    alone = make_plan(small_model(family), workload=asked.frame.workload)
    found, expected = outcome(checkpoints(family), plan), outcome(checkpoints(family), alone)
    assert np.abs(found[1] - expected[1]).max() < 1e-4 * np.abs(expected[1]).max()
    assert np.array_equal(found[0], expected[0])
