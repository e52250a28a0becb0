"""The verdict on a whole suite, and the exit code that it means."""

from collections.abc import Sequence

from helmsman import __version__
from helmsman.schemas.errors import (
    BadInputError,
    DisturbedError,
    HardwareUnavailableError,
    HelmError,
    InfeasibleError,
    TargetMissedError,
    UsageError,
)
from helmsman.schemas.gate_report import CaseResult, GateReport, SuiteVerdict

_FAILURES: dict[str, type[HelmError]] = {
    error.code: error
    for error in (BadInputError, DisturbedError, HardwareUnavailableError, InfeasibleError, UsageError)
}
"""The errors with which a measurement may end, by their code."""
_NOT_OK = ("slower", "drift")


def suite_report(suite: str, measured: str, cases: Sequence[CaseResult], notes: Sequence[str] = ()) -> GateReport:
    """Return the report on cases that were judged."""
    return GateReport(
        suite=suite,
        helm=__version__,
        measured=measured,
        cases=tuple(cases),
        blocked=tuple(case.case for case in cases if case.blocks),
        undecided=tuple(case.case for case in cases if case.verdict == "undecided"),
        notes=tuple(notes),
        verdict=_verdict(cases),
    )


def suite_error(report: GateReport) -> HelmError | None:
    """Return what a report means to whoever waits for an exit code, None where all is well: TargetMissedError where a
    case is slower or drifted, the error of a case that failed, DisturbedError where a case is undecided."""
    regressed = [case for case in report.cases if case.blocks and case.verdict in _NOT_OK]
    if regressed:
        return TargetMissedError(_told("blocked", regressed), file=report.suite, remedy=regressed[0].remedy)
    failed = next((case.failure for case in report.cases if case.failure is not None), None)
    if failed is not None:
        error = _FAILURES.get(failed.code, HelmError)
        return error(failed.message, file=failed.file, field=failed.field, value=failed.value, remedy=failed.remedy)
    if report.blocked:
        lost = [case for case in report.cases if case.blocks]
        return TargetMissedError(_told("blocked", lost), file=report.suite, remedy=lost[0].remedy)
    undecided = [case for case in report.cases if case.verdict == "undecided"]
    if undecided:
        return DisturbedError(_told("undecided", undecided), file=report.suite, remedy=undecided[0].remedy)
    return None


def _verdict(cases: Sequence[CaseResult]) -> SuiteVerdict:
    if any(case.blocks for case in cases):
        return "blocked"
    if any(case.verdict == "failed" for case in cases):
        return "failed"
    return "undecided" if any(case.verdict == "undecided" for case in cases) else "ok"


def _told(word: str, cases: Sequence[CaseResult]) -> str:
    """Say how many cases there are of a kind, their names, and why the first is one."""
    names = ", ".join(f"{case.case} ({case.verdict})" for case in cases)
    return f"{len(cases)} case{'s' if len(cases) > 1 else ''} {word}: {names}: {cases[0].reason}"
