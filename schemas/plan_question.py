"""A planning question as a document: a model and a machine by name, a workload, formats, and a strategy with its
options; and the fields that every planning question has."""

from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from helmsman.schemas.base import Bytes, Count, Document, Frozen, Index, Name, Positive, mistake, version
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import KvFormat, Precision, WeightsFormat, format_named
from helmsman.schemas.objective import DEFAULT_OBJECTIVE, Objective
from helmsman.schemas.units import parse_capacity, parse_rate

Place = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00-\x1f]+$")]
"""A name, or the path of a file or a folder."""

Value = Annotated[str, Field(max_length=4096, pattern=r"^[^\x00-\x1f]*$")] | bool | int | float | None
"""The value that an option of a strategy may have."""


def _format_named(value: object) -> object:
    """Return the format that a name of it, `Q4_K_M` or `FP16`, stands for; what is no text, as it is."""
    return format_named(value) if isinstance(value, str) else value


FORMAT_NAMES = BeforeValidator(_format_named)
"""Lets a format be given by any of its names."""


def _quantity(parse: Callable[[str, str], float]) -> Callable[[object], object]:
    """Return what reads a number with a unit by `parse`; it leaves what is no text as it is."""

    def read(value: object) -> object:
        try:
            return parse(value, "") if isinstance(value, str) else value
        except UsageError as error:
            raise mistake(error.message, error.remedy or "", value=value) from None

    return read


Quantity = Annotated[str, Field(min_length=1, max_length=100)]
"""A number with its unit, as `64GB` or `56GB/s`."""


class ComposedMachine(Frozen):
    """A machine made of listed parts. `gpu`, `cpu`: a name, or `2x NAME`, and either of them for a chip that has both
    and no slot for a card (Apple's); `ram`: bytes, or with a unit, `64GB`; `link` of each GPU, by default the best that
    both ends can do; `peer`: bytes/s a direction between every two GPUs, or with a unit, `56GB/s`, by default those of
    NVLink or Infinity Fabric of SXM and OAM cards, of others through host memory; `memory`: its kind and filled
    channels, `DDR5-5600` or `2x DDR5-5600`, by default the CPU's own, all filled, which may be far off."""

    cpu: Name | None = None
    ram: Annotated[Bytes, BeforeValidator(_quantity(parse_capacity), json_schema_input_type=Bytes | Quantity)]
    gpu: Name | None = None
    link: Name | None = None
    peer: Annotated[
        Positive | None, BeforeValidator(_quantity(parse_rate), json_schema_input_type=Positive | Quantity | None)
    ] = None
    memory: Name | None = None

    @model_validator(mode="before")
    @classmethod
    def _known(cls, value: object) -> object:
        """Raise a mistake for a part that there is not."""
        unknown = (
            next((name for name in value if name not in cls.model_fields), None) if isinstance(value, dict) else None
        )
        if unknown is not None:
            raise mistake("no part of a machine", f"use {', '.join(cls.model_fields)}", field=unknown)
        return value


def _machine_form(value: object) -> str | None:
    """Return the form in which a machine is given; None for what is none of them."""
    if isinstance(value, str):
        return "(name)"
    return "(parts)" if isinstance(value, dict | ComposedMachine) else None


MachinePlace = Annotated[
    Annotated[Place, Tag("(name)")] | Annotated[ComposedMachine, Tag("(parts)")],
    Discriminator(_machine_form, "choice_type", "neither a name nor parts"),
]
"""A known machine, a record's file, or parts."""


class PlanningQuestion(Document):
    """Holds the fields of a planning question in whatever document, which says in what form `model`, `hardware` and
    `format` are given. Only documents made of it are read."""

    schema_id: str
    model: object
    hardware: object
    vram_available: Bytes | None = None
    ram_available: Bytes | None = None
    activations: Literal["auto"] | Precision = "auto"
    prompt_tokens: Count = 128
    output_tokens: Count = 128
    context: Count | None = None
    prefix_tokens: Index = 0
    batch: Count | Literal["max", "best"] = 1
    batches: Count | Literal["best"] = 1
    format: str | None = None
    kv_format: Annotated[KvFormat, FORMAT_NAMES] = "f16"
    engine: Name | None = None
    strategy: Name = "best"
    options: dict[Name, Value] = Field(default_factory=dict)
    objective: Objective = DEFAULT_OBJECTIVE
    corrections: bool = True
    l3_blend: bool = False


class PlanQuestion(PlanningQuestion):
    """What is to be planned. `model`: a catalogue name, a checkpoint's directory, a GGUF file or a document;
    `hardware`: a known machine, a record's file, `this` for the machine at hand, as profiled or as found, or parts.

    `vram_available`, `ram_available`: bytes of each accelerator's memory and of the host's that a plan may use;
    `context`: tokens that caches hold, by default prompt and output; `batch`: sequences that advance together, `max`:
    as many as fit, `best`: as many as make the most tokens/s; `format`: of weights, `native` as a GGUF file has them, a
    mixture as llama.cpp's files of its name have it, by default native for such files, for models that were released in
    quantised weights (llama.cpp plans those of which GGUF files have the type) and, where no GPU computes, for
    checkpoints in bf16, f16 for others; Helm also reads `Q4_K_M` and `FP16`, which the schema does not list; `routing`:
    a file that says which experts tokens choose, by default all alike; `draft`: what drafts tokens, `mtp` for the
    model's own head or a smaller model, of which every step verifies `draft_tokens`, each accepted with probability
    `acceptance` once those before it were; `engine`: whose speed is predicted, and whose placements are planned, by
    default our own executor's; `options`: of the strategy, by name; `corrections` off: efficiencies 1 and overheads 0;
    `l3_blend`: L3 bandwidth is blended into reads of caches (HELM's eq 4.14)."""

    schema_id: Literal["helm.plan-question/1"] = version("helm.plan-question/1")
    model: Place
    hardware: MachinePlace
    format: Annotated[Literal[WeightsFormat, "native"] | None, FORMAT_NAMES] = None
    routing: Place | None = None
    draft: Place | None = None
    draft_tokens: Count | None = None
    acceptance: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
