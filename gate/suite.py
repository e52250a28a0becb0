"""Running a suite: every case measured, judged, and its measurement kept."""

from collections.abc import Mapping
from dataclasses import dataclass

from helmsman import __version__
from helmsman.gate.baseline import history_baseline, interpreter_baseline
from helmsman.gate.cases import Case, Suite
from helmsman.gate.expectation import expectation_of
from helmsman.gate.failures import failed_case, not_kept
from helmsman.gate.history import History, append, check_writable, read_history
from helmsman.gate.interleaving import Side
from helmsman.gate.interpreters import THIS, version_command
from helmsman.gate.judging import CaseNow, judge_case
from helmsman.gate.measurement import CaseMeasurement, Told, check_sides, measure
from helmsman.gate.outcome import suite_report
from helmsman.gate.processes import printed_by
from helmsman.gate.statistics import check_scipy
from helmsman.schemas.errors import HelmError
from helmsman.schemas.gate_history import GateEntry, MeasuredEntry
from helmsman.schemas.gate_report import CaseResult, FigureTimes, GateReport
from helmsman.schemas.read import digest

_VERSION_LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class GateRun:
    """The settings of a run of a suite. `measured`: the time that its entries get, in UTC; `baseline_python`: an
    interpreter whose version is measured between the runs of this one; `kept`: whether histories get what was
    measured."""

    measured: str
    baseline_python: str | None = None
    kept: bool = True


def run_suite(suite: Suite, run: GateRun, tell: Told = lambda _: None) -> GateReport:
    """Measure and judge all cases; one that cannot be measured, or kept, is a failed case of the report, and the others
    go on.

    Raises, before anything is measured, BadInputError for a damaged history, UsageError for one that cannot be written
    or a case that has no second side, HardwareUnavailableError on a full disk or without SciPy."""
    check_scipy()
    histories = [read_history(case.history) for case in suite.cases]
    for case in suite.cases if run.kept else ():
        check_writable(case.history)
    version = None
    if run.baseline_python is not None:
        for case in suite.cases:
            check_sides(case)
        version = _version(run.baseline_python, suite)
    results = [
        _run_case(case, history, run, version, tell) for case, history in zip(suite.cases, histories, strict=True)
    ]
    return suite_report(suite.name, run.measured, results, _notes(suite, histories))


def _run_case(case: Case, history: History, run: GateRun, version: str | None, tell: Told) -> CaseResult:
    pythons: dict[Side, str] = {"candidate": THIS}
    if run.baseline_python is not None:
        pythons["baseline"] = run.baseline_python
    try:
        measurement = measure(case, pythons, tell)
        now = case_now(case, measurement)
    except HelmError as error:
        return failed_case(case, history, error)
    accepted = history_baseline(history, now, case.priced.hardware)
    baseline = accepted
    if version is not None:
        baseline = interpreter_baseline(accepted, measurement.sides["baseline"], version)
    result = judge_case(now, baseline)
    if not run.kept:
        return result
    try:
        _keep(case, history, entry_of(now, result, run.measured))
    except HelmError as error:
        return not_kept(result, error)
    return result


def case_now(case: Case, measurement: CaseMeasurement) -> CaseNow:
    """Return the case as this version measured it, with what today's model expects."""
    expected = expectation_of(case, measurement.workload)
    figures = {
        figure: FigureTimes(
            predicted_s=expected.predicted.get(figure), simulated_s=expected.simulated.get(figure), samples_s=samples
        )
        for figure, samples in measurement.sides["candidate"].items()
    }
    return CaseNow(
        name=case.name,
        plan=case.plan.label,
        plan_sha256=digest(case.plan),
        hardware=case.priced.hardware.name,
        hardware_sha256=digest(case.priced.hardware),
        machine=measurement.machine,
        measured_by=case.document.measure.by,
        figures=figures,
    )


def entry_of(now: CaseNow, result: CaseResult, measured: str) -> MeasuredEntry:
    """Return what a history keeps of a measurement."""
    info = GateEntry(
        measured=measured,
        helm=__version__,
        machine=now.machine,
        plan=now.plan,
        plan_sha256=now.plan_sha256,
        hardware=now.hardware,
        hardware_sha256=now.hardware_sha256,
        predicted=_known({figure: times.predicted_s for figure, times in now.figures.items()}),
        simulated=_known({figure: times.simulated_s for figure, times in now.figures.items()}),
        verdict=result.verdict,
    )
    return MeasuredEntry(info, {figure: times.samples_s for figure, times in now.figures.items()})


def _known(seconds: Mapping[str, float | None]) -> dict[str, float]:
    return {figure: value for figure, value in seconds.items() if value is not None}


def _keep(case: Case, history: History, entry: MeasuredEntry) -> None:
    """Add an entry, unless it says what the newest one does: a stored Trace is the same every time."""
    newest = history.newest(entry.info.machine)
    if newest is None or _at(newest.entry, entry.info.measured) != entry:
        append(case.history, entry, case.priced.hardware)


def _at(entry: MeasuredEntry, measured: str) -> MeasuredEntry:
    """Return the entry as if it had been measured at another time."""
    return MeasuredEntry(entry.info.model_copy(update={"measured": measured}), entry.samples)


def _version(python: str, suite: Suite) -> str:
    return printed_by(version_command(python), suite.folder, _VERSION_LIMIT_S, python, "baseline_python").strip()


def _notes(suite: Suite, histories: list[History]) -> list[str]:
    notes = [f"{name}: has no case.json, left out" for name in suite.others]
    for case, history in zip(suite.cases, histories, strict=True):
        notes += [f"{case.name}: the manifest does not list {name}, which is not used" for name in history.unlisted]
    return notes
