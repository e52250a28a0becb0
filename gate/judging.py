"""A measured case beside its baseline: the verdict on every figure, and on the case."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from helmsman.gate.verdict import ORDER, Judgement, blocks, error_of, judge, prediction_change
from helmsman.schemas.gate_report import (
    BaselineFacts,
    CaseResult,
    ChangeReport,
    FigureResult,
    FigureTimes,
    GateVerdict,
    MeasuredBy,
)


@dataclass(frozen=True, slots=True)
class CaseNow:
    """A case as it was measured: the label of its plan, the name of the record that prices it, their digests, where it
    was measured, and its figures."""

    name: str
    plan: str
    plan_sha256: str
    hardware: str
    hardware_sha256: str
    machine: str
    measured_by: MeasuredBy
    figures: Mapping[str, FigureTimes]


@dataclass(frozen=True, slots=True)
class Baseline:
    """The earlier result that a case is compared with. `was`: the verdict that it had; `sessions`: medians of earlier
    measurements of each figure, in which nothing changed; `changes`: what else differs from now."""

    facts: BaselineFacts
    figures: Mapping[str, FigureTimes]
    was: GateVerdict | None
    sessions: Mapping[str, tuple[float, ...]]
    changes: tuple[str, ...]


def judge_case(now: CaseNow, baseline: Baseline | None) -> CaseResult:
    """Return the verdict on a case: the worst of its figures'; a figure that the baseline has is judged even where it
    is no longer measured. Raises HardwareUnavailableError where SciPy is needed and missing."""
    before = {} if baseline is None else baseline.figures
    judgements = {
        figure: judge(
            now.figures.get(figure, FigureTimes()),
            before.get(figure),
            () if baseline is None else baseline.sessions.get(figure, ()),
        )
        for figure in dict.fromkeys((*now.figures, *before))
    }
    figures = [
        figure_result(figure, now.figures.get(figure, FigureTimes()), before.get(figure), judgement)
        for figure, judgement in judgements.items()
    ]
    return case_result(now, baseline, figures)


def figure_result(figure: str, now: FigureTimes, baseline: FigureTimes | None, judgement: Judgement) -> FigureResult:
    """Return a figure's row of a report."""
    change = judgement.change
    return FigureResult(
        figure=figure,
        now=now,
        baseline=baseline,
        change=None
        if change is None
        else ChangeReport(
            relative=change.relative,
            low=change.low,
            high=change.high,
            p_value=change.p_value,
            noise=change.noise,
            threshold=change.threshold,
        ),
        error=error_of(now),
        error_before=None if baseline is None else error_of(baseline),
        predicted_change=None if baseline is None else prediction_change(now, baseline),
        verdict=judgement.verdict,
        reason=judgement.reason,
        remedy=judgement.remedy,
    )


def case_result(now: CaseNow, baseline: Baseline | None, figures: Sequence[FigureResult]) -> CaseResult:
    """Return the result of a case whose figures, at least one, were judged."""
    decisive = min(figures, key=lambda figure: ORDER.index(figure.verdict))
    was = None if baseline is None else baseline.was
    return CaseResult(
        case=now.name,
        plan=now.plan,
        plan_sha256=now.plan_sha256,
        hardware=now.hardware,
        hardware_sha256=now.hardware_sha256,
        machine=now.machine,
        measured_by=now.measured_by,
        baseline=None if baseline is None else baseline.facts,
        figures=tuple(figures),
        changes=() if baseline is None else baseline.changes,
        verdict=decisive.verdict,
        was=was,
        blocks=blocks(was, decisive.verdict),
        reason=f"{decisive.figure}: {decisive.reason}",
        remedy=decisive.remedy,
    )
