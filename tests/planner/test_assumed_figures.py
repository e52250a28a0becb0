"""What is assumed of devices that nobody measured together: medians stay, intervals of plans that cross are wider."""

from dataclasses import replace

import pytest
from plans import figure, make_hardware, make_plan
from shapes import small_model

from helmsman.hwdb.compose import GIB, compose
from helmsman.hwdb.percentiles import STRETCH, End, duration_at, rate_at
from helmsman.planner.cost.assumed_figures import (
    GPU_HANDOVER_S,
    INTERRUPTED,
    JOINT_SHARE,
    KEPT,
    LOOPBACK_HANDOVER_S,
    PASS_S,
    with_assumed,
)
from helmsman.planner.cost.model import CostModel, CostOptions
from helmsman.planner.prediction.predict import predict
from helmsman.planner.prediction.sensitivity import HANDOVERS, sensitivity
from helmsman.schemas.between_passes import BetweenPasses
from helmsman.schemas.figures import Figure
from helmsman.schemas.hardware import Hardware

MODEL = small_model("qwen3")
SPREAD = Figure(value=4.0, p10=2.0, p90=5.0, source="test")


def gpu_machine() -> Hardware:
    return compose("RTX 4090", "Ryzen 9 7950X", 64 * GIB, None)


def test_seconds_and_rates_go_from_the_tenth_to_the_fifth_percentile_by_one_rule() -> None:
    assert duration_at(SPREAD, "low") == pytest.approx(4.0 - STRETCH * 2.0)
    assert duration_at(SPREAD, "high") == pytest.approx(4.0 + STRETCH * 1.0)
    assert duration_at(Figure(value=1.0, p10=0.0, p90=1.0, source="test"), "low") == 0.0
    assert rate_at(SPREAD, "low") == pytest.approx(4.0 / 2.0**STRETCH)
    assert duration_at(SPREAD, "mid") == rate_at(SPREAD, "mid") == 4.0


def test_handovers_joins_and_joint_rates_are_at_the_same_percentiles_as_prices() -> None:
    machine = make_hardware(vram=8 << 30)
    late = Figure(value=4e-6, p10=2e-6, p90=5e-6, source="test")
    rate = Figure(value=1e10, p10=5e9, p90=2e10, source="test")
    machine = machine.model_copy(
        update={
            "links": tuple(link.model_copy(update={"handover": late}) for link in machine.links),
            "devices": tuple(device.model_copy(update={"join": late}) for device in machine.devices),
            "memories": tuple(memory.model_copy(update={"joint": rate}) for memory in machine.memories),
        }
    )
    costs = CostModel(machine)
    link, device = machine.links[0].name, machine.devices[0].name
    for end, added in (("low", -2e-6), ("mid", 0.0), ("high", 1e-6)):
        seconds = pytest.approx(4e-6 + STRETCH * added)
        assert costs.between(end).after(link, device) == seconds
        assert costs.between(end).join(device) == seconds
    slow, fast = costs.pools_at("high").capacity, costs.pools_at("low").capacity
    memory = machine.memories[0].name
    assert slow[memory] == pytest.approx(1e10 / 2**STRETCH) and fast[memory] == pytest.approx(1e10 * 2**STRETCH)


def test_a_gpu_behind_a_link_hands_over_late_and_shares_no_memory_with_the_processor() -> None:
    machine = gpu_machine()
    assumed = with_assumed(machine)
    assert [link.handover.p90 for link in assumed.links if link.handover] == [GPU_HANDOVER_S] * len(machine.links)
    assert [device.join.p90 for device in assumed.devices if device.join] == [GPU_HANDOVER_S] * len(machine.devices)
    assert assumed.memories == machine.memories and all(link.interrupts is None for link in assumed.links)


def test_devices_of_one_memory_may_reach_less_of_it_together() -> None:
    machine = compose("Apple M1 8-core", "Apple M1", 16 * GIB, None)
    [memory], [joint] = machine.memories, [each.joint for each in with_assumed(machine).memories]
    assert joint is not None and joint.source == "assumed"
    assert joint.value == memory.bandwidth.value and joint.p90 == memory.bandwidth.p90
    assert joint.p10 == pytest.approx(JOINT_SHARE * memory.bandwidth.p10)


def test_a_loopback_accelerator_may_share_cores_with_the_host() -> None:
    apart = make_hardware(vram=8 << 30)
    dram, vram = apart.memories
    machine = apart.model_copy(update={"memories": (dram, vram.model_copy(update={"shares": "dram"}))})
    assert with_assumed(apart).memory("dram").joint_compute is None
    kept = with_assumed(machine).memory("dram").joint_compute
    assert kept is not None and kept.source == "assumed"
    assert (kept.p10, kept.value, kept.p90) == (KEPT, 1.0, 1.0)
    measured = machine.memory("dram").model_copy(update={"joint_compute": figure(0.9)})
    known = machine.model_copy(update={"memories": (measured, *machine.memories[1:])})
    assert with_assumed(known).memory("dram").joint_compute == figure(0.9)
    assert with_assumed(compose("Apple M1 8-core", "Apple M1", 16 * GIB, None)).memories[0].joint_compute is None


def test_devices_made_of_the_same_cores_never_work_at_once() -> None:
    machine = compose(None, "Ryzen 9 7950X", 64 * GIB, None)
    [cpu] = machine.devices
    both = machine.model_copy(
        update={"devices": (cpu, cpu.model_copy(update={"name": "cpu-all", "excludes": ("cpu",)}))}
    )
    assumed = with_assumed(both)
    assert assumed.devices == both.devices and assumed.memories == both.memories


def test_what_was_measured_stays() -> None:
    machine = make_hardware(vram=8 << 30)
    known = figure(1e-6)
    between = BetweenPasses(begin={"cpu": known}, submission=known)
    machine = machine.model_copy(
        update={
            "links": tuple(link.model_copy(update={"handover": known, "slows": {}}) for link in machine.links),
            "devices": tuple(device.model_copy(update={"join": known}) for device in machine.devices),
            "between_passes": between,
        }
    )
    assumed = with_assumed(machine)
    assert assumed.devices == machine.devices and assumed.between_passes == between
    assert all(link.handover == known for link in assumed.links)


@pytest.mark.parametrize("on_cpu", [0, 2, None])
def test_medians_stay_and_upper_ends_rise(on_cpu: int | None) -> None:
    plan = make_plan(MODEL, on_cpu, hardware=make_hardware(vram=8 << 30))
    known = Figure(value=0.0, p10=0.0, p90=0.0, source="test")
    measured = plan.hardware.model_copy(
        update={
            "links": tuple(each.model_copy(update={"handover": known, "slows": {}}) for each in plan.hardware.links),
            "devices": tuple(each.model_copy(update={"join": known}) for each in plan.hardware.devices),
            "between_passes": BetweenPasses(begin={"cpu": known}, submission=known),
        }
    )
    step = predict(plan, CostModel(plan.hardware)).decode.seconds
    narrow = predict(plan, CostModel(measured)).decode.seconds
    assert step.mid == pytest.approx(narrow.mid, rel=1e-12)
    assert step.high > narrow.high + PASS_S


def test_crossings_add_an_uncertainty_of_their_own() -> None:
    """A plan on one device has what begins a pass; one that crosses has hand-overs and a shared memory beside it."""
    one, crossing = (make_plan(MODEL, on_cpu, hardware=make_hardware(vram=8 << 30)) for on_cpu in (None, 2))
    few, many = (sensitivity(plan, CostModel(plan.hardware), {"decode": 1.0}).moved for plan in (one, crossing))
    assert many[HANDOVERS][1] > few[HANDOVERS][1] + LOOPBACK_HANDOVER_S


def test_assumptions_are_marked_in_the_plan() -> None:
    plan = make_plan(MODEL, 2, hardware=make_hardware(vram=8 << 30))
    terms = [term for term in predict(plan, CostModel(plan.hardware)).decode.terms if term.op in ("hand-over", "join")]
    assert terms and all(term.source == "assumed" and term.seconds.mid == 0.0 < term.seconds.high for term in terms)


def test_without_corrections_nothing_is_added() -> None:
    plan = make_plan(MODEL, 2, hardware=make_hardware(vram=8 << 30))
    costs = CostModel(plan.hardware, replace(CostOptions(), corrections=False))
    assert not any(term.op in ("hand-over", "join") for term in predict(plan, costs).decode.terms)


def test_a_core_that_copies_for_a_loopback_link_may_be_interrupted() -> None:
    """Where neither slowdowns nor interruptions of it were measured."""
    machine = make_hardware(vram=8 << 30)
    for link in with_assumed(machine).links:
        assert link.interrupts is not None and list(link.interrupts) == ["loopback"]
        taken = link.interrupts["loopback"]
        assert (taken.small.value, taken.small.p90) == (0.0, 0.0)
        assert (taken.large.value, taken.large.p90, taken.large.source) == (0.0, INTERRUPTED, "assumed")
    slowed = tuple(link.model_copy(update={"slows": {"loopback": figure(0.5)}}) for link in machine.links)
    known = with_assumed(machine.model_copy(update={"links": slowed}))
    assert all(link.interrupts is None for link in known.links)


def wide(spread: float) -> CostModel:
    """Devices of one memory, whose bandwidth may be so many times as high or as low."""
    machine = compose("Apple M1 8-core", "Apple M1", 16 * GIB, None)
    [memory] = machine.memories
    value = memory.bandwidth.value
    bandwidth = memory.bandwidth.model_copy(update={"p10": value / spread, "p90": value * spread})
    return CostModel(machine.model_copy(update={"memories": (memory.model_copy(update={"bandwidth": bandwidth}),)}))


def test_what_is_uncertain_about_a_bandwidth_is_not_the_joint_rates_once_more() -> None:
    """In an interval both err; of one cause after the other, the joint rate's is the share of the bandwidth alone."""
    for spread in (1.0, 2.0):
        costs = wide(spread)
        [memory] = costs.hardware.memories
        value = memory.bandwidth.value

        def capacity(end: End, alone: bool, costs: CostModel = costs, name: str = memory.name) -> float:
            return costs.pools_at(end, alone).capacity[name]

        assert capacity("high", False) == pytest.approx(value * (JOINT_SHARE / spread) ** STRETCH)
        assert capacity("high", True) == pytest.approx(value * JOINT_SHARE**STRETCH)
        assert capacity("low", True) == capacity("mid", True) == pytest.approx(value)
