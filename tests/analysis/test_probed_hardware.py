"""Intervals at the speeds of runs: probes take the machine's movement out, and what is left is the model's own."""

from collections.abc import Callable, Mapping
from math import exp
from random import Random
from statistics import median

import pytest

from helmsman.analysis.check import check
from helmsman.analysis.probed_hardware import at_probed_rates
from helmsman.hwdb.fit import figure
from helmsman.lowering.graph import Task
from helmsman.lowering.lower import lower
from helmsman.planner.cost.model import CostModel
from helmsman.planner.cost.plan_costs import cost_model
from helmsman.planner.prediction.predict import mean_step, pass_interval, pass_seconds
from helmsman.schemas.between_passes import BetweenPasses
from helmsman.schemas.figures import Figure
from helmsman.schemas.hardware import Efficiency, Hardware
from helmsman.schemas.plan import Plan
from helmsman.schemas.predicted import Interval
from helmsman.schemas.trace import Probe, Trace

DRAWS = 100
MOVING, OWN, WITHIN = 0.15, 0.03, 0.02
"""Standard deviations of logarithms: of the machine's speed, of a product's share of it, of the speed within a run."""
READ = {"cpu": 20e9, "cuda": 100e9}


def exact(value: float) -> Figure:
    return Figure(value=value, p10=value, p90=value, source="test")


@pytest.fixture
def hardware(hardware: Hardware) -> Hardware:
    """The machine of which all is certain but its devices: nothing is assumed between tasks."""
    nothing = exact(0.0)
    between = BetweenPasses(begin={device.name: nothing for device in hardware.devices}, submission=nothing)
    certain = {"bandwidth": exact(2e9), "latency": nothing, "handover": nothing}
    return hardware.model_copy(
        update={
            "between_passes": between,
            "links": tuple(link.model_copy(update=certain) for link in hardware.links),
            "devices": tuple(device.model_copy(update={"join": nothing}) for device in hardware.devices),
        }
    )


def with_figures(hardware: Hardware, reads: Mapping[str, Figure], share: Figure | None = None) -> Hardware:
    """The machine with such plain reads, and with products of such a part of them."""

    def curves(name: str) -> tuple[Efficiency, ...]:
        if share is None:
            return ()
        return (Efficiency(bound="memory", op="linear", format="*", at=(1.0,), share=(share,)),)

    devices = tuple(
        device.model_copy(update={"read": reads[device.name], "efficiency": curves(device.name)})
        for device in hardware.devices
    )
    return hardware.model_copy(update={"devices": devices})


def sampled(value: float, deviation: float, draw: Random, count: int = 37) -> Figure:
    return figure([value * exp(draw.gauss(0.0, deviation)) for _ in range(count)], "test")


def reads_of(*parts: float, run: int = 0) -> list[Probe]:
    """Probes of all devices at such parts of their speeds."""
    return [Probe(what="read", name=name, run=run, value=part * rate) for part in parts for name, rate in READ.items()]


def of_step(plan: Plan, hardware: Hardware) -> Interval:
    return pass_interval(lower(plan, mean_step(plan.workload)), CostModel(hardware))


def width(interval: Interval) -> float:
    return (interval.high - interval.low) / interval.mid


def test_what_the_profile_saw_move_is_not_uncertain_once_it_was_probed(plan: Plan) -> None:
    moved = {name: Figure(value=rate, p10=0.7 * rate, p90=1.3 * rate, source="test") for name, rate in READ.items()}
    share = Figure(value=0.9, p10=0.87, p90=0.93, source="test")
    profiled, still = (with_figures(plan.hardware, reads, share) for reads in (moved, dict.fromkeys(READ, exact(1e9))))
    still = with_figures(still, {name: exact(rate) for name, rate in READ.items()}, share)
    probed = at_probed_rates(profiled, reads_of(1.0, 1.0))
    assert of_step(plan, probed) == of_step(plan, still)
    assert 0.0 < width(of_step(plan, probed)) < width(of_step(plan, profiled)) / 2


def test_the_rate_is_what_was_probed_and_the_rest_stays(plan: Plan) -> None:
    probed = at_probed_rates(plan.hardware, reads_of(0.5, 0.5, run=0) + reads_of(0.7, 0.7, run=1))
    for before, after in zip(plan.hardware.devices, probed.devices, strict=True):
        assert after.read.value == pytest.approx(0.6 * before.read.value)
        assert after.read.p10 == pytest.approx(after.read.value) == pytest.approx(after.read.p90)
        assert after.compute == before.compute
    assert probed.links == plan.hardware.links and probed.memories == plan.hardware.memories


def test_products_with_one_token_are_held_against_those_of_the_profile(plan: Plan) -> None:
    """The device's read rate becomes the probed rate over the share that such products reach in the record: that of the
    matrices' size, and 1 for a format that the record has no curve of."""
    shares = Efficiency(bound="memory", op="linear", format="q4_0", at=(1e6, 3e6), share=(exact(0.8), exact(0.9)))
    devices = tuple(device.model_copy(update={"efficiency": (shares,)}) for device in plan.hardware.devices)
    hardware = plan.hardware.model_copy(update={"devices": devices})
    for size, share, fmt in ((1_000_000, 0.8, "q4_0"), (3_000_000, 0.9, "q4_0"), (3_000_000, 1.0, "bf16")):
        rate = 0.45 * READ["cpu"]
        probe = Probe(what="read", name="cpu", run=0, value=rate, matrix_bytes=size, format=fmt, tokens=1)
        probed = at_probed_rates(hardware, [probe]).devices[0].read.value
        assert probed == pytest.approx(0.45 / share * hardware.devices[0].read.value)


def test_probes_that_differ_around_a_run_widen_and_more_runs_narrow(plan: Plan) -> None:
    alike = of_step(plan, at_probed_rates(plan.hardware, reads_of(1.0, 1.0)))
    one = of_step(plan, at_probed_rates(plan.hardware, reads_of(0.9, 1.1)))
    draw = Random(1)
    pairs = [(1.0 - aside, 1.0 + aside) for aside in (draw.uniform(0.0, 0.1) for _ in range(25))]
    many = [probe for run, pair in enumerate(pairs) for probe in reads_of(*pair, run=run)]
    assert width(alike) < width(of_step(plan, at_probed_rates(plan.hardware, many))) < width(one)


def test_a_single_probe_keeps_the_spread_of_the_profile(plan: Plan) -> None:
    """Nothing says how far it may be from the run."""
    read = at_probed_rates(plan.hardware, reads_of(0.5)).devices[0].read
    profiled = plan.hardware.devices[0].read
    assert (read.p10 / read.value, read.p90 / read.value) == pytest.approx((0.9, 1.1))
    assert read.value == pytest.approx(0.5 * profiled.value)


def test_probed_arithmetic_of_all_at_once_is_a_figure_too(plan: Plan) -> None:
    kept = Figure(value=0.8, p10=0.6, p90=1.0, source="test")
    memories = tuple(memory.model_copy(update={"joint_compute": kept}) for memory in plan.hardware.memories)
    hardware = plan.hardware.model_copy(update={"memories": memories})
    probes = [Probe(what="joint_compute", name="dram", run=0, value=share) for share in (0.6, 0.7)]
    found = at_probed_rates(hardware, probes).memory("dram").joint_compute
    assert found is not None
    assert (found.p10, found.value, found.p90) == pytest.approx((0.6, 0.65, 0.7))


def test_a_joint_probe_has_the_spread_of_its_runs(plan: Plan) -> None:
    joint = Figure(value=2e10, p10=1e10, p90=3e10, source="test")
    memories = tuple(memory.model_copy(update={"joint": joint}) for memory in plan.hardware.memories)
    hardware = plan.hardware.model_copy(update={"memories": memories})
    probes = [Probe(what="joint", name="dram", run=0, value=rate) for rate in (1.1e10, 1.3e10)]
    found = at_probed_rates(hardware, probes).memory("dram")
    assert found.joint is not None and found.bandwidth == hardware.memory("dram").bandwidth
    assert (found.joint.p10, found.joint.value, found.joint.p90) == pytest.approx((1.1e10, 1.2e10, 1.3e10))


def test_runs_without_probes_have_the_interval_of_the_plan(plan: Plan, run: Callable[..., Trace]) -> None:
    assert at_probed_rates(plan.hardware, ()) is plan.hardware
    found = check(plan, cost_model(plan), run(), None, 0.08)
    assert width(found.step_interval) == pytest.approx(width(of_step(plan, plan.hardware)), rel=0.01)
    assert found.inside


def test_a_check_says_whether_the_step_is_inside(plan: Plan, run: Callable[..., Trace]) -> None:
    """Twice as long with probes as profiled: no movement of the machine explains that."""

    def slow(task: Task, number: int) -> float:
        return 1.0 if task.kind == "transfer" else 2.0

    usual, half = tuple(reads_of(0.98, 1.02)), tuple(reads_of(0.49, 0.51))
    calm = check(plan, cost_model(plan), run(probes=usual), None, 0.08)
    missed = check(plan, cost_model(plan), run(slow, probes=usual), None, 0.08)
    explained = check(plan, cost_model(plan), run(slow, probes=half), None, 0.08)
    assert calm.inside and explained.inside and not missed.inside
    assert explained.step_interval.mid == pytest.approx(explained.step.scaled)
    assert calm.ttft_interval is not None and calm.ttft is not None
    assert calm.ttft_interval.mid == pytest.approx(calm.ttft.scaled)


def _machine_now(plan: Plan, speed: float, share: float) -> float:
    """Seconds of a step on the machine while memories have such a speed and products such a part of it."""
    reads = {name: exact(speed * rate) for name, rate in READ.items()}
    hardware = with_figures(plan.hardware, reads, exact(share))
    return pass_seconds(lower(plan, mean_step(plan.workload)), CostModel(hardware))


@pytest.mark.nightly
def test_on_a_machine_whose_memories_move_together_both_intervals_cover_nine_tenths(plan: Plan) -> None:
    """The speed of all memories moves by 15 %, within a run by 2 %; products have a share of their own, of which a
    profile knows 37 samples. Every draw is another profile and another sitting of one run between two probes."""
    draw, raw, scaled, widths = Random(20), 0, 0, []
    for _ in range(DRAWS):
        spells = [exp(draw.gauss(0.0, MOVING)) for _ in range(37)]
        reads = {name: figure([rate * spell for spell in spells], "test") for name, rate in READ.items()}
        profiled = with_figures(plan.hardware, reads, sampled(0.9, OWN, draw, 37))
        now, share = exp(draw.gauss(0.0, MOVING)), 0.9 * exp(draw.gauss(0.0, OWN))
        before, during, after = (now * exp(draw.gauss(0.0, WITHIN)) for _ in range(3))
        took = _machine_now(plan, during, share)
        planned, probed = of_step(plan, profiled), of_step(plan, at_probed_rates(profiled, reads_of(before, after)))
        raw += planned.low <= took <= planned.high
        scaled += probed.low <= took <= probed.high
        widths.append(width(probed) / width(planned))
    assert 0.85 <= raw / DRAWS <= 0.97
    assert 0.85 <= scaled / DRAWS <= 0.97
    assert median(widths) < 0.6
