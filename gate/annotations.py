"""A report of the gate as workflow commands, which GitHub shows as annotations of the files that they name."""

from collections.abc import Iterator

from helmsman.gate.cases import CASE_FILE
from helmsman.gate.report_text import headline
from helmsman.schemas.gate_report import CaseResult, GateReport


def annotations(report: GateReport) -> str:
    """Return a line for each case that is not ok: an error where it blocks or failed, a warning where it is undecided
    or was not ok before, a notice where it is faster. Empty where all are ok."""
    return "\n".join(_lines(report))


def _lines(report: GateReport) -> Iterator[str]:
    for case in report.cases:
        if case.verdict != "ok":
            file = _property(f"{report.suite}/{case.case}/{CASE_FILE}")
            title = _property(f"helm-check {case.case}: {case.verdict}")
            yield f"::{_level(case)} file={file},title={title}::{_data(headline(case))}"


def _level(case: CaseResult) -> str:
    if case.blocks or case.verdict == "failed":
        return "error"
    return "notice" if case.verdict == "faster" else "warning"


def _data(text: str) -> str:
    """Return a text as GitHub's runner reads it back (actions/toolkit, `escapeData`)."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Return the value of a property as GitHub's runner reads it back (`escapeProperty`)."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
