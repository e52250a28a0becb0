"""Experts of a layer on the host, on the accelerator and on both, streamed to prompts and in every pass: plans of
`expert-split` on a loopback accelerator, against transformers and against the same plan on one device."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.oracle import load_oracle, oracle_greedy, oracle_logits
from daily import one_in
from expert_layouts import divided_plan
from expert_models import FAMILIES
from expert_plans import written_checkpoint
from layer_machines import two_cpus
from on_torch import on_torch
from plans import make_plan
from two_cpus import TWO_CPUS

from helmsman.executor.engine import Engine
from helmsman.executor.system.machine import Machine
from helmsman.planner.strategies.expert_split.layout import ExpertLayout
from helmsman.schemas.errors import UsageError
from helmsman.schemas.model import Model
from helmsman.schemas.plan import ComputeRule, Part, Plan, Schedule, Select
from helmsman.schemas.workload import Workload

pytestmark = TWO_CPUS
PROMPT, OUTPUT, LONG = 17, 64, 150
SHAPE = Workload(prompt_tokens=LONG, output_tokens=OUTPUT, context=256)
TOLERANCE = 1e-3
"""Of the largest logit, against transformers."""

SUMS = 1e-5
"""Of the largest logit, against one device: where two devices add up experts, sums of f32 have another order."""

LAYOUTS = {
    "on the host": ExpertLayout(0, 2),
    "three of eight kept": ExpertLayout(0, 2, 3),
    "one kept, chosen seldom": ExpertLayout(0, 2, 1),
    "seven kept, one layer on the host": ExpertLayout(1, 1, 7),
    "streamed to prompts": ExpertLayout(0, 2, 0, True),
    "the rest streamed to prompts": ExpertLayout(0, 2, 3, True),
    "caches on the host": ExpertLayout(0, 2, 3, attended=2),
    "a cache on the host, streamed to prompts": ExpertLayout(0, 2, 3, True, attended=1),
}


class Case:
    """A checkpoint, and what transformers and one device make of it."""

    def __init__(self, family: str, directory: Path) -> None:
        self.directory, self.model = written_checkpoint(family, directory)
        oracle = load_oracle(self.directory)
        torch.set_num_threads(1)
        self.ids = np.random.default_rng(3).integers(0, self.model.vocab, LONG).tolist()
        self.greedy = list(oracle_greedy(oracle, self.ids[:PROMPT], OUTPUT).tokens)
        self.expected = oracle_logits(oracle, self.ids)
        self.alone = self.run(make_plan(self.model, workload=SHAPE))[0]

    def run(self, plan: Plan, machine: Machine | None = None) -> tuple[Any, list[int]]:
        """Return the logits after a long prompt and 3 more tokens, and the greedy tokens of a short one."""
        with Engine.load(plan, self.directory, machine or Machine.this()) as engine:
            logits = engine.logits(np.array([self.ids], np.int32), prompt=LONG - 3)[0]
            made = engine.generate(np.array([self.ids[:PROMPT]], np.int32), OUTPUT, ignore_eos=True)
        return logits, list(made.tokens[0])

    def check(self, plan: Plan) -> None:
        """Compare a plan's logits and tokens with transformers' and with those of one device."""
        logits, tokens = self.run(plan)
        assert tokens == self.greedy
        assert np.abs(logits - self.expected[LONG - 4 :]).max() <= TOLERANCE * np.abs(self.expected).max()
        assert np.abs(logits - self.alone).max() <= SUMS * np.abs(self.alone).max()


@pytest.fixture(scope="module", params=FAMILIES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    yield Case(request.param, tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize("layout", one_in(3, LAYOUTS.values()), ids=LAYOUTS)
def test_experts_are_computed_where_the_plan_says(case: Case, layout: ExpertLayout) -> None:
    """Every day all on the host, some kept with a layer there, and caches there; with experts streamed to prompts in
    the test of PyTorch devices."""
    case.check(divided_plan(case.model, layout, SHAPE))


def test_prompts_in_micro_batches_make_the_same_tokens(case: Case) -> None:
    """Of 64 tokens each, on top of what is cached; not where caches move."""
    changes = {"schedule": Schedule(pass_tokens=64)}
    case.check(divided_plan(case.model, ExpertLayout(0, 2, 3), SHAPE).model_copy(update=changes))
    moving = divided_plan(case.model, ExpertLayout(0, 2, 3, attended=2), SHAPE).model_copy(update=changes)
    with pytest.raises(UsageError, match="schedule.pass_tokens"):
        case.run(moving)


@pytest.mark.parametrize("schedule", [Schedule(), Schedule(overlap="next-layer", prefetch=1)], ids=["none", "ahead"])
def test_experts_come_in_every_pass(case: Case, schedule: Schedule) -> None:
    """The accelerator computes what lives on the host; each stage multiplies by all three matrices at once, so none may
    take another's place before."""
    plan = divided_plan(case.model, ExpertLayout(0, 2), SHAPE)
    everywhere = tuple(rule for rule in plan.compute if rule.select.names != "experts_*")
    case.check(plan.model_copy(update={"compute": everywhere, "schedule": schedule}))


@pytest.mark.parametrize(
    "layout", one_in(2, [ExpertLayout(0, 2), ExpertLayout(0, 2, 3, True)]), ids=["host", "both, streamed"]
)
def test_pytorch_devices_compute_their_experts(case: Case, layout: ExpertLayout) -> None:
    """Messages and sums cross between native stages and PyTorch's; prompts read experts that came packed."""
    machine = replace(two_cpus(), accelerators={"cuda": ("cpu",)})
    logits, tokens = case.run(on_torch(divided_plan(case.model, layout, SHAPE)), machine)
    assert tokens == case.greedy
    assert np.abs(logits - case.expected[LONG - 4 :]).max() <= TOLERANCE * np.abs(case.expected).max()


def refused(model: Model, directory: Path, first: ComputeRule) -> str:
    """Return why a plan that begins with a rule is refused."""
    plan = divided_plan(model, ExpertLayout(0, 2, 3), SHAPE)
    with pytest.raises(UsageError) as caught:
        Engine.load(plan.model_copy(update={"compute": (first, *plan.compute)}), directory, Machine.this())
    return str(caught.value)


def test_divisions_that_stages_do_not_compute_are_refused(tmp_path: Path) -> None:
    """Matrices that are divided unlike each other, and a sum that another device adds up."""
    directory, model = written_checkpoint("qwen3_moe", tmp_path)
    part = Part(axis="experts", start=3, stop=5)
    only_up = ComputeRule(select=Select(names="experts_up", part=part), device="loopback")
    assert "divided unlike each other" in refused(model, directory, only_up)
    elsewhere = ComputeRule(select=Select(names="combine"), device="cpu")
    assert "adds up what they give" in refused(model, directory, elsewhere)
