"""How predictions move with single figures, and what of two plans' errors cancels in their difference."""

import pytest
from plans import figure, make_hardware, make_plan
from shapes import small_model

from helmsman.planner.cost.model import CostModel
from helmsman.planner.prediction.predict import predict
from helmsman.planner.prediction.sensitivity import HANDOVERS, Sensitivity, gain, regrets, sensitivity
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.plan import Plan

MODEL = small_model("qwen3")
WEIGHTS = {"prefill": 1.0, "decode": 7.0}


def uncertain(**spreads: float) -> Hardware:
    """Devices whose plain reads may be so many times as fast, or as slow, as the record says."""
    machine = make_hardware(vram=8 << 30, latency=1e-6)

    def spread(device):
        ratio = spreads.get(device.name, 1.0)
        read = figure(device.read.value)
        return device.model_copy(update={"read": read.model_copy(update={"p10": 1e10 / ratio, "p90": 1e10 * ratio})})

    return machine.model_copy(update={"devices": tuple(map(spread, machine.devices))})


def moved(plan: Plan) -> Sensitivity:
    return sensitivity(plan, CostModel(plan.hardware), WEIGHTS)


@pytest.mark.parametrize("on_cpu", [0, 2, None])
def test_with_all_figures_at_their_medians_it_is_the_prediction(on_cpu):
    plan = make_plan(MODEL, on_cpu, hardware=uncertain(cpu=2.0, loopback=1.5))
    expected = predict(plan, CostModel(plan.hardware))
    seconds = expected.ttft.seconds.mid + 7 * expected.decode.seconds.mid
    assert moved(plan).seconds == pytest.approx(seconds, rel=1e-12)


def test_a_cause_moves_a_plan_by_the_part_that_rests_on_it():
    plan = make_plan(MODEL, 2, hardware=uncertain(cpu=2.0))
    causes = moved(plan).moved
    assert set(causes) == {("cpu", "memory"), HANDOVERS}
    low, high = causes["cpu", "memory"]
    assert low < 0 < high < moved(plan).seconds


def test_errors_that_two_plans_share_cancel():
    """Both read everything from one memory, one of them twice as much: however fast it is, that one is slower."""
    machine = uncertain(loopback=3.0)
    few, many = (make_plan(MODEL, 0, weights=weights, hardware=machine) for weights in ("f16", "f32"))
    fast, slow = moved(few), moved(many)
    assert slow.seconds + slow.moved["loopback", "memory"][0] < fast.seconds + fast.moved["loopback", "memory"][1]
    saved = gain(slow, fast)
    assert 0 < saved.low < saved.mid < saved.high


def test_errors_of_one_plan_alone_do_not():
    machine = uncertain(cpu=3.0)
    split, whole = make_plan(MODEL, 2, hardware=machine), make_plan(MODEL, 0, weights="f32", hardware=machine)
    saved = gain(moved(split), moved(whole))
    assert saved.low == 0.0 < saved.mid


def test_independent_changes_of_a_difference_add_in_quadrature():
    fast = Sensitivity(10.0, {("a", "memory"): (-1.0, 2.0), ("b", "link"): (-0.5, 0.5)})
    slow = Sensitivity(20.0, {("a", "memory"): (-4.0, 6.0), ("c", "launch"): (0.0, 3.0)})
    saved = gain(slow, fast)
    assert saved.low == pytest.approx(10 - (3**2 + 0.5**2) ** 0.5)
    assert saved.high == pytest.approx(10 + (4**2 + 0.5**2 + 3**2) ** 0.5)
    assert gain(fast, slow).mid == 0.0
    assert gain(fast, fast).high == 0.0


def test_regret_is_the_most_that_is_lost_in_any_one_case():
    steady = Sensitivity(12.0, {})
    risky = Sensitivity(10.0, {("link", "link"): (-1.0, 9.0)})
    assert regrets([steady, risky]) == [3.0, 7.0]
