"""check: predicted, simulated and measured seconds of a plan, joined by task (MIS-06, HELM-83, E-HELM-11).

Every error is signed, (measured - predicted) / predicted; the median over all measured passes is reported. Judged are
the decode step and, where prompts were run, the whole request, which is what plans are chosen by. Runs from which other
processes took more than 8 % of the time are judged neither way: an error beyond the tolerance may be the others', and
one within it may be a prediction too slow beside a run too slow. Nor is an error beyond the tolerance that is within
twice the noise: such runs differ by as much among themselves."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from helmsman.analysis.attribution import difference, prompt_groups
from helmsman.analysis.expected_pass import check_belongs, check_tasks, expect, workload_of
from helmsman.analysis.passes import MeasuredPass, passes_of, prompts, requests
from helmsman.analysis.probed_hardware import at_probed_rates
from helmsman.analysis.rows import Key, Sample, make_row
from helmsman.analysis.scaling import Scaling
from helmsman.hwdb.machine_line import MachineFacts, facts_in
from helmsman.hwdb.percentiles import ENDS
from helmsman.planner.cost.model import CostModel
from helmsman.planner.prediction.predict import pass_interval
from helmsman.schemas.check_report import CheckedTerm, ErrorParts
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.figures import DISTURBED
from helmsman.schemas.plan import Plan
from helmsman.schemas.predicted import Interval
from helmsman.schemas.served_comparison import Verdict
from helmsman.schemas.trace import Trace
from helmsman.simulator.stream import Progress

_NOISES = 2.0
_DISTURBANCE = "disturbance."
"""Notes on runs that begin so hold the share of time that others took from them."""
_OTHERS = "others_cpu_share."
"""Notes on runs that begin so hold the others' share of all processor time."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The terms, the totals, and the verdict on those that are judged: |scaled error| <= tolerance.

    `others`: the largest share of processor time that other processes took during a run, if it was recorded;
    `disturbance`: the median over the runs of the share of the time that others took (`executor.system.interference`),
    0 where nothing was recorded; `step_difference`, `ttft_difference`: which terms make the errors; `step_interval`,
    `ttft_interval`: seconds at the speeds of the runs, 5th percentile, median and 95th; `machine`: the one that ran, if
    the Trace says which; `engine`: another than Helm's executor that ran."""

    terms: tuple[CheckedTerm, ...]
    step: CheckedTerm
    ttft: CheckedTerm | None
    request: CheckedTerm | None
    runs: int
    factors: dict[str, float]
    others: float | None
    disturbance: float
    tolerance: float
    step_difference: ErrorParts
    ttft_difference: ErrorParts | None
    step_interval: Interval
    ttft_interval: Interval | None
    machine: MachineFacts | None = None
    engine: str | None = None

    @property
    def judged(self) -> tuple[CheckedTerm, ...]:
        """Return the rows that the verdict judges: the decode step and, where prompts were run, the request."""
        return (self.step,) if self.request is None else (self.step, self.request)

    @property
    def beyond(self) -> tuple[CheckedTerm, ...]:
        """Return the judged rows whose scaled error is beyond the tolerance."""
        return tuple(row for row in self.judged if not _is_within(row, self.tolerance))

    @property
    def missed(self) -> tuple[CheckedTerm, ...]:
        """Return the rows beyond the tolerance whose scaled error is beyond twice the noise of the runs, too."""
        return tuple(row for row in self.beyond if not _is_within(row, _NOISES * row.noise))

    @property
    def inside(self) -> bool:
        """Whether the median step lies in the interval of what was expected at the speeds of the runs."""
        expected, error = self.step_interval, self.step.scaled_error
        return error is not None and expected.low <= (1.0 + error) * expected.mid <= expected.high

    @property
    def verdict(self) -> Verdict:
        """Whether the plan passed or missed; `disturbed` where half of the runs were disturbed, or where they differ
        among themselves by as much as they are off."""
        if self.disturbance > DISTURBED:
            return "disturbed"
        if not self.beyond:
            return "passed"
        return "missed" if self.missed else "disturbed"

    @property
    def passed(self) -> bool:
        """Whether undisturbed runs were within the tolerance."""
        return self.verdict == "passed"


def _is_within(row: CheckedTerm, largest: float) -> bool:
    return row.scaled_error is not None and abs(row.scaled_error) <= largest


def check(
    plan: Plan,
    costs: CostModel,
    measured: Trace,
    simulated: Trace | None,
    tolerance: float,
    files: tuple[str, str] = ("measured", "simulated"),
    progress: Progress = iter,
) -> CheckResult:
    """Compare; without `simulated` the plan is replayed; `files` names the two Traces in errors.

    Raises BadInputError for Traces of another plan or kind, of other tasks, or without a decode step."""
    check_belongs(plan, measured, "measured", files[0])
    if simulated is not None:
        check_belongs(plan, simulated, "simulated", files[1])
    workload = workload_of(plan, measured, files[0])
    iterations = sorted({span.iteration for span in measured.spans})
    if all(span.phase == "prefill" for span in measured.spans):
        raise BadInputError("no decode step in the Trace", file=files[0], remedy="run 2 or more output tokens")
    wanted = set(iterations)
    virtual = [span for span in simulated.spans if span.iteration in wanted] if simulated else []
    expected = expect(plan, workload, costs, iterations, virtual, progress)
    check_tasks(measured.spans, expected, files[0])
    check_tasks(virtual, expected, files[1])
    scaling = Scaling(plan.hardware, measured.info.probes)
    passes = passes_of(measured.spans, expected, scaling)
    probed = replace(costs, hardware=at_probed_rates(costs.hardware, measured.info.probes))
    compared = _compare(passes, scaling, probed, measured, tolerance)
    engine = measured.info.notes.get("engine")
    return replace(
        compared, machine=facts_in(measured.info.notes), engine=None if engine is None else str(engine)[:200]
    )


def _compare(
    passes: Sequence[MeasuredPass], scaling: Scaling, probed: CostModel, measured: Trace, tolerance: float
) -> CheckResult:
    """`probed`: prices at the rates that probes read beside the runs."""
    steps = [one for one in passes if one.phase == "decode"]
    middle = sorted(steps, key=lambda one: one.expected.graph.iteration.context)[len(steps) // 2]
    step = make_row(("decode", "step", ""), [one.total() for one in steps])
    first = prompts(passes)
    ttft = make_row(("prefill", "ttft", ""), first) if first else None
    request = make_row(("all", "request", ""), requests(passes)) if first else None
    terms: dict[Key, list[Sample]] = {}
    for one in passes:
        for key, sample in one.terms().items():
            terms.setdefault(key, []).append(sample)
    prompted = prompt_groups(passes)
    return CheckResult(
        terms=tuple(make_row(key, samples) for key, samples in terms.items()),
        step=step,
        ttft=ttft,
        request=request,
        runs=len({one.run for one in passes}),
        factors=scaling.factors(),
        others=others_of(measured),
        disturbance=disturbance_of(measured),
        tolerance=tolerance,
        step_difference=difference([[one] for one in passes if one.phase == "decode"]),
        ttft_difference=difference(prompted) if prompted else None,
        step_interval=_interval(step, [middle], probed),
        ttft_interval=None if ttft is None else _interval(ttft, prompted[0], probed),
    )


def _interval(row: CheckedTerm, passes: Sequence[MeasuredPass], probed: CostModel) -> Interval:
    """Return the interval of what `row` expects at the speeds of the runs, as wide as that of `passes` there."""
    intervals = [pass_interval(one.expected.graph, probed) for one in passes]
    ends = {end: sum(getattr(interval, end) for interval in intervals) for end in ENDS}
    return Interval(**{end: row.scaled * seconds / ends["mid"] for end, seconds in ends.items()})


def others_of(measured: Trace) -> float | None:
    """Return the largest share of processor time that other processes took during a run, if it was recorded."""
    return max(_noted(measured, _OTHERS), default=None)


def disturbance_of(measured: Trace) -> float:
    """Return the median over runs of the share of the time that others took; of Traces of before it was noted, of the
    others' share of processor time."""
    shares = _noted(measured, _DISTURBANCE) or _noted(measured, _OTHERS)
    return median(shares) if shares else 0.0


def _noted(measured: Trace, prefix: str) -> list[float]:
    notes = measured.info.notes.items()
    return [float(value) for name, value in notes if name.startswith(prefix) and not isinstance(value, str)]
