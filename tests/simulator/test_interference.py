"""Work that busy links and other devices delay: closed forms, exact arithmetic, the planner's own schedule."""

import random
from array import array
from collections.abc import Callable

import pytest
from contending import MakeTask, crossing, figure, machine, on, random_case
from exact_replay import ExactReplay
from plain_clock import makespan, scheduled
from seeds import seeds
from together import together

from helmsman.lowering.graph import Task, TaskGraph
from helmsman.schemas.hardware import Hardware, lane_owner
from helmsman.simulator.replay import replay, replay_stream
from helmsman.timing._clock import Loop
from helmsman.timing.handovers import Handovers
from helmsman.timing.interference import Slowings, alone, beside, of_arithmetic, slowings

MakeGraph = Callable[..., TaskGraph]
F = 0.5


def slowing(link: str = "h2d", device: str = "cuda", **more: float) -> Hardware:
    return machine(1e12, {}, {link: {device: F}, **{name: {device: extra} for name, extra in more.items()}})


@together(("work", "transfer"), [(3.0, 1.0), (3.0, 2.9), (1.0, 2.0), (2.0, 3.0), (2.0, 0.0)])
@together("lane", ["cuda", "cuda:decompress"])
def test_a_task_beside_a_transfer(work: float, transfer: float, lane: str, task: MakeTask, graph: MakeGraph) -> None:
    """It takes D + f / (1 + f) S where it outlasts a transfer of S, else (1 + f) D; the transfer is not delayed."""
    pair = graph(on(task, "work", lane, 0), on(task, "move", "h2d", 0))
    done = replay(pair, lambda t: work if t.name == "work" else transfer, slowing())
    assert done.end[0] == pytest.approx(min((1 + F) * work, work + F / (1 + F) * transfer), rel=1e-12)
    assert done.end[1] == transfer


def test_a_transfer_that_begins_in_the_middle(task: MakeTask, graph: MakeGraph) -> None:
    """One second alone, two beside it at two thirds of the speed, the rest alone."""
    dag = graph(
        on(task, "before", "cpu", 0), on(task, "move", "h2d", 0, (0,)), on(task, "work", "cuda", 0)
    )  # fmt: skip
    seconds = {"before": 1.0, "move": 2.0, "work": 4.0}
    assert replay(dag, lambda t: seconds[t.name], slowing()).end == pytest.approx((1.0, 3.0, 1 + 2 + (4 - 1 - 4 / 3)))


def test_delays_of_links_add_up(task: MakeTask, graph: MakeGraph) -> None:
    trio = graph(on(task, "work", "cuda", 0), on(task, "a", "h2d", 0), on(task, "b", "s2d", 0))
    assert replay(trio, lambda t: 1.0 if t.name == "work" else 9.0, slowing(s2d=0.7)).end[0] == pytest.approx(2.2)


def test_transfers_one_after_the_other_delay_as_one(task: MakeTask, graph: MakeGraph) -> None:
    """Two lanes of a link are one link; and what follows at once leaves no gap."""
    moves = [on(task, f"m{i}", lane, 0) for i, lane in enumerate(["h2d", "h2d", "h2d", "h2d:activations"])]
    done = replay(graph(on(task, "work", "cuda", 0), *moves), lambda t: 2.0 if t.name == "work" else 1.0, slowing())
    assert done.end[0] == pytest.approx(3.0)


def test_other_devices_and_other_links_do_not_matter(task: MakeTask, graph: MakeGraph) -> None:
    others = graph(on(task, "host", "cpu", 0), on(task, "work", "cuda", 0), on(task, "s", "s2d", 0))
    assert replay(others, lambda _: 1.0, slowing()).end == (1.0, 1.0, 1.0)


def test_what_is_counted_already_is_not_counted_twice(task: MakeTask, graph: MakeGraph) -> None:
    hardware = slowing(s2d=0.7)
    trio = graph(on(task, "work", "cuda", 0), on(task, "a", "h2d", 0), on(task, "b", "s2d", 0))
    every = alone(hardware)
    done = replay(trio, lambda _: 1.0, hardware, lambda t: beside(every(t), "h2d"))
    assert done.end[0] == pytest.approx(1 + 0.7 / 1.7)


def test_a_measured_delay_contains_the_sharing_of_memory(task: MakeTask, graph: MakeGraph) -> None:
    """Work that reads 8 GB/s beside a transfer of 4 GB/s: the lower of the two speeds counts, not their product."""
    for dram, speed in ((12e9, 2 / 3), (10e9, 2 / 3), (9e9, 5 / 8), (8e9, 1 / 2)):
        hardware = machine(dram, {}, {"h2d": {"cpu": F}})
        pair = graph(on(task, "work", "cpu", 8 * 10**9), on(task, "move", "h2d", 40 * 10**9))
        done = replay(pair, lambda t: 1.0 if t.name == "work" else 10.0, hardware)
        assert done.end[0] == pytest.approx(1 / speed)


FACTORS = {
    "h2d": {"cuda": 0.4, "cpu": 0.9},
    "s2d": {"cuda": 0.25},
    "s2h": {"cpu": 2.0},
    "d2h": {"cuda": 0.05, "cpu": 0.0},
}


def counted(task: Task) -> str | None:
    """Some prices count a link already."""
    return "h2d" if task.name.endswith(("3", "7")) else None


@together("seed", seeds(range(300), 25))
def test_equals_an_exact_replay(seed: int, task: MakeTask, graph: MakeGraph) -> None:
    rng = random.Random(5000 + seed)
    tasks, prices = random_case(rng, task, 40)
    shares = rng.choice([{}, {"s2d": "h2d"}, {"s2d": "h2d", "s2h": "s2d"}])
    hardware = machine(rng.choice([3e9, 8e9, 1e12]), shares, FACTORS, rng.choice([None, 5e9]))
    every = alone(hardware)
    done = replay(graph(*tasks), lambda t: prices[t.name], hardware, lambda t: beside(every(t), counted(t)))
    exact = ExactReplay(tasks, lambda t: prices[t.name], hardware, counted).run()
    assert done.start == pytest.approx([start for start, _ in exact], rel=1e-9, abs=1e-9)
    assert done.end == pytest.approx([end for _, end in exact], rel=1e-9, abs=1e-9)


@together("seed", seeds(range(100), 25))
def test_scheduling_equals_the_replay_where_bandwidth_is_ample(seed: int, task: MakeTask, graph: MakeGraph) -> None:
    tasks, prices = random_case(random.Random(6000 + seed), task, 120)
    dag = graph(*(t._replace(bytes=0) for t in tasks))
    hardware = machine(1e12, {}, FACTORS)
    done = replay(dag, lambda t: prices[t.name], hardware)
    assert scheduled(dag, hardware, lambda t: prices[t.name], alone(hardware)) == pytest.approx(done.makespan, rel=1e-9)
    assert done.makespan >= makespan(dag, lambda t: prices[t.name]) * (1 - 1e-12)


@together("seed", seeds(range(200), 40))
def test_a_prediction_equals_the_replay_where_bandwidth_is_scarce(seed: int, task: MakeTask, graph: MakeGraph) -> None:
    """Memories and links are shared by one rule, with busy links that delay and without."""
    rng = random.Random(8000 + seed)
    tasks, prices = random_case(rng, task, 60)
    shares = rng.choice([{}, {"s2d": "h2d"}, {"s2d": "h2d", "s2h": "s2d"}])
    hardware = machine(rng.choice([2e9, 5e9, 1e12]), shares, rng.choice([{}, FACTORS]), rng.choice([None, 5e9]))
    slowed = alone(hardware) if rng.random() < 0.5 else None
    dag = graph(*tasks)
    done = replay(dag, lambda t: prices[t.name], hardware, slowed or (lambda _: ()))
    assert scheduled(dag, hardware, lambda t: prices[t.name], slowed) == pytest.approx(done.makespan, rel=1e-9)


def computing(kept: float, slows: dict[str, dict[str, float]] | None = None, dram: float = 1e12) -> Hardware:
    """The machine whose two devices share a memory of `dram` bytes/s and keep a part of their arithmetic while both
    compute."""
    made = machine(dram, {}, slows)
    host, vram, *rest = made.memories
    both = host.model_copy(update={"joint_compute": figure(kept)}), vram.model_copy(update={"shares": "dram"})
    return made.model_copy(update={"memories": (*both, *rest)})


def bound_by_arithmetic(hardware: Hardware) -> Callable[[Task], Slowings]:
    """What slows tasks of which all that are no transfers compute, but for every third."""
    known = slowings(hardware)

    def slowed(task: Task) -> Slowings:
        found = known.get(lane_owner(task.resource), ())
        return of_arithmetic(found, 0.0 if task.name.endswith(("0", "3", "6", "9")) else 1.0)

    return slowed


@pytest.mark.parametrize(("long", "short"), [(1.0, 1.0), (3.0, 1.0), (1.0, 0.0)])
def test_two_devices_that_compute_slow_each_other(long: float, short: float, task: MakeTask, graph: MakeGraph) -> None:
    """At half their rates until the shorter task ends, after twice its seconds."""
    hardware = computing(0.5)
    pair = graph(on(task, "t1", "cpu", 0), on(task, "t2", "cuda", 0))
    done = replay(pair, lambda t: long if t.name == "t1" else short, hardware, bound_by_arithmetic(hardware))
    assert done.end == pytest.approx((long + short, 2 * short))


def test_work_that_memory_bounds_is_not_slowed_by_arithmetic(task: MakeTask, graph: MakeGraph) -> None:
    hardware = computing(0.5)
    pair = graph(on(task, "t0", "cpu", 0), on(task, "t2", "cuda", 0))
    assert replay(pair, lambda _: 1.0, hardware, bound_by_arithmetic(hardware)).end == (1.0, 1.0)
    assert replay(pair, lambda _: 1.0, hardware).end == (1.0, 1.0)


def test_devices_that_exclude_each_other_are_not_slowed() -> None:
    hardware = computing(0.5)
    cpu, cuda = hardware.devices
    assert set(slowings(hardware)) == {"cpu", "cuda"}
    apart = hardware.model_copy(update={"devices": (cpu, cuda.model_copy(update={"excludes": ("cpu",)}))})
    assert slowings(apart) == {}


def test_devices_that_gain_from_each_other_are_not_slowed() -> None:
    assert slowings(computing(1.25)) == {}


@together("seed", seeds(range(100), 25))
def test_a_prediction_equals_the_replay_where_devices_compute_at_once(
    seed: int, task: MakeTask, graph: MakeGraph
) -> None:
    rng = random.Random(9000 + seed)
    tasks, prices = random_case(rng, task, 60)
    hardware = computing(rng.choice([0.5, 0.9]), rng.choice([None, FACTORS]), rng.choice([2e9, 5e9, 1e12]))
    if rng.random() < 0.5:
        hardware = crossing(hardware, {"h2d": 0.1}, {"cuda": 0.05}, {"h2d": {"cuda": 0.6}})
    slowed, dag = bound_by_arithmetic(hardware), graph(*tasks)
    between = Handovers(hardware)
    done = replay(dag, lambda t: prices[t.name], hardware, slowed, between)
    assert scheduled(dag, hardware, lambda t: prices[t.name], slowed, between) == pytest.approx(done.makespan, rel=1e-9)


def test_streaming_equals_the_whole(task: MakeTask, graph: MakeGraph) -> None:
    tasks, prices = random_case(random.Random(7000), task, 150)
    hardware = machine(8e9, {"s2d": "h2d"}, FACTORS)
    whole = replay(graph(*tasks), lambda t: prices[t.name], hardware).summary
    assert replay_stream(iter(tasks), lambda t: prices[t.name], hardware, window=100) == whole


def test_a_factor_of_nothing_changes_nothing(task: MakeTask, graph: MakeGraph) -> None:
    tasks, prices = random_case(random.Random(8000), task, 100)
    none = {link: dict.fromkeys(devices, 0.0) for link, devices in FACTORS.items()}
    plain, zero = (
        replay(graph(*tasks), lambda t: prices[t.name], machine(8e9, {}, slows)).end for slows in (None, none)
    )
    assert plain == zero
    assert slowings(machine(8e9, {}, none)) == {}


def test_the_loop_refuses_what_cannot_be() -> None:
    loop = Loop([1.0], record=False)
    for wrong in ([(-1, 0.5)], [(0, -0.5)], [(0, float("nan"))]):
        with pytest.raises(ValueError, match="0 or more"):
            loop.add_slowings(wrong, [])
    lane = loop.add_lane(0, 0.0)
    with pytest.raises(ValueError, match="no such slowings"):
        loop.add_work(lane, 1.0, 0.0, -1, -1, 3)
    with pytest.raises(ValueError, match="no less than 0 s"):
        loop.add_work(lane, float("nan"), 0.0, -1, -1, -1)
    with pytest.raises(ValueError, match="0 s or more"):
        loop.add_lane(0, -1.0)
    with pytest.raises(ValueError, match="no such lane"):
        loop.set_handover(lane, 1, 0.5)
    work = loop.add_work(lane, 1.0, 0.0, -1, -1, -1)
    for works, counts, deps, message in (
        (array("i", [work + 1]), array("i", [0]), array("q"), "no such work"),
        (array("i", [work]), array("i", []), array("q"), "different lengths"),
        (array("i", [work]), array("i", [1]), array("q"), "too few"),
        (array("i", [work]), array("i", [1]), array("q", [0]), "cycle"),
        (array("q", [work]), array("i", [0]), array("q"), "another type"),
    ):
        with pytest.raises(ValueError, match=message):
            loop.feed(works, counts, deps)
    loop.run(0)
    assert loop.now == 0.0
