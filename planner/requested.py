"""From a planning question, which names a model, a machine and options, to the request that holds them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from helmsman.hwdb.compose import compose, override
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import check_context, load_model
from helmsman.planner.costs import CostOptions
from helmsman.planner.file_formats import resolve_formats
from helmsman.planner.options import read_options
from helmsman.planner.registry import method
from helmsman.planner.request import PlanRequest, Tell, say_nothing
from helmsman.planner.rounding import with_rounding
from helmsman.schemas.errors import UsageError
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.model import Model
from helmsman.schemas.plan_question import PlanQuestion
from helmsman.schemas.read import parse_document
from helmsman.schemas.workload import Workload


def request_from(
    question: PlanQuestion | Mapping[str, object], profiles: Path | None = None, tell: Tell = say_nothing
) -> PlanRequest[Any]:
    """Return the request of a question, or of its content as JSON has it.

    `profiles`: the folder in which profiles of the machine at hand are kept, for `this`; `tell`: hears what a search is
    doing. Raises UsageError for names that are not known, options that the strategy does not have and lengths that the
    model has not, BadInputError for a document that is none."""
    if not isinstance(question, PlanQuestion):
        question = parse_document(PlanQuestion, json.dumps(dict(question), default=str).encode(), "plan question")
    model = load_model(question.model)
    of = method(question.strategy)
    weights, formats = resolve_formats(question.format, question.model, model)
    return PlanRequest(
        model,
        machine_of(question, profiles),
        workload_of(question, model),
        question.strategy,
        read_options(of.options, question.options, question.strategy),
        objective=question.objective,
        weights=weights,
        kv=question.kv_format,
        formats=formats,
        prices=CostOptions(question.corrections, question.l3_blend),
        batch=question.batch if isinstance(question.batch, str) else None,
        batches=question.batches if isinstance(question.batches, str) else None,
        tell=tell,
    )


def machine_of(question: PlanQuestion, profiles: Path | None = None) -> Hardware:
    """Return the machine of a question, with the memory that a plan may use and the precision of activations."""
    named = question.hardware
    if isinstance(named, str):
        hardware = load_hardware(named, profiles)
    else:
        hardware = compose(named.gpu, named.cpu, named.ram, named.link, named.peer)
    return with_rounding(override(hardware, question.vram_available, question.ram_available), question.activations)


def workload_of(question: PlanQuestion, model: Model) -> Workload:
    """Return the workload of a question; what is to be chosen is 1. Raises UsageError."""
    needed = question.prompt_tokens + question.output_tokens
    context = question.context or needed
    if context < needed:
        problem = f"is shorter than prompt + output ({needed} tokens)"
        raise UsageError(problem, field="context", value=context, remedy=f"use {needed} or more")
    check_context(model, context)
    if question.prefix_tokens >= question.prompt_tokens:
        remedy = f"use 0 to {question.prompt_tokens - 1} of the {question.prompt_tokens} tokens of a prompt"
        raise UsageError(
            "leaves nothing to compute", field="prefix_tokens", value=question.prefix_tokens, remedy=remedy
        )
    return Workload(
        prompt_tokens=question.prompt_tokens,
        output_tokens=question.output_tokens,
        batch=1 if isinstance(question.batch, str) else question.batch,
        batches=1 if isinstance(question.batches, str) else question.batches,
        prefix_tokens=question.prefix_tokens,
        context=context,
    )
