"""A check for readers: a document, and a table for people."""

from collections.abc import Iterator, Sequence

from helmsman.analysis.attribution import most_of
from helmsman.analysis.check import CheckResult
from helmsman.hwdb.machine_line import facts_of, record_line
from helmsman.schemas.check_report import CheckedTerm, CheckReport, ErrorParts, PlannedSeconds, SecondsNow
from helmsman.schemas.figures import DISTURBED
from helmsman.schemas.plan import Plan
from helmsman.schemas.predicted import Interval
from helmsman.schemas.read import digest
from helmsman.schemas.units import format_seconds

_NAMES = {"step": "decode step", "request": "request"}
"""Of the totals that are judged, for people."""


_TERM_WIDTH = 12
"""Characters of the column of terms, more where one is longer: a term does not touch its resource."""


def document(plan: Plan, checked: CheckResult) -> CheckReport:
    """Return seconds and signed errors of every term and total."""
    decode = plan.predicted.decode
    now = SecondsNow(step_s=checked.step_interval, step_inside=checked.inside, ttft_s=checked.ttft_interval)
    return CheckReport(
        plan=plan.label,
        plan_sha256=digest(plan),
        machine=record_line(plan.hardware),
        ran_on=None if checked.machine is None else str(checked.machine),
        engine=checked.engine,
        runs=checked.runs,
        planned=PlannedSeconds(
            decode_s=decode.seconds, decode_context=decode.context, ttft_s=plan.predicted.ttft.seconds
        ),
        at_run_speeds=now,
        step=checked.step,
        ttft=checked.ttft,
        request=checked.request,
        terms=tuple(_ordered(checked.terms)),
        speed_now=checked.factors,
        others_cpu_share=checked.others,
        disturbance=checked.disturbance,
        step_difference=checked.step_difference,
        ttft_difference=checked.ttft_difference,
        tolerance=checked.tolerance,
        judged=tuple(row.op for row in checked.judged),
        beyond=tuple(row.op for row in checked.beyond),
        verdict=checked.verdict,
        passed=checked.passed,
    )


def table(plan: Plan, checked: CheckResult) -> str:
    """Return the text that `helm-check` prints."""
    totals = [row for row in (checked.step, checked.ttft, checked.request) if row is not None]
    wide = max(_TERM_WIDTH, *(len(row.op) + 2 for row in (*checked.terms, *totals)))
    header = f"{'phase':<9}{'term':<{wide}}{'resource':<12}" + "".join(
        f"{name:>11}" for name in ("predicted", "simulated", "measured", "error", "scaled", "noise")
    )
    lines = [header, *(_line(row, wide) for row in _ordered(checked.terms))]
    lines += ["", *(_line(row, wide) for row in totals), ""]
    return "\n".join([_title(plan, checked), "", *lines, *_remarks(plan, checked), f"verdict      {verdict(checked)}"])


def verdict(checked: CheckResult) -> str:
    """Return one line: the scaled errors of what is judged against the tolerance, and what they are made of where they
    are beyond it."""
    errors = ", ".join(
        f"{_NAMES[row.op]} {_percent(row.scaled_error)} (noise {row.noise:.1%})" for row in checked.judged
    )
    word = "BEYOND" if checked.beyond else "within"
    return f"scaled error of {errors}, {word} {checked.tolerance:.1%}{_reasons(checked)}"


def _reasons(checked: CheckResult) -> str:
    """Why something is beyond the tolerance, and why that is not judged."""
    made = ""
    if checked.step in checked.beyond:
        made = f"; of {told(checked.step_difference)}"
    elif checked.beyond and checked.ttft_difference is not None:
        made = f"; TTFT of {told(checked.ttft_difference)}"
    if checked.verdict != "disturbed":
        return made
    if checked.disturbance > DISTURBED:
        return f"{made}; not judged, others took {checked.disturbance:.0%} of the time"
    return f"{made}; not judged, runs differ by as much among themselves"


def told(made: ErrorParts) -> str:
    """`+9.3 ms: down on loopback +1.9 ms, ...`: the terms that make up most of a difference, the largest first."""
    parts = (f"{part.op} on {part.resource} {_signed(part.seconds)}" for part in most_of(made))
    return f"{_signed(made.seconds)}: {', '.join(parts)}"


def _signed(seconds: float) -> str:
    return f"{'-' if seconds < 0.0 else '+'}{format_seconds(abs(seconds))}"


def _ordered(rows: Sequence[CheckedTerm]) -> list[CheckedTerm]:
    """Decode before prefill, the longest first."""
    return sorted(rows, key=lambda row: (row.phase, -row.measured, row.op, row.resource))


def _title(plan: Plan, checked: CheckResult) -> str:
    return (
        f"{plan.model.name} on {plan.hardware.name}: {plan.label}, {checked.runs} runs; seconds are medians "
        "of one pass, errors (measured - predicted) / predicted"
    )


def _line(row: CheckedTerm, wide: int) -> str:
    times = "".join(f"{format_seconds(s):>11}" for s in (row.predicted, row.simulated, row.measured))
    noise = "-" if row.scaled_error is None else f"{row.noise:.1%}"
    errors = f"{_percent(row.error):>11}{_percent(row.scaled_error):>11}{noise:>11}"
    return f"{row.phase:<9}{row.op:<{wide}}{row.resource:<12}{times}{errors}"


def _percent(error: float | None) -> str:
    return "-" if error is None else f"{error:+.1%}"


def _remarks(plan: Plan, checked: CheckResult) -> Iterator[str]:
    decode = plan.predicted.decode
    profiled, ran = facts_of(plan.hardware), checked.machine
    yield f"machine      {record_line(plan.hardware)}"
    if ran is not None and (profiled is None or not profiled.same_processor(ran)):
        yield f"ran on       {ran}"
    if checked.engine is not None:
        yield f"engine       {checked.engine}: whole passes are compared{_priced(plan, checked.engine)}"
    yield f"planned      {_interval(decode.seconds)} a step at context {decode.context}"
    yield f"             {_interval(plan.predicted.ttft.seconds)} TTFT"
    for name, factor in checked.factors.items():
        yield f"speed now    {name}: {factor:.3f} of what was profiled"
    if not checked.factors:
        yield "speed now    unknown, the Trace has no probes: errors are not scaled"
    where = "within" if checked.inside else "OUTSIDE"
    yield f"expected     {_interval(checked.step_interval)} a step at these speeds, measured {where}"
    if checked.ttft_interval is not None:
        yield f"             {_interval(checked.ttft_interval)} TTFT"
    if checked.others is not None and checked.others > DISTURBED:
        yield f"disturbed    other processes used {checked.others:.0%} of the processors in a run: measure again"
    elif checked.disturbance > DISTURBED:
        yield f"disturbed    others took {checked.disturbance:.0%} of the time of most runs: measure again"
    elif checked.verdict == "disturbed":
        yield "disturbed    runs differ by as much as they are off: measure again"
    yield f"difference   a step {told(checked.step_difference)}"
    if checked.ttft_difference is not None:
        yield f"             TTFT {told(checked.ttft_difference)}"
    if checked.step.pairs is not None:
        yield f"A against A  neighbouring runs differ by {checked.step.pairs:.1%}"


def _priced(plan: Plan, engine: str) -> str:
    """Say that a plan is not priced with an engine's constants; nothing of one that is."""
    if engine in plan.hardware.sources:
        return ""
    return f"; the plan is priced for another: plan for {engine}, and run that"


def _interval(seconds: Interval) -> str:
    low, mid, high = (format_seconds(s) for s in (seconds.low, seconds.mid, seconds.high))
    return f"{mid} [{low} .. {high}]"
