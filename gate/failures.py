"""Cases that could not be measured, as results like others."""

from helmsman.gate.cases import Case
from helmsman.gate.history import History
from helmsman.gate.machine import machine_here
from helmsman.gate.verdict import blocks
from helmsman.schemas.errors import HelmError
from helmsman.schemas.gate_report import CaseFailure, CaseResult, GateVerdict
from helmsman.schemas.read import digest


def failed_case(case: Case, history: History, error: HelmError) -> CaseResult:
    """Return the result of a case whose measurement ended with `error`; it blocks where something was accepted."""
    was: GateVerdict | None = "ok" if history.accepted else None
    return CaseResult(
        case=case.name,
        plan=case.plan.label,
        plan_sha256=digest(case.plan),
        hardware=case.priced.hardware.name,
        hardware_sha256=digest(case.priced.hardware),
        machine=machine_here(),
        measured_by=case.document.measure.by,
        baseline=None,
        figures=(),
        changes=(),
        verdict="failed",
        was=was,
        blocks=blocks(was, "failed"),
        reason=str(error),
        remedy=error.remedy,
        failure=failure_of(error),
    )


def not_kept(result: CaseResult, error: HelmError) -> CaseResult:
    """Return the result of a case that was measured and judged, but whose history could not take the measurement."""
    update = {
        "verdict": "failed",
        "blocks": blocks(result.was, "failed"),
        "reason": f"measured ({result.verdict}), but not kept: {error}",
        "remedy": error.remedy,
        "failure": failure_of(error),
    }
    return result.model_copy(update=update)


def failure_of(error: HelmError) -> CaseFailure:
    """Return an error as a document has it."""
    return CaseFailure(
        code=error.code,
        exit_code=error.exit_code,
        message=error.message,
        file=error.file,
        field=error.field,
        value=None if error.value is None else str(error.value)[:1000] or None,
        remedy=error.remedy,
    )
