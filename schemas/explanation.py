"""Explanation: why a plan is as fast as it is, what more of each thing would be worth, what each of its rules is."""

from typing import Annotated, Literal

from pydantic import Field

from helmsman.schemas.base import Count, Derived, Document, Frozen, Name, Positive, Sha256, version

Share = Annotated[float, Field(ge=-10.0, le=10.0)]
Signed = Annotated[float, Field(ge=-1e24, le=1e24)]


Unit = Literal["GB", "GB/s", "core", "TFLOP/s"]


class Part(Frozen):
    """A share of the seconds of a phase that belongs to something."""

    name: Name
    share: Share


class Phase(Frozen):
    """What binds a phase. `seconds`: of one pass where blocks and rows may be divided; `counted`: how often they are in
    the objective (0: they are only limited).

    `lanes`: what is busy throughout, by the share of the price it has; `rates`: the part of the seconds that shrinks
    with each rate of the machine, the rest being latencies and launches."""

    phase: Literal["prefill", "decode"]
    seconds: Derived
    counted: Derived
    lanes: tuple[Part, ...]
    rates: tuple[Part, ...]


class Worth(Frozen):
    """Tokens/s that one unit more gains, or one less costs: by the prices of the solution (`price`), and by solving
    again with a change of `step`, as a share of what there is (`again`)."""

    price: Signed
    again: Signed
    step: Positive


class ShadowPrice(Frozen):
    """What a unit of something is worth. `size`: how many units there are; `more`, `less` (absent: then nothing fits):
    one unit more, and one less; `kinked`: whether they differ."""

    what: Literal["capacity", "memory bandwidth", "link bandwidth", "cores", "arithmetic"]
    name: Name
    unit: Unit
    size: Derived
    more: Worth | None = None
    less: Worth | None = None
    kinked: bool


class Undone(Frozen):
    """A rule of the plan, and the best plan without it: its label and how many more seconds of the objective it takes.
    Absent: nothing fits without it."""

    rule: Annotated[str, Field(min_length=1, max_length=400)]
    label: Name | None = None
    seconds_more: Derived | None = None
    slower: Derived | None = Field(default=None, description="seconds_more, as a share of the plan's seconds")


class Explanation(Document):
    """Why a plan is as fast as it is.

    `objective`: what the seconds are of; `seconds`: the plan's; `divided`: where blocks and rows may be divided, whose
    slopes the prices are; `tokens`: what is made, or read, in these seconds, so that tokens / seconds is the speed;
    `full`: memories of which more would make the plan faster; `undone`: the rule that is worth most first."""

    schema_id: Literal["helm.explanation/1"] = version("helm.explanation/1")
    model: Name
    hardware: Name
    plan_sha256: Sha256
    label: Name
    objective: Name
    seconds: Positive
    divided: Positive
    tokens: Count
    phases: tuple[Phase, ...]
    full: tuple[Name, ...]
    prices: tuple[ShadowPrice, ...]
    undone: tuple[Undone, ...]
