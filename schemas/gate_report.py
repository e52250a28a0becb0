"""GateReport: the verdicts on all cases of a suite, with the figures and samples behind them."""

from typing import Annotated, Literal

from pydantic import Field

from helmsman.schemas.base import Frozen, Index, Name, NonNegative, Positive, Report, Sha256, Words, version

GateVerdict = Literal["ok", "faster", "slower", "drift", "undecided", "failed"]
"""`slower`, `faster`: the machine or the code changed; `drift`: the model's error grew while the machine measures as
before; `undecided`: too noisy or too few runs to say; `failed`: nothing was measured."""

SuiteVerdict = Literal["ok", "blocked", "failed", "undecided"]
"""Of all cases together, the worst."""

MeasuredBy = Literal["trace", "command", "run", "engine", "serve", "nothing"]
"""As a case says it; `nothing` of two plans that are compared."""

Samples = Annotated[tuple[Positive, ...], Field(max_length=100_000)]
"""Seconds of runs, in the order in which they were measured."""


class FigureTimes(Frozen):
    """Seconds of one figure: as the model predicts them, as the plan's replay simulates them (null where there is no
    such), and of measured runs."""

    predicted_s: NonNegative | None = None
    simulated_s: NonNegative | None = None
    samples_s: Samples = ()


class ChangeReport(Frozen):
    """By how much measured seconds changed, relative to the baseline; as `gate.statistics.Change` says."""

    relative: float
    low: float
    high: float
    p_value: NonNegative
    noise: NonNegative
    threshold: NonNegative


class FigureResult(Frozen):
    """One figure now and in the baseline (null where nothing is accepted), and the verdict on it.

    `error`, `error_before`: (measured - predicted) / predicted, of medians, null where one is missing;
    `predicted_change`: of the prediction, relative to the baseline's."""

    figure: Name
    now: FigureTimes
    baseline: FigureTimes | None
    change: ChangeReport | None
    error: float | None
    error_before: float | None
    predicted_change: float | None
    verdict: GateVerdict
    reason: Words
    remedy: Words | None


class CaseFailure(Frozen):
    """Why a case could not be measured; as a command's error says it."""

    code: Name
    exit_code: Index
    message: Words
    file: Words | None
    field: Words | None
    value: Words | None
    remedy: Words | None


class BaselineFacts(Frozen):
    """The facts about a baseline: the accepted `entry` of its history, or, without one, another environment's
    version, another result, or another plan."""

    kind: Literal["history", "interpreter", "result", "plan"]
    entry: Name | None
    measured: Words | None = None
    helm: Words | None = None


class CaseResult(Frozen):
    """The verdict on one case: the worst of its figures'. `was`: its verdict when its baseline was accepted, null
    without one; `blocks`: it was ok and is not ok; `changes`: what else differs from the baseline: Helm's version, the
    plan, figures of the machine's record."""

    case: Name
    plan: Name
    plan_sha256: Sha256
    hardware: Name
    hardware_sha256: Sha256
    machine: Words
    measured_by: MeasuredBy
    baseline: BaselineFacts | None
    figures: tuple[FigureResult, ...]
    changes: tuple[Words, ...]
    verdict: GateVerdict
    was: GateVerdict | None
    blocks: bool
    reason: Words
    remedy: Words | None
    failure: CaseFailure | None = None


class GateReport(Report):
    """The answer of `helm-check suite` and `helm-check compare`. `blocked`, `undecided`: names of such cases; `notes`:
    what else is to be known, such as files that a history's manifest does not list."""

    schema_id: Literal["helm.gate-report/1"] = version("helm.gate-report/1")
    suite: Words
    helm: Name
    measured: Words
    cases: Annotated[tuple[CaseResult, ...], Field(max_length=100_000)]
    blocked: tuple[Name, ...]
    undecided: tuple[Name, ...]
    notes: tuple[Words, ...]
    verdict: SuiteVerdict
