"""Read the model, machine and options that a planning question names into the request that holds them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from helmsman.hwdb.compose import compose, override
from helmsman.hwdb.load_hardware import THIS, load_hardware
from helmsman.hwdb.load_model import check_context, load_model
from helmsman.planner.cost.model import CostOptions
from helmsman.planner.cost.rounding import with_rounding
from helmsman.planner.file_formats import formats_for
from helmsman.planner.machine import is_own, without_loopback
from helmsman.planner.options import read_options
from helmsman.planner.prediction.drafts import DraftQuestion
from helmsman.planner.read_routing import routed
from helmsman.planner.registry import FORMER, method, strategy_of
from helmsman.planner.request import PlanRequest, Tell, say_nothing
from helmsman.schemas.base import MAX_COUNT
from helmsman.schemas.errors import UsageError
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.model import Model
from helmsman.schemas.plan_question import PlanQuestion
from helmsman.schemas.read import parse_mapping
from helmsman.schemas.routing import Routing
from helmsman.schemas.workload import Workload

HeldT = TypeVar("HeldT")

MTP = "mtp"
"""The name of a model's own draft head."""

COUNTS = ("prompt_tokens", "output_tokens", "context", "prefix_tokens", "batch", "batches")
"""Fields of a question that make its workload."""


def request_from(
    question: PlanQuestion | Mapping[str, object],
    this: Callable[[], Hardware] | None = None,
    tell: Tell = say_nothing,
    models: Callable[[str], Model] = load_model,
) -> PlanRequest[Any]:
    """Return the request of a question, or of its content as JSON has it.

    `this`: gives the machine at hand, for a machine of this name; `tell`: hears what a search is doing; `models`: reads
    a model that is named. Raises UsageError for names that are not known, options that the strategy does not have and
    lengths that the model has not, BadInputError for a document that is none."""
    held: Mapping[str, object] = {} if isinstance(question, PlanQuestion) else question
    question = question if isinstance(question, PlanQuestion) else read_question(question)
    model = _held(held, "model", Model) or models(question.model)
    strategy = strategy_of(question.engine, question.strategy)
    of = method(strategy)
    workload = workload_of(model, **{name: getattr(question, name) for name in COUNTS})
    named = None if question.routing is None else Path(question.routing)
    routing = _held(held, "routing", Routing) or named
    drafter = _held(held, "draft", Model) or question.draft
    hardware = machine_of(question, this, _held(held, "hardware", Hardware))
    weights, formats = formats_for(question.format, question.model, model, hardware, question.engine, strategy)
    return PlanRequest(
        model,
        hardware if is_own(question.engine) else without_loopback(hardware),
        workload if routing is None else routed(workload, routing, model),
        FORMER.get(strategy, strategy),
        read_options(of.options, question.options, strategy),
        objective=question.objective,
        weights=weights,
        kv=question.kv_format,
        formats=formats,
        prices=CostOptions(question.corrections, question.l3_blend),
        batch=question.batch if isinstance(question.batch, str) else None,
        batches=question.batches if isinstance(question.batches, str) else None,
        drafts=drafts_of(drafter, question.draft_tokens, question.acceptance, models),
        tell=tell,
    )


def drafts_of(
    drafter: Model | str | None,
    tokens: int | None,
    acceptance: float | None,
    models: Callable[[str], Model] = load_model,
) -> DraftQuestion | None:
    """Return how tokens are drafted: by a model, one that is named, or the model's own head (`mtp`); None for no
    drafts. Raises UsageError where something is left out, and what `models` raises."""
    given = {"draft": drafter, "draft_tokens": tokens, "acceptance": acceptance}
    missing = next((name for name, value in given.items() if value is None), None)
    if missing is None:
        assert drafter is not None and tokens is not None and acceptance is not None, "all are given"
        named = drafter if isinstance(drafter, Model) else None if drafter == MTP else models(drafter)
        return DraftQuestion(tokens, acceptance, named)
    if any(value is not None for value in given.values()):
        remedy = "give `draft`, `draft_tokens` and `acceptance`, or none of them"
        raise UsageError("drafts are stated in part", field=missing, remedy=remedy)
    return None


def _held(question: Mapping[str, object], name: str, kind: type[HeldT]) -> HeldT | None:
    """The model, the machine or the routing itself, where the question holds that and not its name."""
    value = question.get(name)
    return value if isinstance(value, kind) else None


def read_question(question: Mapping[str, object]) -> PlanQuestion:
    """Return the question of its content as JSON has it; paths, models, machines and routings may stand for
    their names.

    Raises UsageError for what is no such content, BadInputError for a document that is none."""

    def name(value: object) -> str:
        if isinstance(value, Model | Hardware):
            return value.name
        if isinstance(value, Routing):
            return value.model
        if isinstance(value, Path):
            return str(value)
        raise TypeError(f"{type(value).__name__} is nothing that JSON has")

    return parse_mapping(PlanQuestion, question, "plan question", "{'model': NAME, 'hardware': NAME}", name)


def machine_of(
    question: PlanQuestion, this: Callable[[], Hardware] | None = None, held: Hardware | None = None
) -> Hardware:
    """Return the machine of a question, or the one that is `held`, with the memory that a plan may use and the
    precision of activations."""
    named = question.hardware
    if held is not None:
        hardware = held
    elif isinstance(named, str):
        hardware = this() if this is not None and named == THIS else load_hardware(named, None)
    else:
        hardware = compose(named.gpu, named.cpu, named.ram, named.link, named.peer, named.memory)
    return with_rounding(override(hardware, question.vram_available, question.ram_available), question.activations)


def workload_of(
    model: Model,
    *,
    prompt_tokens: int,
    output_tokens: int,
    context: int | None,
    prefix_tokens: int,
    batch: int | str,
    batches: int | str,
) -> Workload:
    """Return the workload of a question; a batch that is to be chosen is 1. Raises UsageError for lengths that make no
    sense or that the model has not."""
    given = {"prompt_tokens": prompt_tokens, "output_tokens": output_tokens, "batch": batch, "batches": batches}
    for name, value in {**given, "context": context}.items():
        if isinstance(value, int) and not 1 <= value <= MAX_COUNT:
            raise UsageError(f"must be between 1 and {MAX_COUNT}", field=name, value=value)
    needed = prompt_tokens + output_tokens
    context = context or needed
    if context < needed:
        problem = f"is shorter than prompt + output ({needed} tokens)"
        raise UsageError(problem, field="context", value=context, remedy=f"use `context` {needed} or more")
    check_context(model, context)
    if not 0 <= prefix_tokens < prompt_tokens:
        problem = "leaves nothing to compute"
        remedy = f"use 0 to {prompt_tokens - 1} of the {prompt_tokens} tokens of a prompt"
        raise UsageError(problem, field="prefix_tokens", value=prefix_tokens, remedy=remedy)
    return Workload(
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        batch=1 if isinstance(batch, str) else batch,
        batches=1 if isinstance(batches, str) else batches,
        prefix_tokens=prefix_tokens,
        context=context,
    )
