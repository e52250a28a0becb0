"""The record of a machine on which an engine ran: its factors moved to the runs, and what that does to predictions."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import exp, hypot, isfinite, sqrt
from statistics import median
from typing import Any

from helmsman.analysis.bench_files.measured_run import Measured, MeasuredRun, RefusedResult
from helmsman.analysis.bench_files.run_requests import CalibrationSubject, request_of_run
from helmsman.hwdb.engine_calibration import (
    Factors,
    Linearised,
    factors_in,
    joined,
    relative,
    seconds_of,
    slopes_of,
    speed_of,
    triangle,
    updated,
)
from helmsman.hwdb.engine_constants import constants_digest, family_of
from helmsman.planner.cost.plan_costs import cost_model
from helmsman.planner.decide import decide
from helmsman.planner.file_formats import resolve_formats
from helmsman.planner.mixed_formats import format_sizes
from helmsman.planner.prediction.predict import phase_seconds, predict
from helmsman.planner.registry import ENGINES
from helmsman.planner.request import PlanRequest
from helmsman.planner.strategies.engines.calibrated_build import calibration_of
from helmsman.planner.strategies.engines.calibration import (
    DECODE,
    HOST_DOUBT,
    PROMPT,
    calibrated,
    prior_factors,
    used_lanes,
)
from helmsman.planner.strategies.engines.engine_model import engine_model
from helmsman.planner.strategies.engines.kernels import EngineBuild, usual_backend
from helmsman.schemas.calibration_report import (
    CalibratedFactor,
    CalibratedPrediction,
    CalibratedRun,
    CalibrationReport,
    RefusedRow,
)
from helmsman.schemas.engine_calibration import CalibratingRun, EngineCalibration
from helmsman.schemas.errors import BadInputError, HelmError, InfeasibleError, UsageError
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.plan import Plan
from helmsman.schemas.predicted import Interval

_Z95 = 1.6448536269514722
_OTHER_FORMATS = ("q4_k_m", "q8_0", "f16")
"""Formats in which other work is predicted, before and after."""
_LONGER = (4096, 128)
"""Tokens of prompts and outputs at which the first of these is predicted, too."""
_MOST_OTHERS = 12

Predict = Callable[[Factors], Linearised]
"""Says what runs take with given factors."""


@dataclass(frozen=True)
class Calibration:
    """The record with the engine's factors, and the report of what they changed."""

    hardware: Hardware
    report: CalibrationReport


@dataclass(frozen=True)
class _Used:
    """A run that is used: its question, and how it is written down."""

    request: PlanRequest[Any]
    run: CalibratingRun
    noise: float


def calibration(subject: CalibrationSubject, runs: Iterable[MeasuredRun | RefusedResult]) -> Calibration:
    """Return the record of a machine with the engine's constants as runs on it had them, and the report.

    Raises BadInputError where no run can be used, with why the first was not."""
    used, refused = _sorted(subject, runs)
    if not used:
        first = refused[0] if refused else RefusedRow(where="no file", reason="nothing was measured")
        raise BadInputError(first.reason, file=first.where, remedy="give tokens/s of decode steps or of prompts")
    bare, strategy = subject.hardware, ENGINES[subject.engine]
    build = _build(used[0].request, subject.engine)
    known = calibration_of(bare, strategy, build)
    plain = bare.model_copy(update={"calibrations": tuple(c for c in bare.calibrations if c.strategy != strategy)})
    plans = [_plan(one, plain) for one in used]
    before = _before(bare, known, build, plans)
    seconds, noise = [seconds_of(one.run) for one in used], list(map(_noise, used, plans))
    moved = updated(before, seconds, _linearised(used, plans, before, build), noise)
    listed = (*(known.runs if known else ()), *(one.run for one in used))
    after = _record(bare, _document(subject.engine, build, moved.factors, listed))
    said = plans if known is None else [_plan(one, bare) for one in used]
    rows = [
        CalibratedRun(
            run=one.run,
            prediction=_prediction(one.run.of, one, plan, _plan(one, after)),
            from_others=None if apart is None or not _has_others(one, used) else relative(-apart),
        )
        for one, plan, apart in zip(used, said, moved.apart, strict=True)
    ]
    others = tuple(_others(used, bare, after))
    told = {of for one in used for of in (("decode", "prefill") if one.run.of == "request" else (one.run.of,))}
    ends = [(one.before, one.after) for one in others if one.of in told] or [
        (row.prediction.before, row.prediction.after) for row in rows
    ]
    report = CalibrationReport(
        machine=bare.name,
        engine=subject.engine,
        runs=tuple(rows),
        others=others,
        before=median(before.high / before.low for before, _ in ends),
        after=median(after.high / after.low for _, after in ends),
        factors=tuple(_factors(moved.factors)),
        refused=tuple(refused),
    )
    return Calibration(after, report)


def _has_others(one: _Used, used: Sequence[_Used]) -> bool:
    """Whether other runs say something of what a run measured: steps say nothing of prompts."""
    return any(other is not one and (one.run.of in (other.run.of, "request") or other.run.of == "request")
               for other in used)  # fmt: skip


def runs_by_hand(decode: float | None, prefill: float | None) -> Iterator[MeasuredRun]:
    """Yield the runs of speeds that somebody gives, in tokens/s. Raises UsageError for what is none."""
    given: tuple[tuple[Measured, float | None], ...] = (("decode", decode), ("prefill", prefill))
    for of, speed in given:
        if speed is None:
            continue
        if isinstance(speed, bool) or not isinstance(speed, int | float) or not isfinite(speed) or not 0 < speed < 1e9:
            raise UsageError("not a speed", field=of, value=speed, remedy="write tokens/s")
        yield MeasuredRun(of, float(speed), "by hand")


def _sorted(
    subject: CalibrationSubject, runs: Iterable[MeasuredRun | RefusedResult]
) -> tuple[list[_Used], list[RefusedRow]]:
    """Return the runs that are used, and the rows that are not, with why."""
    used, refused = list[_Used](), list[RefusedRow]()
    for run in runs:
        if isinstance(run, RefusedResult):
            refused.append(RefusedRow(where=run.where, reason=run.reason))
            continue
        try:
            used.append(_used(run, subject))
        except (UsageError, InfeasibleError, BadInputError) as error:
            refused.append(RefusedRow(where=run.where, reason=str(error)))
    return used, refused


def _used(run: MeasuredRun, subject: CalibrationSubject) -> _Used:
    many = run.options.get("requests")
    plain = replace(run, options={name: value for name, value in run.options.items() if name != "requests"})
    request = request_of_run(plain, subject)
    decide(request)
    work = request.workload
    value = run.value
    if isinstance(many, int):  # as many requests one after the other as the batch has no room for
        value *= work.batch / many
    return _Used(
        request,
        CalibratingRun(
            of=run.of,
            value=value,
            model=request.model.name,
            format=request.weights,
            prompt_tokens=work.prompt_tokens,
            output_tokens=work.output_tokens,
            prefix_tokens=work.prefix_tokens,
            batch=work.batch,
            where=run.where[-200:],
        ),
        run.noise,
    )


def _build(request: PlanRequest[Any], engine: str) -> EngineBuild | None:
    """Return the build that a request is about; None for an engine without a table."""
    if constants_digest(engine) is None:
        return None
    options = request.options
    flash = getattr(options, "flash_attn", None)
    return EngineBuild(
        engine,
        getattr(options, "build_era", None) or "unknown",
        getattr(options, "backend", None) or usual_backend(request.hardware),
        None if flash is None else flash == "on",
    )


def _before(
    bare: Hardware, known: EngineCalibration | None, build: EngineBuild | None, plans: Sequence[Plan]
) -> Factors:
    """Return the factors before the runs: those of the record, and of what it has none. Raises UsageError for runs on
    cards that divide every layer, which are one device to the engine."""
    if len(plans[0].hardware.devices) != len(bare.devices):
        problem = "cards that divide every layer are calibrated as one of them"
        remedy = "compose a machine with one card, and give runs on one"
        raise UsageError(problem, field="hardware", value=bare.name, remedy=remedy)
    phases = (phase for plan in plans for phase in (plan.predicted.decode, plan.predicted.prefill))
    lanes = list(used_lanes(term.resource for phase in phases for term in phase.terms))
    fresh = prior_factors(bare, plans[0].hardware, build, lanes)
    return fresh if known is None else joined(factors_in(known), fresh)


def _linearised(used: Sequence[_Used], plans: Sequence[Plan], before: Factors, build: EngineBuild | None) -> Predict:
    """Return what says how long runs take with given factors, and how that changes with them; `plans`: of the runs, on
    the record without factors."""
    engine = next(name for name, strategy in ENGINES.items() if strategy == used[0].request.strategy)
    runs = tuple(one.run for one in used)
    needed = [_named(one, before) for one in used]

    def seconds(one: _Used, plan: Plan, factors: Factors) -> list[float]:
        known = _document(engine, build, factors, runs)
        scale = engine_model(plan.model).scale
        priced = plan.model_copy(update={"hardware": calibrated(plan.hardware, known, _main(one.request), scale)})
        costs = cost_model(priced)
        if one.run.of != "request":
            return [phase_seconds(priced, costs, one.run.of)]
        whole = predict(priced, costs).request
        assert whole is not None, "predictions of today have it"
        return [whole.seconds.mid]

    def predicted(factors: Factors) -> Linearised:
        runs_priced = zip(used, plans, needed, strict=True)
        return Linearised.stacked(
            [slopes_of(partial(seconds, one, plan), factors, names) for one, plan, names in runs_priced]
        )

    return predicted


def _noise(one: _Used, plan: Plan) -> float:
    """Return the standard deviation of a run beside what constants explain of accelerators alone."""
    phase = plan.predicted.prefill if one.run.of == "prefill" else plan.predicted.decode
    hosts = {device.name for device in plan.hardware.devices if device.kind == "cpu"}
    beside = sum(term.seconds.mid for term in phase.terms if term.resource in hosts)
    return hypot(one.noise, HOST_DOUBT if beside > _BESIDE * phase.seconds.mid else 0.0)


_BESIDE = 0.1
"""Part of a pass that a processor must have for its doubts to count."""


def _main(request: PlanRequest[Any]) -> StoredFormat:
    """Return the format of most weights."""
    return next(iter(format_sizes(request.model, request.formats)), request.weights)


def _named(one: _Used, factors: Factors) -> list[str]:
    """Return the factors that a run can depend on: of its phases, and of its weights' formats."""
    families = {family_of(fmt) for fmt in (one.request.weights, *one.request.formats.values())}
    shares = {f"share.{family}" for family in families} | {f"prompt.{'16' if f == '16' else '4'}" for f in families}
    phase = {"decode": DECODE, "prefill": PROMPT, "request": (*DECODE, *PROMPT)}[one.run.of]
    wanted = {name for name in phase if not name.startswith(("share.", "prompt.")) or name in shares} | {"link"}
    return [name for name in factors.names if name.rpartition(":")[2] in wanted]


def _plan(one: _Used, hardware: Hardware) -> Plan:
    return decide(replace(one.request, hardware=hardware)).plan


def _document(
    engine: str, build: EngineBuild | None, factors: Factors, runs: Sequence[CalibratingRun]
) -> EngineCalibration:
    return EngineCalibration(
        engine=engine,
        strategy=ENGINES[engine],
        era=None if build is None or build.era == "unknown" else build.era,
        backend=build.backend if build else None,
        flash=build.flash if build else None,
        constants=constants_digest(engine),
        names=factors.names,
        mean=tuple(map(float, factors.mean)),
        covariance=triangle(factors.covariance),
        runs=tuple(runs),
    )


def _record(bare: Hardware, known: EngineCalibration) -> Hardware:
    others = tuple(one for one in bare.calibrations if one.strategy != known.strategy)
    return bare.model_copy(update={"calibrations": (*others, known)})


def _prediction(of: Measured, one: _Used, before: Plan, after: Plan) -> CalibratedPrediction:
    work = one.request.workload
    return CalibratedPrediction(
        of=of,
        model=one.request.model.name,
        format=one.request.weights,
        prompt_tokens=work.prompt_tokens,
        output_tokens=work.output_tokens,
        before=_figure(one.run, of, before),
        after=_figure(one.run, of, after),
    )


def _figure(run: CalibratingRun, of: Measured, plan: Plan) -> Interval:
    """Return what a plan predicts, in the unit of the run's figure."""
    predicted = plan.predicted
    known = predicted.request if of == "request" else predicted.decode if of == "decode" else predicted.prefill
    assert known is not None, "plans of today have it"
    in_unit = run.model_copy(update={"of": of})
    ends = sorted(speed_of(in_unit, end) for end in (known.seconds.low, known.seconds.mid, known.seconds.high))
    return Interval(low=ends[0], mid=ends[1], high=ends[2])


def _others(used: Sequence[_Used], bare: Hardware, after: Hardware) -> Iterator[CalibratedPrediction]:
    """Yield predictions of other work with the runs' models, where it fits: other formats and lengths."""
    made, done = 0, set[tuple[str, str, int]]()
    for one in used:
        for fmt, (prompt, output) in (*((fmt, (512, 128)) for fmt in _OTHER_FORMATS), (_OTHER_FORMATS[0], _LONGER)):
            key = one.request.model.name, fmt, prompt
            if key in done or made >= _MOST_OTHERS:
                continue
            done.add(key)
            try:
                other = _other(one, fmt, prompt, output)
                plans = _plan(other, bare), _plan(other, after)
            except HelmError:
                continue
            yield _prediction("decode", other, *plans).model_copy(update={"format": fmt})
            yield _prediction("prefill", other, *plans).model_copy(update={"format": fmt})
            made += 2


def _other(one: _Used, fmt: str, prompt: int, output: int) -> _Used:
    request = one.request
    weights, formats = resolve_formats(fmt, request.model.name, request.model)
    work = request.workload.model_copy(
        update={"prompt_tokens": prompt, "output_tokens": output, "context": prompt + output, "prefix_tokens": 0}
    )
    other = replace(request, workload=work, weights=weights, formats=formats)
    lengths = {"prompt_tokens": prompt, "output_tokens": output, "prefix_tokens": 0}
    return replace(one, request=other, run=one.run.model_copy(update=lengths))


def _factors(factors: Factors) -> Iterator[CalibratedFactor]:
    for place, name in enumerate(factors.names):
        apart = exp(_Z95 * sqrt(max(0.0, float(factors.covariance[place, place]))))
        by = factors.factor(name)
        yield CalibratedFactor(name=name, factor=by, low=by / apart, high=by * apart)
