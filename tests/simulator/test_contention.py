"""Random graphs of transfers, storage, expansion and compute against an exact replay; links that share lanes."""

import random
from collections.abc import Callable

import pytest
from contending import GB, MakeTask, machine, on, random_case
from exact_replay import ExactReplay
from plain_clock import makespan
from seeds import seeds
from together import together

from helmsman.lowering.graph import TaskGraph
from helmsman.simulator.replay import replay, replay_stream

MakeGraph = Callable[..., TaskGraph]


@together("seed", seeds(range(200), 25))
def test_equals_an_exact_replay(seed: int, task: MakeTask, graph: MakeGraph) -> None:
    rng = random.Random(seed)
    tasks, prices = random_case(rng, task, 40)
    shares = rng.choice([{}, {"s2d": "h2d"}, {"s2d": "h2d", "s2h": "s2d"}, {"h2d": "d2h", "s2d": "h2d"}])
    hardware = machine(rng.choice([3e9, 8e9, 1e12]), shares, carries=rng.choice([None, 5e9, 6e9]))
    done = replay(graph(*tasks), lambda t: prices[t.name], hardware)
    exact = ExactReplay(tasks, lambda t: prices[t.name], hardware).run()
    assert done.start == pytest.approx([start for start, _ in exact], rel=1e-9, abs=1e-9)
    assert done.end == pytest.approx([end for _, end in exact], rel=1e-9, abs=1e-9)


@together("seed", seeds(range(200), 40))
def test_scheduling_equals_the_replay_where_nothing_contends(seed: int, task: MakeTask, graph: MakeGraph) -> None:
    """Lanes of both are queues in the order of the graph."""
    tasks, prices = random_case(random.Random(1000 + seed), task, 120)
    dag = graph(*(t._replace(bytes=0) for t in tasks))
    done = replay(dag, lambda t: prices[t.name], machine(1e12, {}))
    assert makespan(dag, lambda t: prices[t.name]) == pytest.approx(done.makespan, rel=1e-12, abs=1e-15)


@together("seed", seeds(range(60), 15))
def test_a_window_wider_than_what_starts_early_changes_nothing(seed: int, task: MakeTask, graph: MakeGraph) -> None:
    """The rule of the window: how many tasks before one are unfinished when it starts, at most."""
    tasks, prices = random_case(random.Random(2000 + seed), task, 150)
    hardware = machine(8e9, {"s2d": "h2d"})
    whole = replay(graph(*tasks), lambda t: prices[t.name], hardware)
    needed = 1 + max(sum(end > start for end in whole.end[:i]) for i, start in enumerate(whole.start))
    seen: dict[int, tuple[float, float]] = {}
    some = replay_stream(
        iter(tasks), lambda t: prices[t.name], hardware, lambda i, _, a, b: seen.update({i: (a, b)}), window=needed
    )
    assert [seen[i] for i in range(len(tasks))] == list(zip(whole.start, whole.end, strict=True))
    assert some == whole.summary


def test_a_window_counts_whole(task: MakeTask) -> None:
    """A task that may start before seven others is seen by a window of eight, and not by one of two."""
    tasks = [on(task, f"t{i}", "cpu", 0, (i - 1,) if i else ()) for i in range(40)]
    tasks[16] = on(task, "t16", "cuda", 0, (9,))
    tasks[17] = on(task, "t17", "cpu", 0, (15,))
    starts: dict[int, float] = {}
    for window in (8, 2):
        replay_stream(tasks, lambda _: 1.0, machine(1e12, {}), lambda i, _, a, __: starts.update({i: a}), window=window)
        assert (starts[16] == 10.0) is (window == 8)


@pytest.mark.parametrize("order", [("h2d", "s2d"), ("s2d", "h2d"), ("s2d", "s2h"), ("s2h", "s2d")])
def test_transfers_over_one_lane_take_twice_as_long(order: tuple[str, str], task: MakeTask, graph: MakeGraph) -> None:
    """Storage straight to the device beside the host's transfers, and two drives behind one switch."""
    apart, joined = machine(1e12, {}), machine(1e12, {order[0]: order[1]})
    pair = graph(*(on(task, lane, lane, 4 * GB) for lane in order))
    assert replay(pair, lambda _: 1.0, apart).end == pytest.approx((1.0, 1.0))
    assert replay(pair, lambda _: 1.0, joined).end == pytest.approx((2.0, 2.0))
    alone = graph(on(task, "one", order[0], 4 * GB))
    assert replay(alone, lambda _: 1.0, joined).makespan == 1.0


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("-inf")])
def test_seconds_that_cannot_pass_are_refused(seconds: float, task: MakeTask, graph: MakeGraph) -> None:
    dag = graph(on(task, "a", "cpu", 0), on(task, "b", "cpu", 0, (0,)))
    with pytest.raises(ValueError, match="task 0/b cannot take"):
        replay(dag, lambda t: seconds if t.name == "b" else 1.0, machine(1e12, {}))


def test_lanes_carry_more_than_one_link_reaches(task: MakeTask, graph: MakeGraph) -> None:
    """4 GB/s from the host beside 4 GB/s from storage, over lanes of 6 GB/s: 3 each; alone each is as fast as ever."""
    joined = machine(1e12, {"s2d": "h2d"}, carries=6e9)
    pair = graph(*(on(task, lane, lane, 4 * GB) for lane in ("h2d", "s2d")))
    assert replay(pair, lambda _: 1.0, joined).end == pytest.approx((4 / 3, 4 / 3))
    twice = graph(on(task, "a", "h2d", 4 * GB), on(task, "b", "h2d:activations", 4 * GB))
    assert replay(twice, lambda _: 1.0, joined).end == pytest.approx((2.0, 2.0))
