from collections.abc import Callable

import numpy as np
import pytest
from daily import one_in

from helmsman.lowering.graph import Task
from helmsman.lowering.lower import lower
from helmsman.lowering.placement import Placement
from helmsman.scheduler.iteration import single_stream
from helmsman.schemas.workload import Workload
from helmsman.simulator.replay import replay
from helmsman.simulator.stream import Stream, remembering, simulate, timeline
from helmsman.timing.handovers import Handovers

Place = Callable[..., Placement]


def simulated(plan: Placement, price: Callable[[Task], float]) -> Stream:
    return simulate(plan, price, Handovers(plan.hardware))


def linear(task: Task) -> float:
    return 1e-6 + task.bytes / 20e9


def curved(task: Task) -> float:
    """Memory-bound up to some size, then worse: a kink and a curve, as efficiencies give."""
    return 1e-6 + max(task.bytes / 20e9, (task.bytes / 1e5) ** 1.3 * 2e-6)


@pytest.mark.parametrize(
    ("kind", "price", "tolerance"),
    one_in(2, [("split", linear, 1e-9), ("split", curved, 5e-4), ("streamed", curved, 5e-4)]),
)
def test_sampled_steps_stand_for_all(
    placement: Place, kind: str, price: Callable[[Task], float], tolerance: float
) -> None:
    plan = placement(Workload(prompt_tokens=16, output_tokens=120, context=136, batch=3), kind)
    every = [replay(lower(plan, it), price, plan.hardware) for it in single_stream(plan.workload)]
    seconds = [done.makespan for done in every]
    found = simulated(plan, price)
    assert len(found.simulated) == 33 and found.steps == 119
    assert found.ttft == seconds[0]
    assert found.e2e == pytest.approx(sum(seconds), rel=tolerance)
    assert found.tpot == pytest.approx((found.e2e - found.ttft) / 119, rel=1e-12)
    assert found.rate == pytest.approx(3 * 120 / found.e2e) and found.itl is not None
    assert found.decode_rate == pytest.approx(3 * 119 / (found.e2e - found.ttft))
    for name, q in (("p10", 0.1), ("p50", 0.5), ("p99", 0.99), ("max", 1.0)):
        assert found.itl[name] == pytest.approx(np.quantile(seconds[1:], q), rel=10 * tolerance)
    for lane in found.decode.lanes:
        assert lane.busy == pytest.approx(sum(d.busy[lane.resource] for d in every[1:]), rel=tolerance)
        assert lane.bytes == pytest.approx(sum(d.moved[lane.resource] for d in every[1:]), rel=1e-9)
        assert lane.idle == pytest.approx(found.decode.seconds - lane.busy)
    assert found.decode.overlap == pytest.approx(sum(d.overlap for d in every[1:]), rel=0.02, abs=1e-12)


def test_few_steps_are_exact(placement: Place) -> None:
    plan = placement(Workload(prompt_tokens=16, output_tokens=64, context=80))
    every = [replay(lower(plan, it), curved, plan.hardware).makespan for it in single_stream(plan.workload)]
    assert simulated(plan, curved).e2e == pytest.approx(sum(every), rel=1e-12)


def test_one_token_has_no_time_per_output_token(placement: Place) -> None:
    found = simulated(placement(Workload(prompt_tokens=16, output_tokens=1, context=17)), linear)
    assert (found.tpot, found.itl, found.decode_rate, found.decode.lanes) == (None, None, None, ())
    assert found.e2e == found.ttft > 0.0


def test_prices_of_zero_take_no_time(placement: Place) -> None:
    found = simulated(placement(Workload(prompt_tokens=16, output_tokens=3, context=19)), lambda _: 0.0)
    assert (found.e2e, found.rate, found.decode_rate) == (0.0, 0.0, 0.0)


def test_lanes_come_in_the_order_of_the_hardware(placement: Place) -> None:
    found = simulated(placement(Workload(prompt_tokens=16, output_tokens=3, context=19)), linear)
    assert [lane.resource for lane in found.decode.lanes] == ["cpu", "acc", "h2d", "d2h"]


def test_the_timeline_puts_iterations_one_after_the_other(placement: Place) -> None:
    plan = placement(Workload(prompt_tokens=16, output_tokens=4, context=20))
    rows = list(timeline(plan, linear, Handovers(plan.hardware), 2))
    assert [rows[0].iteration, rows[-1].iteration] == [0, 2]
    for i in (1, 2):
        before = max(row.end_s for row in rows if row.iteration == i - 1)
        assert min(row.start_s for row in rows if row.iteration == i) == before
    assert {row.iteration for row in timeline(plan, linear, Handovers(plan.hardware), 99)} == {0, 1, 2, 3}


def test_a_remembered_price_is_asked_once_per_kind_of_work(placement: Place) -> None:
    plan, asked = placement(Workload(prompt_tokens=16, output_tokens=4, context=20)), []

    def price(task: Task) -> float:
        asked.append(task.name)
        return linear(task)

    tasks = lower(plan, next(single_stream(plan.workload))).tasks
    remembered = remembering(price)
    assert [remembered(task) for task in tasks] == [linear(task) for task in tasks]
    assert len(asked) < len(tasks) / 2
