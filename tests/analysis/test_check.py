from collections.abc import Callable
from dataclasses import replace

import pytest

from helmsman.analysis.attribution import BETWEEN, critical_path
from helmsman.analysis.check import CheckResult, check
from helmsman.analysis.report import document, table, verdict
from helmsman.analysis.scaling import Scaling
from helmsman.hwdb.machine_line import MachineFacts
from helmsman.lowering.graph import Task
from helmsman.lowering.lower import lower
from helmsman.planner.cost.device_rates import product_rate
from helmsman.planner.cost.model import CostModel
from helmsman.planner.cost.plan_costs import cost_model
from helmsman.scheduler.iteration import decode, prefill
from helmsman.schemas.check_report import CheckedTerm
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.hardware import Figure, Hardware
from helmsman.schemas.plan import ComputeRule, Plan, Schedule, Select
from helmsman.schemas.read import digest
from helmsman.schemas.trace import Probe, Trace, TraceInfo
from helmsman.simulator.pricing import median_price
from helmsman.simulator.stream import timeline

Run = Callable[..., Trace]


def figure(value: float) -> Figure:
    return Figure(value=value, p10=value, p90=value, source="test")


def checked(plan: Plan, measured: Trace, simulated: Trace | None = None, tolerance: float = 0.08) -> CheckResult:
    return check(plan, cost_model(plan), measured, simulated, tolerance)


def row(found: CheckResult, phase: str, op: str, resource: str) -> CheckedTerm:
    return next(r for r in found.terms if (r.phase, r.op, r.resource) == (phase, op, resource))


def test_a_run_at_its_prices_has_no_error(plan: Plan, run: Run) -> None:
    found = checked(plan, run(runs=3))
    assert found.passed and found.runs == 3
    for term in (*found.terms, found.step, found.ttft):
        assert term is not None and term.noise == pytest.approx(0.0, abs=1e-6)
        assert term.measured == pytest.approx(term.predicted) == pytest.approx(term.simulated)
        if term.op != "idle":
            assert term.error == pytest.approx(0.0, abs=1e-6)
            assert term.scaled_error == pytest.approx(0.0, abs=1e-6)


def test_the_error_is_signed_and_relative_to_the_prediction(plan: Plan, run: Run) -> None:
    """E-HELM-11: (measured - predicted) / predicted."""

    def slow(task: Task, run: int) -> float:
        return 1.25 if task.op == "down" else 0.5 if task.op == "q" and task.resource == "cpu" else 1.0

    found = checked(plan, run(slow, runs=2))
    assert row(found, "decode", "down", "cpu").error == pytest.approx(0.25)
    assert row(found, "decode", "down", "cuda").error == pytest.approx(0.25)
    assert row(found, "decode", "q", "cpu").error == pytest.approx(-0.5)
    assert row(found, "prefill", "q", "cpu").error == pytest.approx(-0.5)
    assert row(found, "decode", "q", "cuda").error == pytest.approx(0.0, abs=1e-9)


def test_terms_add_up_to_the_totals(plan: Plan, run: Run) -> None:
    found = checked(plan, run(lambda task, run: 1.1, gap=1e-6))
    for total, phase in ((found.step, "decode"), (found.ttft, "prefill")):
        assert total is not None
        terms = [term for term in found.terms if term.phase == phase]
        assert sum(term.measured for term in terms) == pytest.approx(total.measured)
        assert sum(term.predicted for term in terms) == pytest.approx(total.predicted)
        assert row(found, phase, "idle", "").measured == pytest.approx(1e-6)
        assert total.tasks == sum(term.tasks for term in terms)


def test_time_between_passes_counts_in_the_step_and_in_the_first_token(plan: Plan, run: Run) -> None:
    calm, late = checked(plan, run()), checked(plan, run(gap=5e-6))
    assert late.step.measured - calm.step.measured == pytest.approx(5e-6)
    assert late.ttft is not None and calm.ttft is not None
    assert late.ttft.measured - calm.ttft.measured == pytest.approx(5e-6)


def probes(read: float, link: float, run: int = 0) -> tuple[Probe, ...]:
    reads = (
        Probe(what="read", name="cpu", run=run, value=20e9 * read),
        Probe(what="read", name="cuda", run=run, value=100e9 * read),
    )
    links = tuple(Probe(what="link", name=name, run=run, value=2e9 * link) for name in ("h2d", "d2h"))
    return reads + links


def test_a_slow_memory_is_scaled_away_and_the_raw_error_stays(plan: Plan, run: Run) -> None:
    """Half the bandwidth in run 1: memory-bound work takes twice as long, and that is no error."""

    def slow(task: Task, number: int) -> float:
        return 2.0 if number == 1 and task.kind != "transfer" else 1.0

    found = checked(plan, run(slow, runs=2, probes=probes(1.0, 1.0) + probes(0.5, 1.0, run=1)))
    assert found.step.error is not None and found.step.error > 0.3
    assert found.step.scaled_error == pytest.approx(0.0, abs=1e-6)
    assert found.step.noise == pytest.approx(0.0, abs=1e-6)
    assert found.factors["read cpu"] == pytest.approx(0.75)
    assert found.passed


@pytest.fixture
def with_overhead(plan: Plan) -> Plan:
    """`plan` on devices with 100 us of overhead per operation and slow elementwise work."""
    extra = {"overhead": figure(1e-4), "elementwise": figure(1e8)}
    devices = tuple(device.model_copy(update=extra) for device in plan.hardware.devices)
    return plan.model_copy(update={"hardware": plan.hardware.model_copy(update={"devices": devices})})


def test_overhead_and_elementwise_seconds_are_not_scaled(with_overhead: Plan) -> None:
    """A third of the bandwidth: only bytes / bandwidth takes three times as long."""
    costs = cost_model(with_overhead)
    scaling = Scaling(with_overhead.hardware, probes(1 / 3, 1.0))
    rates = {"cpu": 20e9, "cuda": 100e9}
    graph = lower(with_overhead, decode(with_overhead.workload, 1))
    assert {"norm", "linear", "attention", "lookup"} <= {task.kind for task in graph.tasks if task.bytes}
    for task in graph.tasks:
        estimate = costs.price(task)
        more = 0.0 if task.kind == "transfer" or not task.bytes else 2 * task.bytes / rates[task.resource]
        if estimate.memory or task.kind in ("transfer", "linear"):
            assert scaling.seconds(0, task, estimate) == pytest.approx(estimate.mid + more, rel=1e-12)
        else:
            assert scaling.seconds(0, task, estimate) == estimate.mid


def test_what_arithmetic_bounds_is_scaled_by_a_product(plan: Plan) -> None:
    """Half the FLOP/s: seconds that are FLOPs over a rate take twice as long, bytes and transfers what they took."""
    costs = cost_model(plan)
    device = plan.hardware.device("cuda")
    rate = product_rate(device, "decode", "f16", 64)
    slow = Probe(what="compute", name="cuda", run=0, value=rate / 2, format="f16", tokens=64)
    scaling = Scaling(plan.hardware, (slow,))
    assert scaling.factors() == {"compute cuda": pytest.approx(0.5)}
    seen = set()
    for task in lower(plan, prefill(plan.workload)).tasks:
        estimate = costs.price(task)
        computing = estimate.mid if estimate.bound == "compute" and task.resource == "cuda" else 0.0
        seen.add(computing > 0.0)
        assert scaling.seconds(0, task, estimate) == pytest.approx(estimate.mid + computing, rel=1e-12)
    assert seen == {True, False}


def test_a_product_without_its_tokens_says_nothing(plan: Plan) -> None:
    assert Scaling(plan.hardware, (Probe(what="compute", name="cuda", run=0, value=1e9),)).factors() == {}


def test_only_the_bytes_of_a_transfer_are_scaled(plan: Plan, run: Run) -> None:
    def slow(task: Task, number: int) -> float:
        if task.kind != "transfer":
            return 1.0
        seconds = CostModel(plan.hardware).price(task).mid
        return (2e-6 + task.bytes / 1e9) / seconds

    found = checked(plan, run(slow, probes=probes(1.0, 0.5)))
    assert row(found, "prefill", "hidden", "h2d").scaled_error == pytest.approx(0.0, abs=1e-9)
    assert row(found, "prefill", "hidden", "h2d").error == pytest.approx(512 / 2514, rel=1e-3)


def test_probes_of_devices_that_the_plan_lacks_are_ignored(plan: Plan, run: Run) -> None:
    strange = (Probe(what="read", name="tpu", run=0, value=1.0), Probe(what="link", name="cpu", run=0, value=1.0))
    assert checked(plan, run(probes=strange)).factors == {}


def test_runs_that_scatter_by_as_much_as_they_are_off_are_not_judged(plan: Plan, run: Run) -> None:
    speeds = (1.0, 1.1, 1.2)
    found = checked(plan, run(lambda task, run: speeds[run], runs=3))
    assert found.step.scaled_error == pytest.approx(0.1)
    assert found.step.noise == pytest.approx(0.08 / 1.1)
    assert found.step.pairs == pytest.approx((0.1 + 0.1 / 1.1) / 2)
    assert found.verdict == "disturbed" and not found.passed
    assert "not judged, runs differ by as much among themselves" in verdict(found)
    steady = checked(plan, run(lambda task, run: 1.1, runs=3))
    assert steady.verdict == "missed"
    assert checked(plan, run(lambda task, run: speeds[run] / 1.1, runs=3)).passed


@pytest.mark.parametrize(("factor", "passed"), [(1.07, True), (1.09, False), (0.93, True), (0.91, False)])
def test_the_verdict_is_on_the_decode_step(plan: Plan, run: Run, factor: float, passed: bool) -> None:
    def slow(task: Task, run: int) -> float:
        return factor if task.phase == "decode" else 1.0

    assert checked(plan, run(slow, runs=2)).passed is passed


def test_the_verdict_is_on_the_request_too(plan: Plan, run: Run) -> None:
    """Steps as promised do not make up for a first token that comes late."""

    def slow(task: Task, run: int) -> float:
        return 3.0 if task.phase == "prefill" else 1.0

    found = checked(plan, run(slow, runs=2))
    assert found.request is not None and found.ttft is not None
    assert found.request.scaled_error == pytest.approx(2.0 * found.ttft.scaled / found.request.scaled, rel=1e-6)
    assert found.verdict == "missed" and [each.op for each in found.missed] == ["request"]
    assert "BEYOND 8.0%; TTFT of +" in verdict(found)


def test_a_single_run_takes_its_noise_from_its_steps(plan: Plan, run: Run) -> None:
    found = checked(plan, run(lambda task, run: 1.0 + 0.1 * task.step))
    assert found.step.noise == pytest.approx(0.4 * 0.4 / 1.3) and found.step.pairs is None


@pytest.mark.parametrize(
    ("renamed", "said"),
    [
        (lambda task: "2/9.q" if task == "2/0.q" else task, ["1 not executed, the first '2/0.q'", "'2/9.q'"]),
        (
            lambda task: task + "x",
            ["not executed, the first '0/embedding'", "not in the plan, the first '0/embeddingx'"],
        ),
        (lambda task: "2/0.q" if task == "2/0.k" else task, ["1 not executed", "1 executed twice in a pass"]),
    ],
)
def test_missing_and_unknown_tasks_are_refused(
    plan: Plan, run: Run, renamed: Callable[[str], str], said: list[str]
) -> None:
    trace = run()
    other = Trace(trace.info, [replace(span, task=renamed(span.task)) for span in trace.spans])
    with pytest.raises(BadInputError) as caught:
        checked(plan, other)
    assert all(part in str(caught.value) for part in said) and caught.value.remedy
    assert caught.value.file == "measured"
    simulated = Trace(trace.info.model_copy(update={"source": "simulated"}), other.spans)
    with pytest.raises(BadInputError) as caught:
        checked(plan, trace, simulated)
    assert caught.value.file == "simulated"


def test_a_task_missing_in_one_run_only_is_refused(plan: Plan, run: Run) -> None:
    trace = run(runs=2)
    spans = [span for span in trace.spans if (span.run, span.task) != (1, "5/head")]
    with pytest.raises(BadInputError, match="1 not executed, the first '5/head'"):
        checked(plan, Trace(trace.info, spans))


def test_another_prompt_length_is_lowered_as_it_was_run(plan: Plan, run: Run) -> None:
    found = checked(plan, run(workload=plan.workload.model_copy(update={"prompt_tokens": 11, "output_tokens": 4})))
    assert found.step.error == pytest.approx(0.0, abs=1e-9)


def test_the_simulated_trace_is_used_where_it_is_given(plan: Plan, run: Run) -> None:
    price = median_price(plan)
    rows = list(timeline(plan, lambda task: 2.0 * price(task), cost_model(plan).between(), 2))
    info = TraceInfo(source="simulated", plan_sha256=digest(plan))
    found = checked(plan, run(), Trace(info, [span for span in rows if span.iteration < 2]))
    assert found.ttft is not None
    assert found.ttft.simulated == pytest.approx(2 * found.ttft.predicted)
    assert found.step.simulated == pytest.approx(found.step.predicted, rel=0.02)


def test_a_plan_that_overlaps_is_checked_against_its_schedule(plan: Plan) -> None:
    """The total is the length of the schedule, not the sum of its terms."""
    rules = (ComputeRule(select=Select(names="embedding"), device="cpu"), ComputeRule(select=Select(), device="cuda"))
    schedule = Schedule(overlap="next-layer", prefetch=3)
    streamed = plan.model_copy(update={"compute": rules, "schedule": schedule})
    spans = [
        replace(s, source="measured")
        for s in timeline(streamed, median_price(streamed), cost_model(streamed).between(), 5)
    ]
    found = checked(streamed, Trace(TraceInfo(source="measured", plan_sha256=digest(streamed)), spans))
    assert found.step.measured == pytest.approx(found.step.simulated)
    assert found.step.error == pytest.approx(0.0, abs=1e-3)
    assert found.step.predicted < 0.97 * sum(t.predicted for t in found.terms if t.phase == "decode")


def test_a_trace_of_another_plan_is_refused(plan: Plan, run: Run) -> None:
    trace = run()
    other = Trace(trace.info.model_copy(update={"plan_sha256": "0" * 64}), trace.spans)
    with pytest.raises(BadInputError, match="another plan"):
        checked(plan, other)
    simulated = Trace(TraceInfo(source="simulated", plan_sha256="0" * 64), trace.spans)
    with pytest.raises(BadInputError, match="another plan"):
        checked(plan, trace, simulated)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": "simulated"}, "not a measured Trace"),
        ({"notes": {"prompt_tokens": "many"}}, "not a prompt"),
        ({"notes": {"prompt_tokens": 21}}, "not a prompt"),
        ({"notes": {"prompt_tokens": 16}}, "beyond the plan's context"),
    ],
)
def test_a_trace_that_cannot_be_of_the_plan_is_refused(
    plan: Plan, run: Run, change: dict[str, str], message: str
) -> None:
    trace = run()
    with pytest.raises(BadInputError, match=message):
        checked(plan, Trace(trace.info.model_copy(update=change), trace.spans))


def test_a_trace_without_spans_or_decode_steps_is_refused(plan: Plan, run: Run) -> None:
    trace = run()
    with pytest.raises(BadInputError, match="no spans"):
        checked(plan, Trace(trace.info, []))
    with pytest.raises(BadInputError, match="no decode step"):
        checked(plan, Trace(trace.info, [span for span in trace.spans if span.iteration == 0]))


def test_decode_alone_can_be_checked(plan: Plan, run: Run) -> None:
    trace = run(lambda task, run: 1.05)
    found = checked(plan, Trace(trace.info, [span for span in trace.spans if span.iteration > 0]))
    assert found.ttft is None and found.step.error == pytest.approx(0.05)
    assert document(plan, found).ttft is None


def test_the_document_and_the_table_agree(plan: Plan, run: Run) -> None:
    found = checked(plan, run(lambda task, run: 1.2, runs=2, probes=probes(1.0, 1.0)))
    content, text = document(plan, found).to_dict(), table(plan, found)
    assert content["passed"] is False and content["step"]["scaled_error"] == pytest.approx(0.2)
    assert "BEYOND 8.0%" in text and "+20.0%" in text and "read cpu: 1.000" in text
    assert [term["phase"] for term in content["terms"]] == sorted(term["phase"] for term in content["terms"])


def test_a_machine_with_a_long_line_is_reported(plan: Plan, run: Run) -> None:
    """A profile reads with 1, 2, 4 and more threads, and says so in a line; a Trace may note a strange processor."""
    cores = 128
    rates = {threads: 1e9 * threads for threads in (1, 2, 4, 8, 16, 32, 64, 128)}
    facts = MachineFacts("an eight-letter name " * 9, cores, ("avx512bf16", "avx2"), rates)
    elsewhere = replace(checked(plan, run(runs=2)), machine=facts)
    assert len(str(facts)) > 250 and document(plan, elsewhere).ran_on == str(facts)


def test_a_trace_without_probes_says_so(plan: Plan, run: Run) -> None:
    assert "no probes" in table(plan, checked(plan, run()))


@pytest.mark.parametrize(("share", "said"), [(0.05, False), (0.4, True)])
def test_a_disturbed_run_is_pointed_out(plan: Plan, run: Run, share: float, said: bool) -> None:
    trace = run(runs=2)
    notes = {**trace.info.notes, "others_cpu_share.0": 0.01, "others_cpu_share.1": share}
    found = checked(plan, Trace(trace.info.model_copy(update={"notes": notes}), trace.spans))
    assert found.others == share
    assert ("disturbed" in table(plan, found)) is said


def noted(trace: Trace, **notes: float) -> Trace:
    """The same Trace with more notes, whose dots are written as underscores of their last part."""
    named = {f"{name[:-2]}.{name[-1]}": value for name, value in notes.items()}
    return Trace(trace.info.model_copy(update={"notes": {**trace.info.notes, **named}}), trace.spans)


def test_disturbed_runs_neither_pass_nor_miss(plan: Plan, run: Run) -> None:
    for slow in (1.0, 1.3):
        found = checked(
            plan, noted(run(lambda task, run, slow=slow: slow, runs=2), disturbance_0=0.2, disturbance_1=0.3)
        )
        assert found.verdict == "disturbed" and not found.passed and (not found.beyond) is (slow == 1.0)
        assert "not judged, others took 25% of the time" in table(plan, found)
        assert document(plan, found).verdict == "disturbed"


def test_one_disturbed_run_of_three_moves_no_median(plan: Plan, run: Run) -> None:
    notes = dict(disturbance_0=0.01, disturbance_1=0.6, disturbance_2=0.0)
    assert checked(plan, noted(run(runs=3), **notes)).verdict == "passed"
    assert checked(plan, noted(run(lambda task, run: 1.3, runs=3), **notes)).verdict == "missed"


def test_a_miss_names_the_terms_that_missed(plan: Plan, run: Run) -> None:
    def slow(task: Task, run: int) -> float:
        return 2.0 if task.op == "down" and task.resource == "cpu" else 1.2 if task.op == "head" else 1.0

    found = checked(plan, run(slow, runs=2, gap=1e-8))
    made = found.step_difference
    assert made.seconds == pytest.approx(found.step.measured - found.step.scaled)
    assert sum(part.seconds for part in made.parts) == pytest.approx(made.seconds)
    parts = {(part.op, part.resource): part.seconds for part in made.parts}
    down, head = row(found, "decode", "down", "cpu"), row(found, "decode", "head", "cuda")
    assert parts["down", "cpu"] == pytest.approx(down.measured - down.predicted)
    assert parts["head", "cuda"] == pytest.approx(head.measured - head.predicted)
    assert sum(seconds for (op, _), seconds in parts.items() if op == BETWEEN) == pytest.approx(1e-8)
    assert "; of +" in verdict(found) and "down on cpu +" in verdict(found)
    assert document(plan, found).step_difference.parts[0].seconds == made.parts[0].seconds
    assert found.ttft_difference is not None and found.ttft is not None
    assert found.ttft_difference.seconds == pytest.approx(found.ttft.measured - found.ttft.scaled)


def test_a_run_at_its_prices_has_no_difference(plan: Plan, run: Run) -> None:
    made = checked(plan, run(runs=3)).step_difference
    assert made.seconds == pytest.approx(0.0, abs=1e-12)
    assert all(abs(part.seconds) < 1e-12 for part in made.parts)


def test_what_nobody_waits_for_makes_no_difference(hardware: Hardware) -> None:
    """Two lanes at once: what is slower on the one that ends first is in no part, until it ends last."""
    tasks = [lane_task("up", "cpu"), lane_task("gate", "cuda"), lane_task("down", "cpu", (0, 1))]

    def terms(*ends: float) -> dict[tuple[str, str], float]:
        moments = [(0.0, ends[0]), (0.0, ends[1]), (max(ends) + 0.5, max(ends) + 1.5)]
        return {term: seconds for term, seconds in critical_path(tasks, moments, 0.0) if seconds}

    last = {("down", "cpu"): 1.0, (BETWEEN, "cpu"): 0.5}
    assert terms(4.0, 1.0) == terms(4.0, 3.0) == {("up", "cpu"): 4.0, **last}
    assert terms(4.0, 5.0) == {("gate", "cuda"): 5.0, **last}


def lane_task(op: str, resource: str, deps: tuple[int, ...] = ()) -> Task:
    return Task("linear", op, "decode", resource, 1, 1, 1, 1, "f16", ("dram",), layer=0, deps=deps)
