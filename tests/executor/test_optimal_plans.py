"""Blocks in every way that `optimal` composes, executed: the tokens of the plan that the CPU runs alone."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from daily import one_in
from layer_machines import two_cpus
from op_plans import as_plan
from plans import make_hardware, make_plan
from quantised import write_quantised
from shapes import small_model
from splits import make_frame, with_storage

from helmsman.executor.engine import Engine
from helmsman.executor.measuring.measure import spans_of
from helmsman.planner.cost.model import CostOptions
from helmsman.planner.strategies.optimal.configurations.block_ways import BlockWay
from helmsman.planner.strategies.optimal.configurations.offered_ways import offered
from helmsman.planner.strategies.optimal.configurations.rules import Assignment, place
from helmsman.planner.strategies.optimal.search.compositions import Aim
from helmsman.planner.strategies.optimal.strategy import Optimal
from helmsman.planner.strategies.streaming.question import Question
from helmsman.planner.strategies.streaming.store import store_of
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.plan import Plan
from helmsman.schemas.workload import Workload

FAMILIES = ("opt", "qwen3", "llama")
PROMPT, OUTPUT = 8, 5


def question(family: str, batch: int, hardware: Hardware | None = None, prompt: int = PROMPT) -> Question:
    work = Workload(prompt_tokens=prompt, output_tokens=OUTPUT, batch=batch, context=prompt + OUTPUT + 3)
    return Question(make_frame(small_model(family), work, hardware), CostOptions())


def outcome(checkpoint: Any, plan: Plan, *folders: Path) -> tuple[Any, Any]:
    shape = plan.workload.batch, plan.workload.prompt_tokens
    tokens = np.random.default_rng(7).integers(3, 500, shape, dtype=np.int32)
    with Engine.load(plan, checkpoint, two_cpus(), storage=folders) as engine:
        made = engine.generate(tokens, OUTPUT, ignore_eos=True)
        spans_of(plan, 0, made)
        return np.array(made.tokens), engine.logits(tokens, prompt=shape[1] - 2)


@pytest.fixture(scope="module")
def alone() -> Callable[[Path, Question], tuple[Any, Any]]:
    """What the plan makes of a checkpoint that runs everything on the CPU, once for all that ask the same of it."""
    found: dict[tuple[Path, int, int], tuple[Any, Any]] = {}

    def get(checkpoint: Path, asked: Question) -> tuple[Any, Any]:
        work = asked.frame.workload
        key = checkpoint, work.batch, work.prompt_tokens
        if key not in found:
            found[key] = outcome(checkpoint, make_plan(asked.frame.model, workload=work))
        return found[key]

    return get


def check(found: tuple[Any, Any], expected: tuple[Any, Any]) -> None:
    assert np.abs(found[1] - expected[1]).max() < 1e-4 * np.abs(expected[1]).max()
    assert np.array_equal(found[0], expected[0])


def some_of(count: int, daily: int) -> list[Any]:
    """Seeds, of which the first `daily` are drawn every day and the others every night."""
    return [*range(daily), *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(daily, count))]


def drawn(asked: Question, seed: int) -> Plan:
    """A plan with any of the ways that are offered for the blocks, any sides for the ends, and what comes one or two
    blocks ahead."""
    source = random.Random(seed)
    model = asked.frame.model
    stored, quarters = asked.frame.store is not None, asked.frame.quarters
    every = offered(asked.frame, prompts=True)
    some = [way for way in every if bool(way.stored) == stored and bool(way.q4) == bool(quarters)]
    ways: list[BlockWay] = [source.choice(some), *(source.choice(every) for _ in range(model.layers - 1))]
    ends = source.choice(("host", "accelerator")), source.choice(("host", "accelerator"))
    shares = Optimal(asked, Aim("request", {"prefill": 1.0, "decode": 1.0})).blocks.shares
    placed = place(asked.frame, Assignment(tuple(ways), *ends, shares))
    ahead = placed.schedule.prefetch * (1 + seed % 2)
    return as_plan(replace(placed, schedule=placed.schedule.model_copy(update={"prefetch": ahead})))


@pytest.mark.parametrize("seed", one_in(3, some_of(12, 6)))
def test_any_composition_makes_the_tokens_of_the_cpu_alone(checkpoints, alone, seed):
    family, batch = FAMILIES[seed % 3], 1 + 2 * (seed % 2)
    asked = question(family, batch)
    plan = drawn(asked, seed)
    check(outcome(checkpoints(family), plan), alone(checkpoints(family), asked))


@pytest.mark.parametrize("seed", some_of(6, 3))
def test_prompts_that_pass_chunk_by_chunk_make_the_same_tokens(checkpoints, alone, seed):
    """Whatever is offered for them is executed, halves of blocks that both sides share too."""
    family, batch = FAMILIES[seed % 3], 1 + 2 * (seed % 2)
    asked = question(family, batch, prompt=150)
    plan = drawn(asked, seed)
    check(outcome(checkpoints(family), plan), alone(checkpoints(family), asked))


@pytest.mark.parametrize("seed", one_in(2, some_of(8, 3)))
@pytest.mark.parametrize("direct", [False, True])
def test_weights_in_storage_make_the_same_tokens(checkpoints, alone, tmp_path, seed, direct):
    """Some with copies on two devices, each of which serves its share."""
    family, batch = FAMILIES[seed % 3], 1 + 2 * (seed % 2)
    names = ("nvme0", "nvme1")[: 1 + seed % 2]
    asked = question(family, batch, with_storage(make_hardware(), *names, direct=direct))
    store = store_of(asked.frame.roles, "direct" if direct else None)
    asked = replace(asked, frame=replace(asked.frame, store=store))
    plan = drawn(asked, seed)
    assert {rule.memory for rule in plan.residence} >= {"nvme0"}
    found = outcome(checkpoints(family), plan, *(tmp_path for _ in names[:1]))
    check(found, alone(checkpoints(family), asked))


@pytest.fixture(scope="module")
def quantised(tmp_path_factory):
    """The checkpoint of a family whose matrices hold what 4-bit groups stand for."""
    place = tmp_path_factory.mktemp("quantised")
    return {name: write_quantised(small_model(name), place / name, lambda name: True) for name in FAMILIES}


@pytest.mark.parametrize("seed", one_in(2, some_of(12, 3)))
@pytest.mark.parametrize("stored", [False, True])
def test_weights_in_groups_make_the_same_tokens(quantised, alone, tmp_path, seed, stored):
    """Some come so, some live so on the accelerator, some come so from storage."""
    family, batch = FAMILIES[seed % 3], 1 + 2 * (seed % 2)
    asked = question(family, batch, with_storage(make_hardware(), "nvme0", direct=False))
    store = store_of(asked.frame.roles) if stored else None
    asked = replace(asked, frame=replace(asked.frame, store=store, quarters=("weights",)))
    plan = drawn(asked, seed)
    assert "q4" in {rule.format for rule in plan.residence}
    check(outcome(quantised[family], plan, *[tmp_path] * stored), alone(quantised[family], asked))
