"""Experts with biases, cut activations, and sums that a norm takes, divided and in slots: gpt-oss and Gemma 4."""

from pathlib import Path

import numpy as np
import pytest
from benchmarks.oracle import oracle_logits
from expert_plans import divided_plan
from two_cpus import TWO_CPUS
from window_models import written

from helmsman.executor.engine import Engine
from helmsman.executor.system.machine import Machine
from helmsman.planner.strategies.expert_split.layout import ExpertLayout
from helmsman.schemas.model import Model
from helmsman.schemas.plan import ExpertSlots, Plan, Select
from helmsman.schemas.workload import Workload

pytestmark = TWO_CPUS
PROMPT = 40
TOLERANCE = 1e-3
"""Of the largest logit."""


def fetched(model: Model, work: Workload, slots: int) -> Plan:
    """Return a plan whose experts come to slots of the accelerator."""
    plan = divided_plan(model, ExpertLayout(0, model.layers), work)
    everywhere = tuple(rule for rule in plan.compute if rule.select.names != "experts_*")
    rule = ExpertSlots(select=Select(names="experts_*"), memory="vram", slots=slots, misses="fetched")
    return plan.model_copy(update={"compute": everywhere, "expert_slots": (rule,)})


@pytest.mark.parametrize("name", ["gpt_oss", "gemma4-experts"])
def test_logits_are_those_of_transformers(tmp_path: Path, name: str) -> None:
    """Slots for fewer experts than a prompt chooses, so that sums go on from round to round; divided between devices
    where the sum joins the residual stream as it is, with some biases where they live and others on their way."""
    model, oracle = written(name, tmp_path)
    work = Workload(prompt_tokens=PROMPT, output_tokens=8, context=PROMPT + 8)
    given = np.random.default_rng(2).integers(0, model.vocab, PROMPT + 4).tolist()
    expected = oracle_logits(oracle, given)
    plans = [fetched(model, work, 3)]
    if name == "gpt_oss":
        plans += [divided_plan(model, ExpertLayout(0, model.layers, 3, streamed), work) for streamed in (False, True)]
    for plan in plans:
        with Engine.load(plan, tmp_path, Machine.this()) as engine:
            made = engine.logits(np.array([given], np.int32), prompt=PROMPT)[0]
        assert np.abs(made - expected[PROMPT - 1 :]).max() <= TOLERANCE * np.abs(expected).max()
