"""A planning question to the planner service: names of the catalogue, or documents themselves, and never a file of the
server."""

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from helmsman.schemas.base import Frozen, Name, Words, version
from helmsman.schemas.formats import WeightsFormat
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.model import Model
from helmsman.schemas.plan_question import FORMAT_NAMES, ComposedMachine, PlanningQuestion, Value
from helmsman.schemas.routing import Routing

MOST_CHANGES = 64
"""The number of changes of one machine: there are seven kinds, and a figure may be changed again."""


def _model_form(value: object) -> str | None:
    """Return the form in which a model is given; None for what is neither."""
    if isinstance(value, str):
        return "(name)"
    return "(document)" if isinstance(value, dict | Model) else None


def _machine_form(value: object) -> str | None:
    """Return the form in which a machine is given; None for what is none of them."""
    if isinstance(value, str):
        return "(name)"
    if isinstance(value, ChangedMachine) or (isinstance(value, dict) and "base" in value):
        return "(changed)"
    return _part_form(value)


_PARTS = frozenset({"cpu", "gpu", "ram"})
"""Fields that no document of a machine has, one of which parts have."""


def _part_form(value: object) -> str | None:
    """Return the form of a machine as it is: parts name some, documents have a schema."""
    if isinstance(value, str):
        return "(name)"
    if isinstance(value, ComposedMachine) or (isinstance(value, dict) and value.keys() & _PARTS):
        return "(parts)"
    return "(document)" if isinstance(value, dict | Hardware) else None


ModelChoice = Annotated[
    Annotated[Name, Tag("(name)")] | Annotated[Model, Tag("(document)")],
    Discriminator(_model_form, "choice_type", "neither a name nor a Model document"),
]
"""A name of the catalogue, or a Model document."""

PlainMachine = Annotated[
    Annotated[Name, Tag("(name)")]
    | Annotated[ComposedMachine, Tag("(parts)")]
    | Annotated[Hardware, Tag("(document)")],
    Discriminator(_part_form, "choice_type", "neither a name nor parts nor a Hardware document"),
]
"""A name of the catalogue, parts, or a Hardware document."""


class ChangedMachine(Frozen):
    """A machine after `changes`, one after the other: `vram=12GB`, `dram_bw=x1.5`, `link=pcie4x8`, `+1 gpu`, and the
    like, as helm-whatif reads them."""

    base: PlainMachine
    changes: Annotated[tuple[Words, ...], Field(min_length=1, max_length=MOST_CHANGES)]


MachineChoice = Annotated[
    Annotated[Name, Tag("(name)")]
    | Annotated[ComposedMachine, Tag("(parts)")]
    | Annotated[Hardware, Tag("(document)")]
    | Annotated[ChangedMachine, Tag("(changed)")],
    Discriminator(_machine_form, "choice_type", "neither a name nor parts nor a Hardware document nor a changed one"),
]
"""A name of the catalogue, parts, a Hardware document, or one of these with something changed."""


class PlannerQuestion(PlanningQuestion):
    """Asks for a plan, with the fields of a `helm.plan-question/1`, with a model, a machine and a routing of experts
    that no file has to be read for. A record of `helm-profile` goes into `hardware`, a file of `helm-fit-routing` into
    `routing` as it is."""

    schema_id: Literal["helm.planner-question/1"] = version("helm.planner-question/1")
    model: ModelChoice
    hardware: MachineChoice
    format: Annotated[WeightsFormat | None, FORMAT_NAMES] = None
    routing: Routing | None = None
    options: Annotated[dict[Name, Value], Field(max_length=64)] = Field(default_factory=dict)
