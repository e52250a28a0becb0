"""A report of the gate as a Markdown summary, as GitHub shows it beside a run."""

from helmsman.gate.report_text import baseline_text, measured_text, percent_text, seconds_text, verdict_line
from helmsman.schemas.gate_report import CaseResult, FigureResult, GateReport

_COLUMNS = ("case", "figure", "predicted", "simulated", "measured", "before", "change", "error", "verdict")


def markdown(report: GateReport) -> str:
    """Return a heading with the verdict, a table with a row for each figure, and why, for every case that is not ok."""
    rows = [_row(case, figure) for case in report.cases for figure in case.figures]
    table = [_line(_COLUMNS), _line(["---"] * len(_COLUMNS)), *map(_line, rows)] if rows else []
    reasons = [line for case in report.cases if case.verdict != "ok" for line in _reasons(case)]
    notes = [f"- {_escaped(note)}" for note in report.notes]
    head = [f"## helm-check: {report.verdict}", "", _escaped(verdict_line(report)), ""]
    return "\n".join([*head, *table, "", *reasons, *notes]).rstrip() + "\n"


def _row(case: CaseResult, figure: FigureResult) -> list[str]:
    before = "-" if figure.baseline is None else measured_text(figure.baseline)
    return [
        case.case,
        figure.figure,
        seconds_text(figure.now.predicted_s),
        seconds_text(figure.now.simulated_s),
        measured_text(figure.now),
        before,
        percent_text(None if figure.change is None else figure.change.relative),
        percent_text(figure.error),
        f"**{figure.verdict}**" if figure.verdict != "ok" else "ok",
    ]


def _reasons(case: CaseResult) -> list[str]:
    against = f" (against {_escaped(baseline_text(case.baseline))})"
    lines = [f"- **{_escaped(case.case)}**: {case.verdict}: {_escaped(case.reason)}{against}"]
    lines += [f"  - {_escaped(change)}" for change in case.changes]
    return lines if case.remedy is None else [*lines, f"  - remedy: {_escaped(case.remedy)}"]


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return "| " + " | ".join(cell if cell.startswith("**") else _escaped(cell) for cell in cells) + " |"


def _escaped(text: str) -> str:
    """Return the text so that Markdown shows it as it is."""
    for letter in "\\`*_[]<>|#":
        text = text.replace(letter, f"&#{ord(letter)};") if letter in "<>|" else text.replace(letter, f"\\{letter}")
    return text
