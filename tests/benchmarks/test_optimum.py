"""The benchmark of `optimal`: what counts as worse, won and refuted, and that its questions can be asked."""

import random

import pytest
from benchmarks.optimum import RIVALS, Answer, Case, Question, drawn

from helmsman.hwdb.load_model import load_model
from helmsman.planner.decide import decide
from helmsman.schemas.plan import Certificate

QUESTION = Question("opt-125m", "rtx4060-laptop", 128, 32, 1, "latency")


def case(ours: float | None, bound: float, **others: float) -> Case:
    proof = None
    if ours is not None:
        proof = Certificate(objective="decode step", seconds=ours, lower_bound=bound, gap=ours / bound - 1, ways=1)
    answers = {name: Answer(name, seconds, seconds) for name, seconds in others.items()}
    return Case(0, QUESTION, None if ours is None else Answer("optimal", ours, ours), answers, proof, 0.0)


@pytest.mark.parametrize(
    ("found", "worse", "won", "refuted"),
    [
        (case(1.0, 1.0, hetegen=1.0, flexgen=2.0), False, False, False),
        (case(1.0, 0.9, hetegen=1.1), False, True, False),
        (case(1.0, 0.9, hetegen=0.95, flexgen=2.0), True, False, False),
        (case(1.0, 0.98, hetegen=0.95), True, False, True),
        (case(None, 1.0, flexgen=2.0), True, False, False),
        (case(1.0, 1.0), False, False, False),
    ],
)
def test_what_a_case_counts_as(found: Case, worse: bool, won: bool, refuted: bool) -> None:
    assert (found.worse, found.won, found.refuted) == (worse, won, refuted)


def test_every_plan_that_is_faster_is_named() -> None:
    text = "\n".join(case(1.0, 0.9, hetegen=0.95, flexgen=2.0).lost())
    assert "hetegen" in text and "flexgen" not in text


def test_questions_fit_the_context_of_their_model() -> None:
    for number in range(200):
        question = drawn(random.Random(number))
        assert 128 <= question.prompt <= 2048
        assert question.prompt + question.output <= load_model(question.model).max_context


def test_every_strategy_is_asked_under_the_same_software() -> None:
    asked = ("llama-cpp", "op-split --fused-attention")
    plans = {name: decide(QUESTION.request(*RIVALS[name])).plan for name in asked}
    assert plans["llama-cpp"].strategy.options["same_software"] is True
    assert plans["op-split --fused-attention"].strategy.options["fused_attention"] is True
