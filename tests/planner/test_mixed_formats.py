"""Questions with several formats of weights: a search is asked about each, until one of its plans is proven."""

from dataclasses import replace
from typing import Any

import pytest

from helmsman.planner.decision import Decision
from helmsman.planner.mixed_formats import ENOUGH, decide_mixed, format_sizes
from helmsman.planner.read_request import request_from
from helmsman.planner.registry import method
from helmsman.planner.request import PlanRequest
from helmsman.schemas.plan import Plan

QUESTION = {"model": "Qwen3-14B", "hardware": "rtx4090-7950x", "format": "q4_k_m", "strategy": "optimal"}


def with_gap(decision: Decision, gap: float) -> Decision:
    """Return a decision whose proof leaves so much."""
    certificate = decision.plan.certificate
    assert certificate is not None
    bound = certificate.seconds / (1 + gap)
    other = certificate.model_copy(update={"gap": gap, "lower_bound": bound})
    return replace(decision, drafted=decision.plan.model_copy(update={"certificate": other}))


@pytest.mark.parametrize(("gap", "asked"), [(ENOUGH / 2, 1), (2 * ENOUGH, 2)])
def test_other_formats_are_not_asked_about_once_a_plan_is_proven(gap: float, asked: int) -> None:
    request = request_from(QUESTION)
    formats = tuple(format_sizes(request.model, request.formats))
    assert formats == ("q4_k", "q6_k")
    answered = method("optimal").decide(request)
    tried: list[str] = []

    def decide(one: PlanRequest[Any]) -> Decision:
        tried.append(one.weights)
        return with_gap(answered, gap)

    decision = decide_mixed(request, decide)
    assert tried == list(formats[:asked]) and isinstance(decision.drafted, Plan)
