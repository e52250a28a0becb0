"""What a plan can serve under a study's SLO: the most requests a second, users who think, and replicas for a rate."""

from collections.abc import Callable
from typing import Any

from helmsman import library
from helmsman.schemas.errors import InfeasibleError
from helmsman.schemas.plan import Plan
from helmsman.schemas.study import StudyServing

Values = dict[str, Any]


def served(plan: Plan, serving: StudyServing, slo: str, policy: str) -> Values:
    """Return the columns that say what is served, 0 where nothing keeps the SLO, and then why. Raises UsageError and
    BadInputError for requests, policies and times that are none."""
    question = {
        "requests": serving.requests,
        "policy": policy,
        "slo": slo,
        "seed": serving.seed,
        "arrivals": serving.arrivals,
        "limit": serving.limit,
    }
    question = {name: value for name, value in question.items() if value is not None}
    values = _or_none(lambda: _rate(plan, question), {"rate": 0.0})
    if serving.think is not None:
        users = {name: value for name, value in question.items() if name != "arrivals"}
        values |= _or_none(lambda: _users(plan, {**users, "think": serving.think}), {"users": 0})
    if serving.rate is not None and values["rate"]:
        values |= _or_none(lambda: _replicas(plan, {**question, "rate": serving.rate}), {})
    return values


def _rate(plan: Plan, question: Values) -> Values:
    capacity = library.find_capacity(plan, question)
    report = library.serve_simulation(plan, {**question, "rate": capacity.rate})
    return {
        "rate": capacity.rate,
        "rate_low": capacity.low,
        "rate_high": capacity.high,
        "converged": capacity.converged,
        "served_tokens": report.throughput.output_tokens,
    }


def _users(plan: Plan, question: Values) -> Values:
    return {"users": library.find_users(plan, question).count}


def _replicas(plan: Plan, question: Values) -> Values:
    return {"replicas": library.find_replicas(plan, question).count}


def _or_none(answer: Callable[[], Values], none: Values) -> Values:
    """Return an answer, or `none` and why where nothing keeps the SLO."""
    try:
        return answer()
    except InfeasibleError as error:
        return {**none, "missing": str(error)}
