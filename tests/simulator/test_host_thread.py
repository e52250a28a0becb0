"""One thread that launches for all devices of an eager host: closed forms, and predictions against replays."""

import random
from collections.abc import Callable

import pytest
from contending import MakeTask, crossing, figure, machine, on, random_case
from plain_clock import scheduled
from seeds import seeds
from together import together

from helmsman.lowering.graph import TaskGraph
from helmsman.schemas.hardware import Hardware
from helmsman.simulator.replay import replay, replay_stream
from helmsman.timing.handovers import Handovers
from helmsman.timing.interference import alone

MakeGraph = Callable[..., TaskGraph]


def eager(hardware: Hardware, launching: float) -> Hardware:
    """The machine whose accelerator is launched by the host's thread, `launching` seconds an operation at most."""
    devices = (
        d if d.kind == "cpu" else d.model_copy(update={"launching": figure(launching)}) for d in hardware.devices
    )
    return hardware.model_copy(update={"devices": tuple(devices)})


def side_by_side(task: MakeTask, graph: MakeGraph) -> TaskGraph:
    return graph(on(task, "here", "cpu", 0), on(task, "there", "cuda", 0), on(task, "move", "h2d", 0))


@pytest.mark.parametrize(("launching", "seconds"), [(0.0, 3.0), (0.5, 3.5), (1.0, 4.0), (2.0, 5.0), (9.0, 5.0)])
def test_work_of_the_cpu_keeps_the_thread_that_launches(
    launching: float, seconds: float, task: MakeTask, graph: MakeGraph
) -> None:
    """3 s of the CPU beside 2 s of the accelerator, that are launched in no more than these; a transfer takes none."""
    hardware = eager(machine(1e12, {}), launching)
    alone = {"here": 3.0, "there": 2.0, "move": 2.5}
    done = replay(side_by_side(task, graph), lambda t: alone[t.name], hardware, between=Handovers(hardware))
    assert done.makespan == pytest.approx(seconds)
    assert done.end == pytest.approx((3.0, 2.0, 2.5))
    assert done.summary.shares.idle == pytest.approx(seconds - 3.0)


def test_devices_of_other_hosts_launch_side_by_side(task: MakeTask, graph: MakeGraph) -> None:
    hardware = machine(1e12, {})
    done = replay(side_by_side(task, graph), lambda _: 1.0, hardware, between=Handovers(hardware))
    assert done.makespan == pytest.approx(1.0)


def test_what_expands_on_the_accelerator_is_launched_too(task: MakeTask, graph: MakeGraph) -> None:
    dag = graph(on(task, "grow", "cuda:decompress", 0), on(task, "use", "cuda", 0))
    hardware = eager(machine(1e12, {}), 0.75)
    assert replay(dag, lambda _: 1.0, hardware, between=Handovers(hardware)).makespan == pytest.approx(1.5)


def test_tasks_that_follow_each_other_keep_their_sum(task: MakeTask, graph: MakeGraph) -> None:
    lanes = ("cpu", "h2d", "cuda", "d2h", "cpu", "cuda")
    dag = graph(*(on(task, f"t{i}", lane, 0, (i - 1,) if i else ()) for i, lane in enumerate(lanes)))
    machines = machine(1e12, {}), eager(machine(1e12, {}), 5.0)
    plain, launched = (replay(dag, lambda _: 1.0, each, between=Handovers(each)) for each in machines)
    assert plain.summary == launched.summary


@together("seed", seeds(range(200), 40))
def test_a_prediction_equals_the_replay(seed: int, task: MakeTask, graph: MakeGraph) -> None:
    """With memories shared, busy links that delay, and time between tasks; and streamed as whole."""
    rng = random.Random(5000 + seed)
    tasks, prices = random_case(rng, task, 60)
    bare = machine(rng.choice([2e9, 1e12]), {}, rng.choice([{}, {"h2d": {"cuda": 0.4, "cpu": 0.9}}]))
    captured = crossing(bare, {}, rng.choice([{}, {"cpu": 0.01}]))
    hardware = eager(captured, rng.choice([0.1, 0.3, 2.0]))
    dag, slowed, between = graph(*tasks), alone(hardware), Handovers(hardware)
    done = replay(dag, lambda t: prices[t.name], hardware, slowed, between)
    mine = scheduled(dag, hardware, lambda t: prices[t.name], slowed, between)
    assert mine == pytest.approx(done.makespan, rel=1e-9)
    some = replay_stream(iter(tasks), lambda t: prices[t.name], hardware, window=100, between=between)
    assert some == done.summary
    before = replay(dag, lambda t: prices[t.name], captured, slowed, Handovers(captured))
    assert done.makespan >= before.makespan
