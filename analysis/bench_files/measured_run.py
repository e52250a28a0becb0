"""A measured run as a result states it: a figure, the work, and what was said of model, machine and settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from helmsman.schemas.plan_question import Value

Measured = Literal["decode", "prefill", "request"]
"""Kinds of measured figures: tokens/s of decode steps or of prompts, or seconds of whole requests."""


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A figure with its work, and what its result says beside: None where it does not say.

    `value`: tokens/s of all sequences together, of a request seconds; `noise`: its standard deviation as a part of it;
    `prompt`: tokens with those known before (`prefix`); `model`: a name or the stem of a file; `gpus`, `cpu`: as
    drivers and systems call them; `options`: of the engine's strategy; `era`: the year of the build; `whole`: whether
    everything was on accelerators; `where`: file and place in it."""

    of: Measured
    value: float
    where: str
    prompt: int | None = None
    output: int | None = None
    prefix: int = 0
    batch: int | None = None
    noise: float = 0.0
    model: str | None = None
    parameters: int | None = None
    format: str | None = None
    kv: str | None = None
    gpus: tuple[str, ...] = ()
    cpu: str | None = None
    options: Mapping[str, Value] = field(default_factory=dict)
    era: str | None = None
    whole: bool = False


@dataclass(frozen=True, slots=True)
class RefusedResult:
    """A row of a result that is not used, and why."""

    where: str
    reason: str
