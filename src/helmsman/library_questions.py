"""Reads what callers of the library give: plans, questions about them, strategies to compare, numbers of draws."""

from collections.abc import Mapping, Sequence
from typing import Any

from helmsman.models_here import model_place
from helmsman.planner.decision import Decision
from helmsman.planner.read_request import request_from
from helmsman.planner.registry import FORMER, OWN, method
from helmsman.planner.request import PlanRequest
from helmsman.planner.settings.settings_format import settings_format
from helmsman.schemas.errors import UsageError
from helmsman.schemas.plan import Plan
from helmsman.schemas.plan_question import PlanQuestion
from helmsman.schemas.read import parse_mapping
from helmsman.schemas.serving_question import ServingQuestion
from helmsman.this_machine import this_machine

Asked = PlanRequest[Any] | PlanQuestion | Mapping[str, object]
"""A request, or a question as `PlanQuestion` or JSON has it; a model and a machine may stand for their names."""
AskedServing = ServingQuestion | Mapping[str, object]
"""A question about serving, or its content as JSON has it."""

MOST_SEEDS = 1000


def given_plan(plan: Plan | Decision) -> Plan:
    """Return the plan of a decision, or a plan itself. Raises UsageError for anything else."""
    plan = plan.plan if isinstance(plan, Decision) else plan
    if not isinstance(plan, Plan):
        raise UsageError("not a plan", value=plan, remedy="give a Plan, or the Decision that has it")
    return plan


def serving_question(question: AskedServing) -> ServingQuestion:
    """Return a question about serving. Raises UsageError for what is none."""
    if isinstance(question, ServingQuestion):
        return question
    return parse_mapping(ServingQuestion, question, "serving question", "{'requests': FILE or 'synthetic:..'}", str)


def checked_seeds(seeds: int | None) -> int | None:
    """Return a number of draws. Raises UsageError for what is none."""
    if seeds is None:
        return None
    if isinstance(seeds, bool) or not isinstance(seeds, int) or not 1 <= seeds <= MOST_SEEDS:
        raise UsageError(f"must be between 1 and {MOST_SEEDS}", field="seeds", value=seeds)
    return seeds


def compared_names(strategies: Sequence[str] | None) -> tuple[str, ...]:
    """Return the strategies to compare, each once. Raises UsageError for those that are none, and for fewer than
    two."""
    if isinstance(strategies, str) or not isinstance(strategies, Sequence | None):
        raise UsageError("not several names", field="strategies", value=strategies, remedy="give a list of names")
    names = OWN if strategies is None else tuple(dict.fromkeys(FORMER.get(str(name), str(name)) for name in strategies))
    for name in names:
        method(name)
    if len(names) < 2:
        raise UsageError("several strategies are compared", field="strategies", value=list(names), remedy="use plan()")
    return names


def named_engine(question: Asked) -> str | None:
    """Return the engine that a question names; None where it names none."""
    engine = question.get("engine") if isinstance(question, Mapping) else getattr(question, "engine", None)
    return None if engine is None else str(engine)


def given_request(question: Asked) -> PlanRequest[Any]:
    """Return the request of a question, on this machine where it names that."""
    if isinstance(question, PlanRequest):
        return question
    return request_from(with_model_place(question), this_machine)


def with_model_place(question: PlanQuestion | Mapping[str, object]) -> PlanQuestion | Mapping[str, object]:
    """Return a question with the path of its model where that is one on the disk."""
    if isinstance(question, PlanQuestion):
        return question.model_copy(update={"model": model_place(question.model)})
    name = question.get("model") if isinstance(question, Mapping) else None
    return {**question, "model": model_place(name)} if isinstance(name, str) else question


def with_settings_format(question: Asked, text: str) -> tuple[Asked, str | None]:
    """Return a question about settings with the format of weights that these state in the name of what they run, and
    that format; as it is, and None, where they state none or the question has one."""
    if isinstance(question, PlanRequest):
        return question, None
    stated: str | None = None
    if isinstance(question, Mapping):
        model, chosen = question.get("model"), question.get("format")
    else:
        model, chosen = question.model, question.format
    if chosen is None and isinstance(model, str):
        stated = settings_format(text, model_place(model))
    if stated is None:
        return question, None
    more = {"format": stated}
    return ({**question, **more} if isinstance(question, Mapping) else question.model_copy(update=more)), stated
