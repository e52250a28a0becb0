"""Two results compared, case by case, or two plans, as the model predicts and simulates them."""

from collections.abc import Iterator
from pathlib import Path

from helmsman.gate.cases import read_plan
from helmsman.gate.expectation import expectation_of_plan
from helmsman.gate.judging import Baseline, CaseNow, case_result, figure_result, judge_case
from helmsman.gate.outcome import suite_report
from helmsman.gate.record_changes import plan_change, record_changes
from helmsman.gate.statistics import LEAST_CHANGE
from helmsman.gate.verdict import Judgement
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.gate_report import BaselineFacts, CaseResult, FigureTimes, GateReport
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import digest, parse_json, read_bytes, read_document

_PLAN = Plan.model_fields["schema_id"].default
_REPORT = GateReport.model_fields["schema_id"].default


def compare_files(old: Path, new: Path, measured: str) -> GateReport:
    """Compare two documents of `helm-check suite --json`, or two plans; `measured`: the time of the comparison.

    Raises BadInputError for files of another kind, or of two kinds."""
    kinds = _kind(old), _kind(new)
    if kinds[0] != kinds[1]:
        remedy = "compare two results, or two plans"
        raise BadInputError(f"not of the same kind as {old}", file=str(new), value=kinds[1], remedy=remedy)
    if kinds[0] == _PLAN:
        return compare_plans(read_plan(old), read_plan(new), measured)
    return compare_results(read_document(GateReport, old), read_document(GateReport, new), measured)


def compare_results(old: GateReport, new: GateReport, measured: str) -> GateReport:
    """Judge the runs of `new` against those of `old`, cases by their names.

    Raises BadInputError where they share none."""
    before = {case.case: case for case in old.cases}
    shared = [case for case in new.cases if case.case in before]
    if not shared:
        remedy = "compare results of the same suite"
        raise BadInputError("no case of the other result", field="cases", value=new.suite, remedy=remedy)
    results = [_compared(case, before[case.case], old) for case in shared]
    alone = before.keys() ^ {case.case for case in new.cases}
    notes = [f"{name}: only in one of the results" for name in sorted(alone)]
    notes += [
        f"{case.case}: not compared, another machine: was {before[case.case].machine}, is {case.machine}"
        for case in shared
        if case.machine != before[case.case].machine
    ]
    return suite_report(new.suite, measured, results, notes)


def compare_plans(old: Plan, new: Plan, measured: str) -> GateReport:
    """Judge what is predicted of `new` against `old`: what differs by more than 5 % is slower or faster."""
    now, before = _expected(new), _expected(old)
    figures = [
        figure_result(figure, times, before[figure], _predicted_judgement(times, before[figure]))
        for figure, times in now.items()
        if figure in before
    ]
    plan_now = CaseNow("plan", new.label, digest(new), new.hardware.name, digest(new.hardware), "none", "nothing", now)
    facts = BaselineFacts(kind="plan", entry=None)
    baseline = Baseline(facts, before, "ok", {}, tuple(_plan_changes(old, new)))
    return suite_report("two plans", measured, [case_result(plan_now, baseline, figures)])


def _kind(path: Path) -> str:
    content = parse_json(read_bytes(path, Plan.byte_limit), str(path))
    kind = content.get("schema") if isinstance(content, dict) else None
    if kind not in (_PLAN, _REPORT):
        remedy = "give what helm-check suite --json or helm-plan -o wrote"
        raise BadInputError("neither a result nor a plan", file=str(path), field="schema", value=kind, remedy=remedy)
    return str(kind)


def _compared(case: CaseResult, before: CaseResult, old: GateReport) -> CaseResult:
    """Judge a case against its earlier result: one that failed stays so, and another machine says nothing."""
    if case.verdict == "failed":
        return case
    alike = case.machine == before.machine
    return judge_case(_measured_now(case), _result_baseline(before, case, old) if alike else None)


def _measured_now(case: CaseResult) -> CaseNow:
    return CaseNow(
        name=case.case,
        plan=case.plan,
        plan_sha256=case.plan_sha256,
        hardware=case.hardware,
        hardware_sha256=case.hardware_sha256,
        machine=case.machine,
        measured_by=case.measured_by,
        figures={figure.figure: figure.now for figure in case.figures},
    )


def _result_baseline(before: CaseResult, now: CaseResult, old: GateReport) -> Baseline:
    facts = BaselineFacts(kind="result", entry=None, measured=old.measured, helm=old.helm)
    figures = {figure.figure: figure.now for figure in before.figures}
    return Baseline(facts, figures, "ok", {}, tuple(_result_changes(before, now)))


def _result_changes(before: CaseResult, now: CaseResult) -> Iterator[str]:
    if before.plan_sha256 != now.plan_sha256:
        yield plan_change(before.plan, now.plan)
    if before.hardware_sha256 != now.hardware_sha256:
        yield f"the machine's record is another: was {before.hardware}, is {now.hardware}"


def _expected(plan: Plan) -> dict[str, FigureTimes]:
    expected = expectation_of_plan(plan)
    return {
        figure: FigureTimes(predicted_s=seconds, simulated_s=expected.simulated.get(figure))
        for figure, seconds in expected.predicted.items()
    }


def _predicted_judgement(now: FigureTimes, before: FigureTimes) -> Judgement:
    if not now.predicted_s or not before.predicted_s:
        return Judgement("undecided", "one of the plans takes no time", "compare plans of the same workload")
    moved = now.predicted_s / before.predicted_s - 1.0
    if abs(moved) <= LEAST_CHANGE:
        return Judgement("ok", f"predicted {moved:+.1%}")
    return Judgement("slower" if moved > 0.0 else "faster", f"predicted {moved:+.1%}, beyond {LEAST_CHANGE:.0%}")


def _plan_changes(old: Plan, new: Plan) -> Iterator[str]:
    for what in ("model", "workload"):
        if getattr(old, f"{what}_sha256") != getattr(new, f"{what}_sha256"):
            yield f"the {what} is another, so seconds are of another thing"
    if digest(old) != digest(new):
        yield plan_change(old.label, new.label)
    yield from record_changes(old.hardware, new.hardware)
