"""A report of the gate for people: a block of lines for each case, and what it means for the whole."""

from collections.abc import Iterator
from statistics import median

from helmsman.schemas.gate_report import BaselineFacts, CaseResult, FigureResult, FigureTimes, GateReport
from helmsman.schemas.units import format_seconds

_KINDS = {
    "history": "accepted {measured}, Helm {helm}",
    "interpreter": "Helm {helm}, measured between",
    "result": "measured {measured}, Helm {helm}",
    "plan": "the old plan",
}


def report_text(report: GateReport, verbose: bool = False) -> str:
    """Return the text that `helm-check suite` prints; `verbose`: with the seconds of every run."""
    lines = [line for case in report.cases for line in (*_case_lines(case, verbose), "")]
    notes = [f"note         {note}" for note in report.notes]
    return "\n".join([*lines, *notes, f"verdict      {verdict_line(report)}"])


def verdict_line(report: GateReport) -> str:
    """Return one line: how many cases are ok, and the names of those that are not."""
    good = sum(case.verdict in ("ok", "faster") for case in report.cases)
    others = [f"{case.case} {case.verdict}" for case in report.cases if case.verdict not in ("ok", "faster")]
    told = f"{good} of {len(report.cases)} cases ok" + (f"; {', '.join(others)}" if others else "")
    return f"{told}; {len(report.blocked)} blocked" if report.blocked else told


def baseline_text(baseline: BaselineFacts | None) -> str:
    """Return what a case was compared with."""
    if baseline is None:
        return "nothing, none is accepted"
    return _KINDS[baseline.kind].format(measured=baseline.measured, helm=baseline.helm)


def headline(case: CaseResult) -> str:
    """Return the verdict on a case and why, in one line."""
    return f"{case.verdict.upper() if case.blocks else case.verdict}: {case.reason}"


def measured_text(times: FigureTimes) -> str:
    """Return the median of the runs and their number; `-` without one."""
    return f"{format_seconds(median(times.samples_s))} of {len(times.samples_s)}" if times.samples_s else "-"


def seconds_text(seconds: float | None) -> str:
    """Return seconds in a fitting unit; `-` where there are none."""
    return "-" if seconds is None else format_seconds(seconds)


def percent_text(share: float | None) -> str:
    """Return a signed percentage; `-` where there is none."""
    return "-" if share is None else f"{share:+.1%}"


def _case_lines(case: CaseResult, verbose: bool) -> Iterator[str]:
    yield f"{case.case}: {case.plan} on {case.hardware}, against {baseline_text(case.baseline)}"
    yield _row("figure", ("predicted", "simulated", "measured", "change", "noise"))
    for figure in case.figures:
        yield from _figure_lines(figure, verbose)
    for change in case.changes:
        yield f"changed      {change}"
    yield headline(case)
    if case.remedy is not None:
        yield f"remedy       {case.remedy}"


def _figure_lines(figure: FigureResult, verbose: bool) -> Iterator[str]:
    change = figure.change
    differs = ("-", "-") if change is None else (percent_text(change.relative), f"{change.noise:.1%}")
    yield _row(figure.figure, (*_times(figure.now), *differs))
    if figure.baseline is not None:
        yield _row("  before", _times(figure.baseline))
    if verbose:
        yield f"  {figure.verdict}: {figure.reason}"
        yield f"  runs       {' '.join(format_seconds(seconds) for seconds in figure.now.samples_s)}"


def _times(times: FigureTimes) -> tuple[str, ...]:
    return seconds_text(times.predicted_s), seconds_text(times.simulated_s), measured_text(times)


def _row(name: str, cells: tuple[str, ...]) -> str:
    return f"{name:<13}" + "".join(f"{cell:>16}" for cell in cells)
