"""CheckReport: predicted, simulated and measured seconds of a plan, term by term, and the verdict."""

from typing import Annotated, Literal

from pydantic import Field

from helmsman.schemas.base import (
    Count,
    Frozen,
    Index,
    Name,
    NonNegative,
    Positive,
    Report,
    Sha256,
    Words,
    absent,
    version,
)
from helmsman.schemas.predicted import Interval
from helmsman.schemas.served_comparison import Verdict

Resource = Annotated[str, Field(max_length=4000)]
"""A device, link or memory by its name in the record; empty for a total."""


class CheckedTerm(Frozen):
    """One operation on one resource, or a total: medians over runs and passes, in seconds of one pass.

    `scaled`: the prediction at the speeds of each run; errors are signed, (measured - predicted) / predicted, null
    where nothing was predicted. `noise`: relative spread from run to run, or, of a single run, from step to step;
    `pairs`: relative difference of neighbouring runs, null for a single run."""

    phase: Name
    op: Name
    resource: Resource
    tasks: Index
    predicted: NonNegative
    scaled: NonNegative
    simulated: NonNegative
    measured: float
    error: float | None
    scaled_error: float | None
    noise: float
    pairs: float | None


class ErrorPart(Frozen):
    """Signed seconds that one operation on one resource adds to a difference."""

    op: Name
    resource: Resource
    seconds: float


class ErrorParts(Frozen):
    """Measured less predicted seconds at the speeds of the runs, and the parts that add up to it, the largest first."""

    seconds: float
    parts: tuple[ErrorPart, ...]


class PlannedSeconds(Frozen):
    """Seconds as the plan has them: of a step at `decode_context`, and until the first token."""

    decode_s: Interval
    decode_context: Index
    ttft_s: Interval


class SecondsNow(Frozen):
    """Seconds to expect at the speeds of the runs. `step_inside`: whether the measured step lies in its interval."""

    step_s: Interval
    step_inside: bool
    ttft_s: Interval | None


class CheckReport(Report):
    """The answer of `helm-check`. `machine`: the one that was profiled, `ran_on`: the one that ran; `speed_now`: each
    rate that probes read over the rate that was profiled. `others_cpu_share`: the largest share of all processor time
    that other processes used in a run; `disturbance`: the median over runs of the share of time that they took.

    `judged` names the totals that the verdict is about, `beyond` those of them whose scaled error is beyond
    `tolerance`. `passed`: there are none; `missed`: one is beyond twice its noise as well; `disturbed`: others took so
    much time, or runs differ by so much among themselves, that nobody can tell. `engine`: another than Helm's executor
    that ran, of whose passes no parts are known."""

    schema_id: Literal["helm.check/1"] = version("helm.check/1")
    plan: Name
    plan_sha256: Sha256
    machine: Words
    ran_on: Words | None
    engine: Annotated[Name | None, Field(exclude_if=absent)] = None
    runs: Count
    planned: PlannedSeconds
    at_run_speeds: SecondsNow
    step: CheckedTerm
    ttft: CheckedTerm | None
    request: CheckedTerm | None
    terms: tuple[CheckedTerm, ...]
    speed_now: dict[Words, Positive]
    others_cpu_share: float | None
    disturbance: float
    step_difference: ErrorParts
    ttft_difference: ErrorParts | None
    tolerance: Positive
    judged: tuple[Name, ...]
    beyond: tuple[Name, ...]
    verdict: Verdict
    passed: bool
