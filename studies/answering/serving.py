"""Asks how much a plan can serve under a study's SLO: the most requests a second, users who think, and replicas for a
rate."""

from collections.abc import Callable
from typing import Any

from helmsman import library
from helmsman.schemas.errors import InfeasibleError
from helmsman.schemas.plan import Plan
from helmsman.schemas.study import StudyServing
from helmsman.simulator.serving.bisection import NothingMissesError
from helmsman.studies.questions.points import StudyPoint

Columns = dict[str, Any]
"""Values of a row by column."""


def served(plan: Plan, serving: StudyServing, point: StudyPoint) -> Columns:
    """Return the columns that say what is served: 0 and why where nothing keeps the SLO; where nothing misses it, what
    was reached, as not settled. Raises UsageError and BadInputError for requests, policies and times that are none."""
    question = {
        "requests": point.served.requests,
        "policy": point.served.policy,
        "slo": point.slo,
        "seed": serving.seed,
        "arrivals": serving.arrivals,
        "limit": serving.limit,
    }
    question = {name: value for name, value in question.items() if value is not None}
    columns = _limited("rate", lambda: _rate(plan, question))
    columns["served_tokens"] = _tokens(plan, question, columns["rate"])
    if point.served.think is not None:
        loop = {name: value for name, value in question.items() if name != "arrivals"}
        loop["think"] = point.served.think
        columns |= _limited("users", lambda: _users(plan, loop))
        if point.served.target_users is not None and columns["users"]:
            columns |= _limited("replicas", lambda: _replicas(plan, {**loop, "users": point.served.target_users}))
    if point.served.target_rate is not None and columns["rate"]:
        columns |= _limited("replicas", lambda: _replicas(plan, {**question, "rate": point.served.target_rate}))
    return columns


def _rate(plan: Plan, question: Columns) -> Columns:
    capacity = library.find_capacity(plan, question)
    settled = capacity.converged
    return {"rate": capacity.rate, "rate_low": capacity.low, "rate_high": capacity.high, "rate_settled": settled}


def _users(plan: Plan, question: Columns) -> Columns:
    count = library.find_users(plan, question)
    return {"users": count.count, "users_low": count.low, "users_high": count.high, "users_settled": count.converged}


def _replicas(plan: Plan, question: Columns) -> Columns:
    count = library.find_replicas(plan, question)
    return {"replicas": count.count, "replicas_settled": count.converged}


def _limited(name: str, answer: Callable[[], Columns]) -> Columns:
    """Return an answer, or what there is where the SLO is always kept or never."""
    try:
        return answer()
    except NothingMissesError as error:
        reached = error.most if name == "rate" else round(error.most)
        return {name: reached, f"{name}_settled": False, "missing": f"at least so many: {error}"}
    except InfeasibleError as error:
        return {name: None if name == "replicas" else 0, "missing": str(error)}


def _tokens(plan: Plan, question: Columns, rate: float) -> float:
    """Return output tokens a second at a rate: as many as requests have on average."""
    if not rate:
        return 0.0
    throughput = library.serve_simulation(plan, {**question, "rate": rate}).throughput
    return rate * throughput.output_tokens / throughput.requests if throughput.requests else 0.0
