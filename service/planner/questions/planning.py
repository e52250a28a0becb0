"""A planner question as the request that the planner takes."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from helmsman.hwdb.compose import compose
from helmsman.hwdb.edits import edited
from helmsman.planner.file_formats import DEFAULT
from helmsman.planner.options import options_of
from helmsman.planner.read_request import request_from
from helmsman.planner.registry import method, strategy_of
from helmsman.planner.request import PlanRequest
from helmsman.schemas.errors import UsageError
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.model import Model
from helmsman.schemas.plan_question import ComposedMachine
from helmsman.schemas.planner_question import ChangedMachine, PlannerQuestion
from helmsman.service.planner.questions.catalogue import Catalogue

Machine = str | ComposedMachine | Hardware | ChangedMachine
"""A machine as a question gives it."""

_HELD = {"schema_id", "model", "hardware", "routing"}


def request_of(question: PlannerQuestion, catalogue: Catalogue) -> PlanRequest[Any]:
    """Return the request of a question. Raises UsageError for names and options that there are not, and for options
    that name files; BadInputError for a model that is not covered."""
    check_no_files(strategy_of(question.engine, question.strategy), question.options)
    given = question.model_dump(exclude=_HELD, exclude_none=True)
    # A format is always named: without one, the planner would look for a file that is called as the model is.
    given |= {"format": question.format or DEFAULT}
    model, hardware = model_of(question.model, catalogue), machine_of(question.hardware, catalogue)
    if question.routing is not None:
        given["routing"] = question.routing
    return request_from({**given, "model": model, "hardware": hardware})


def model_of(choice: str | Model, catalogue: Catalogue) -> Model:
    """Return the model that a question gives."""
    return catalogue.model(choice) if isinstance(choice, str) else choice


def machine_of(choice: Machine, catalogue: Catalogue) -> Hardware:
    """Return the machine that a question gives. Raises UsageError for parts and changes that make no sense."""
    if isinstance(choice, str):
        return catalogue.machine(choice)
    if isinstance(choice, ComposedMachine):
        return compose(choice.gpu, choice.cpu, choice.ram, choice.link, choice.peer, choice.memory)
    if isinstance(choice, ChangedMachine):
        return edited(machine_of(choice.base, catalogue), ",".join(choice.changes))
    return choice


def check_no_files(strategy: str, options: Mapping[str, object]) -> None:
    """Raise UsageError for an option of a strategy that names a file."""
    given = [name for name, value in options.items() if value is not None]
    named = next((name for name in given if name in file_options([strategy])), None)
    if named is not None:
        remedy = "leave it out: a question to this service names no files"
        raise UsageError("names a file of the server", field=f"options.{named}", remedy=remedy)


def file_options(strategies: Iterable[str]) -> set[str]:
    """Return the names of options of strategies that are paths. Raises UsageError for a strategy that there is not."""
    return {
        field.name for name in strategies for field, known in options_of(method(name).options) if known.parse is Path
    }
