"""Plan: where things live and where work happens. Everything else is derived by `lowering`."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from helmsman.schemas.base import Bytes, Count, Document, Frozen, Index, Name, NonNegative, Sha256, mistake, version
from helmsman.schemas.formats import Format
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.model import Model
from helmsman.schemas.workload import Workload

# What is computed from bounded inputs may exceed their bounds, and must still have a number to be refused with.
Total = Annotated[int, Field(ge=0)]
Derived = Annotated[float, Field(ge=0.0)]


class LayerRange(Frozen):
    """Blocks start <= layer < stop."""

    start: Index
    stop: Index


class Select(Frozen):
    """Which tensors (or operations): a glob over their names, and optionally a range of blocks.

    Names without a layer: `embedding`, `positions`, `final_norm`, `head`; in a block: `q`, `attention`, ...
    A selector with `layers` matches only what belongs to a block."""

    names: Name = "*"
    layers: LayerRange | None = None


class Residence(Frozen):
    """Weights matching `select` live in `memory`, stored as `format`."""

    select: Select
    memory: Name
    format: Format


class KvRule(Frozen):
    """The KV cache of the selected blocks lives in `memory`, stored as `format`."""

    select: Select
    memory: Name
    format: Format


class ComputeRule(Frozen):
    """Operations matching `select` run on `device`; `phase` narrows the rule to one phase."""

    select: Select
    device: Name
    phase: Literal["prefill", "decode"] | None = None


class Schedule(Frozen):
    """How an iteration is ordered. `prefetch`: transfers that may run ahead of their operation."""

    order: Literal["layer-major"] = "layer-major"
    overlap: Literal["none", "next-layer"] = "none"
    prefetch: Index = 0


class Strategy(Frozen):
    """The method that made the plan and its options."""

    name: Name
    options: dict[Name, str | int | float | bool] = Field(default_factory=dict)


class Interval(Frozen):
    """A prediction: 5th percentile, median, 95th percentile."""

    low: Derived
    mid: Derived
    high: Derived

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.low <= self.mid <= self.high:
            numbers = f"{self.low}, {self.mid}, {self.high}"
            raise mistake(f"low, mid and high are out of order: {numbers}", "write them with low <= mid <= high")
        return self


class Term(Frozen):
    """One summand of a prediction: all tasks of one operation kind on one resource."""

    op: Name
    resource: Name
    tasks: Count
    seconds: Interval
    bytes: Total
    flops: Derived
    bound: Literal["memory", "compute", "launch", "link", "overhead"]
    source: Name = Field(description="measured, fitted, paper, datasheet, class, assumed")


class PhasePrediction(Frozen):
    """Seconds of one pass (prefill: the prompt; decode: one step at `context`) and what they are made of."""

    context: Count
    seconds: Interval
    terms: tuple[Term, ...]
    bottleneck: Name
    lower_bound: Derived = Field(description="seconds no placement on this hardware can beat")
    gap: Derived = Field(description="seconds.mid / lower_bound - 1")


class Seconds(Frozen):
    """A prediction of a duration."""

    seconds: Interval


class MemoryUse(Frozen):
    """Bytes a plan needs in one memory against what it may use."""

    memory: Name
    weights: Total
    kv: Total
    buffers: Total
    available: Bytes

    @property
    def used(self) -> int:
        """All bytes together."""
        return self.weights + self.kv + self.buffers


class Predicted(Frozen):
    """What the cost model expects of the plan."""

    prefill: PhasePrediction
    decode: PhasePrediction
    ttft: Seconds
    tokens_per_second: Interval = Field(description="decode tokens per second, all sequences together")
    memory: tuple[MemoryUse, ...]


class Evidence(Frozen):
    """A hardware number that the prediction used."""

    what: Name
    value: NonNegative
    source: Name


class Plan(Document):
    """A self-contained placement: model, hardware, workload, rules (first match wins), prediction."""

    byte_limit: ClassVar[int] = 16 * 2**20
    schema_id: Literal["helm.plan/1"] = version("helm.plan/1")
    label: Name
    model: Model
    model_sha256: Sha256
    hardware: Hardware
    hardware_sha256: Sha256
    workload: Workload
    workload_sha256: Sha256
    strategy: Strategy
    residence: Annotated[tuple[Residence, ...], Field(min_length=1, max_length=256)]
    kv: Annotated[tuple[KvRule, ...], Field(min_length=1, max_length=256)]
    compute: Annotated[tuple[ComputeRule, ...], Field(min_length=1, max_length=256)]
    activations: Format = Field(default="f16", description="format of hidden states that cross a link")
    schedule: Schedule = Schedule()
    predicted: Predicted
    evidence: tuple[Evidence, ...] = ()
