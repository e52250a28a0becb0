"""CheckReport: predicted, simulated and measured seconds of a plan, term by term, and the verdict."""

from typing import Annotated, Literal

from pydantic import Field

from helmsman.schemas.base import Count, Frozen, Index, Name, NonNegative, Positive, Report, Sha256, version
from helmsman.schemas.plan import Interval
from helmsman.schemas.served_comparison import Verdict


class CheckedTerm(Frozen):
    """One operation on one resource, or a total: medians over runs and passes, in seconds of one pass.

    `scaled`: the prediction at the speeds of each run; errors are signed, (measured - predicted) / predicted, null
    where nothing was predicted. `noise`: relative spread from run to run; `pairs`: A against A, neighbouring runs."""

    phase: Name
    op: Name
    resource: Annotated[str, Field(max_length=200)]
    tasks: Index
    predicted: NonNegative
    scaled: NonNegative
    simulated: NonNegative
    measured: NonNegative
    error: float | None
    scaled_error: float | None
    noise: NonNegative
    pairs: NonNegative | None


class ErrorPart(Frozen):
    """Signed seconds that one operation on one resource adds to a difference."""

    op: Name
    resource: Annotated[str, Field(max_length=200)]
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
    """The answer of `helm-check`. `machine`: the one that was profiled, `ran_on`: the one that ran; `speed_now`: by
    what was probed, its rate over the profiled one; `others_cpu_share`, `disturbance`: what other processes took.

    The verdict is about the terms that `judged` names: `passed` where no scaled error is beyond `tolerance`, `missed`
    where one is, `disturbed` where nobody can tell."""

    schema_id: Literal["helm.check/1"] = version("helm.check/1")
    plan: Name
    plan_sha256: Sha256
    machine: Name
    ran_on: Name | None
    runs: Count
    planned: PlannedSeconds
    at_run_speeds: SecondsNow
    step: CheckedTerm
    ttft: CheckedTerm | None
    request: CheckedTerm | None
    terms: tuple[CheckedTerm, ...]
    speed_now: dict[Name, Positive]
    others_cpu_share: NonNegative | None
    disturbance: NonNegative
    step_difference: ErrorParts
    ttft_difference: ErrorParts | None
    tolerance: Positive
    judged: tuple[Name, ...]
    beyond: tuple[Name, ...]
    verdict: Verdict
    passed: bool
