"""Objectives: what their seconds are, and that every strategy's plan is best by the objective that it was asked for."""

from dataclasses import replace
from functools import cache
from itertools import product

import pytest
from daily import one_in
from questions import limited

from helmsman.cli.plan import build_parser
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.placement import batches_together
from helmsman.planner.choice import MOST_ABOVE_SIMPLE
from helmsman.planner.decide import decide
from helmsman.planner.prediction.objective import objective_seconds, phase_weights
from helmsman.planner.registry import OF_DENSE, method
from helmsman.planner.request import PlanRequest
from helmsman.planner.words.explain import explain
from helmsman.schemas.objective import OBJECTIVES
from helmsman.schemas.units import format_seconds
from helmsman.schemas.workload import Workload

MODEL, MACHINE = "Qwen3-0.6B", "rtx4060-laptop"
LAYERS, VRAM = 14, 850 * 10**6
NEAR = 1.01
"""What closed forms and models of a few layers leave open."""

nightly = pytest.mark.nightly

IN_BATCHES = ("op-split", "flexgen", "llama-cpp")
"""Methods of each kind, asked for several batches every day: in turns of operations, in a zig-zag and one after the
other."""


@cache
def decided(strategy, objective, vram=VRAM, **work):
    """What a strategy decides for an objective and half of a model, on an accelerator with `vram` bytes."""
    shape = {"prompt_tokens": 512, "output_tokens": 64, "context": 576, **work}
    hardware = limited(MACHINE, vram if strategy not in ("vllm", "accelerate") else None)
    model = load_model(MODEL).with_layers(LAYERS)
    options = method(strategy).options()
    return decide(PlanRequest(model, hardware, Workload(**shape), strategy, options, objective=objective))


def seconds(decision, objective):
    plan = decision.plan
    return objective_seconds(plan.predicted, plan.workload, batches_together(plan), objective).mid


@pytest.mark.parametrize(
    ("strategy", "work"),
    [
        *one_in(2, (pytest.param(strategy, {"batches": 1}, id=f"one-{strategy}") for strategy in OF_DENSE)),
        *(
            pytest.param(
                strategy,
                {"batch": 2, "batches": 2},
                marks=() if strategy in IN_BATCHES else nightly,
                id=f"batches-{strategy}",
            )
            for strategy in OF_DENSE
        ),
    ],
)
def test_each_objective_is_best_in_the_plan_that_was_made_for_it(strategy, work):
    """Of one batch the most tokens/s are those of the fastest request: that is asked for several alone."""
    objectives = [each for each in OBJECTIVES if each != "throughput" or work["batches"] > 1]
    plans = {objective: decided(strategy, objective, **work) for objective in objectives}
    for objective, decision in plans.items():
        assert decision.seconds == pytest.approx(seconds(decision, objective), rel=1e-9)
        assert seconds(decision, objective) <= NEAR * min(seconds(each, objective) for each in plans.values())
        proof = decision.plan.certificate
        if proof is not None:
            assert proof.lower_bound <= proof.seconds == decision.seconds


@pytest.mark.parametrize("strategy", ["layer-split", "op-split", "all-cpu"])
@pytest.mark.parametrize("batches", [1, 3])
def test_a_request_is_its_prompts_and_its_steps(strategy, batches):
    plan = decided(strategy, "request", batches=batches).plan
    turns = batches / batches_together(plan)
    told, work = plan.predicted, plan.workload
    whole = turns * (told.ttft.seconds.mid + work.decode_steps * told.decode.seconds.mid)
    assert told.request is not None and told.request.seconds.mid == pytest.approx(whole)
    assert told.request.seconds.low < whole < told.request.seconds.high


OF = {"request": "for the request", "latency": "a step", "ttft": "for the prompt", "throughput": "for all tokens"}


@pytest.mark.parametrize(
    ("strategy", "batches", "objective"),
    [
        *product(("layer-split", "llama-cpp"), (1, 3), OBJECTIVES),
        ("best", 1, "request"),
        *(pytest.param("best", 1, objective, marks=nightly) for objective in OBJECTIVES if objective != "request"),
        *(pytest.param("best", 3, objective, marks=nightly) for objective in OBJECTIVES),
    ],
)
def test_without_a_proof_the_bound_is_of_the_objective_that_was_asked(strategy, batches, objective):
    decision = decided(strategy, objective, batches=batches)
    plan = decision.plan.model_copy(update={"certificate": None})
    told, work = plan.predicted, plan.workload
    turns = batches // batches_together(plan)
    bound = turns * (told.prefill.lower_bound + work.decode_steps * told.decode.lower_bound)
    bound = {"latency": told.decode.lower_bound, "ttft": told.prefill.lower_bound}.get(objective, bound)
    assert 0.0 < bound <= seconds(decision, objective)
    line = " ".join(explain(replace(decision, drafted=plan)).partition("lower bound  ")[2].split())
    assert line.startswith(f"{format_seconds(bound)} {OF[objective]}")
    assert f"; the plan is {seconds(decision, objective) / bound - 1:.0%} above it" in line
    assert (f" in {turns} turns" in line) == (turns > 1 and objective in ("request", "throughput"))
    tokens = work.output_tokens * batches
    assert (f", at most {tokens / bound:.4g} tokens/s" in line) == (objective == "throughput")


def test_the_default_is_the_request():
    assert build_parser().parse_args(["--model", MODEL, "--hw", MACHINE]).objective == "request"


def test_the_default_plan_is_not_slower_than_all_on_the_accelerator():
    """A model that fits is not divided for steps that are a little faster, at the cost of prompts."""
    work = {"prompt_tokens": 2048, "output_tokens": 256, "context": 2304}
    plans = [decided(name, "request", None, **work) for name in ("best", "optimal", "layer-split")]
    best, *others = (seconds(each, "request") for each in plans)
    assert best <= min(others) * MOST_ABOVE_SIMPLE
    [line] = [line for line in explain(plans[0]).splitlines() if line.startswith("request ")]
    assert "TTFT" in line and "255 steps of" in line


def test_weights_of_phases():
    work = Workload(prompt_tokens=8, output_tokens=5, context=16, batches=4)
    assert phase_weights("request", work, together=1) == {"prefill": 4, "decode": 16}
    assert phase_weights("throughput", work, together=4) == {"prefill": 1, "decode": 4}
    assert phase_weights("latency", work, together=1) == {"decode": 1}
    assert phase_weights("ttft", work, together=1) == {"prefill": 1}
    assert phase_weights("request", work.model_copy(update={"output_tokens": 1}), together=4) == {"prefill": 1}
