"""Experts with biases, cut activations, and sums that a norm takes, divided and in slots: gpt-oss and Gemma 4."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from benchmarks.oracle import oracle_logits
from expert_layouts import divided_plan
from layer_machines import two_cpus
from on_torch import on_torch
from two_cpus import TWO_CPUS
from window_models import written

from helmsman.executor.engine import Engine
from helmsman.executor.measuring.measure import Measured, trace
from helmsman.executor.system.machine import Machine
from helmsman.planner.strategies.expert_split.layout import ExpertLayout
from helmsman.schemas.model import Model
from helmsman.schemas.plan import ExpertSlots, Plan, Residence, Select
from helmsman.schemas.trace import read_trace, write_trace
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
    where the sum joins the residual stream as it is, with some biases where they live and others on their way; in
    slots of a PyTorch device, too."""
    model, oracle = written(name, tmp_path)
    work = Workload(prompt_tokens=PROMPT, output_tokens=8, context=PROMPT + 8)
    given = np.random.default_rng(2).integers(0, model.vocab, PROMPT + 4).tolist()
    expected = oracle_logits(oracle, given)
    plans = [fetched(model, work, 3), on_torch(fetched(model, work, 3))]
    if name == "gpt_oss":
        plans += [divided_plan(model, ExpertLayout(0, model.layers, 3, streamed), work) for streamed in (False, True)]
    machine = replace(two_cpus(), accelerators={"cuda": ("cpu",)})
    for number, plan in enumerate(plans):
        with Engine.load(plan, tmp_path, machine if number == 1 else Machine.this()) as engine:
            made = engine.logits(np.array([given], np.int32), prompt=PROMPT)[0]
        assert np.abs(made - expected[PROMPT - 1 :]).max() <= TOLERANCE * np.abs(expected).max()


@pytest.mark.parametrize("misses", ["host", "fetched", "divided"])
def test_traces_of_biased_experts_in_slots_are_read(
    tmp_path: Path, misses: Literal["host", "fetched", "divided"]
) -> None:
    """Matrices, in a format of their own, come to slots; biases of all experts are there from the start."""
    model, _ = written("gpt_oss", tmp_path)
    plan = divided_plan(
        model, ExpertLayout(0, model.layers), Workload(prompt_tokens=PROMPT, output_tokens=4, context=PROMPT + 4)
    )
    fetched_share = 0.5 if misses == "divided" else None
    rule = ExpertSlots(select=Select(names="experts_*"), memory="vram", slots=3, misses=misses, fetched=fetched_share)
    matrices = Residence(select=Select(names="experts_*.weight"), memory="dram", format="f16")
    plan = plan.model_copy(update={"expert_slots": (rule,), "residence": (matrices, *plan.residence)})
    ids = np.random.default_rng(3).integers(0, model.vocab, (1, PROMPT), dtype=np.int32)
    with Engine.load(plan, tmp_path, Machine.this()) as engine:
        made = engine.generate(ids, 4, ignore_eos=True)
    with (tmp_path / "run.parquet").open("wb") as stream:
        write_trace(trace(plan, Measured((replace(made),), (), {"prompt_tokens": PROMPT})), stream)
    spans = read_trace(tmp_path / "run.parquet").spans
    moved = sum(span.bytes for span in spans if ".weights" in span.op and span.resource == "h2d")
    fetched = sum(sum(counts.fetched) for counts in made.expert_cache)
    assert moved == fetched or misses == "host"
