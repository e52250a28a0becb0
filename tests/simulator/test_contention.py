"""Random graphs of transfers, storage, expansion and compute against an exact replay; links that share lanes."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from exact_replay import ExactReplay

from helmsman.lowering.graph import Task, TaskGraph
from helmsman.planner.schedule import makespan
from helmsman.schemas.hardware import Compute, Device, Figure, Hardware, Link, Memory, Source
from helmsman.simulator.replay import replay, replay_stream

MakeTask = Callable[..., Task]
MakeGraph = Callable[..., TaskGraph]
GB = 10**9
ENDS = {
    "h2d": ("dram", "vram"),
    "d2h": ("vram", "dram"),
    "s2d": ("ssd0", "vram"),
    "s2h": ("ssd1", "dram"),
    "h2d:activations": ("dram", "vram"),
}
LANES = {**ENDS, "cpu": ("dram",), "cuda": ("vram",), "cuda:decompress": ("vram",)}


def figure(value: float) -> Figure:
    return Figure(value=value, p10=value, p90=value, source="test")


def memory(name: str, rate: float) -> Memory:
    return Memory(name=name, kind="dram", capacity=2**40, available=2**40, bandwidth=figure(rate), source="test")


def machine(dram: float, shares: dict[str, str]) -> Hardware:
    """Links of 4 GB/s, the fast memories `dram` bytes/s; `shares`: which link uses another's lanes."""
    compute = (Compute(phase="decode", flops=figure(1e12)),)
    devices = (("cpu", "cpu", "dram"), ("cuda", "cuda", "vram"))
    links = [(name, ends) for name, ends in ENDS.items() if ":" not in name]
    return Hardware(
        name="test",
        memories=(memory("dram", dram), memory("vram", 10 * dram), memory("ssd0", 4e9), memory("ssd1", 4e9)),
        devices=tuple(Device(name=n, kind=k, memory=m, read=figure(1e10), compute=compute) for n, k, m in devices),
        links=tuple(
            Link(
                name=name, source_memory=source, target_memory=target, kind="pcie", bandwidth=figure(4e9),
                latency=figure(0.0), shares=shares.get(name),
            )
            for name, (source, target) in links
        ),
        sources={"test": Source(kind="assumed", where="test")},
    )  # fmt: skip


def on(task: MakeTask, name: str, lane: str, size: int, deps: tuple[int, ...] = ()) -> Task:
    made = task(name, lane, size, LANES[lane], deps)
    return replace(made, kind="transfer") if lane in ENDS else made


def random_case(rng: random.Random, task: MakeTask, most: int) -> tuple[tuple[Task, ...], dict[str, float]]:
    """Tasks with equal and with zero seconds among them; dependencies reach a short way back."""
    tasks, prices = [], {}
    for i in range(rng.randint(1, most)):
        near = range(max(0, i - 6), i)
        deps = tuple(sorted(rng.sample(near, min(len(near), rng.choice([0, 1, 1, 2])))))
        seconds = rng.choice([0.0, 0.25, 0.25, rng.uniform(1e-3, 1), rng.uniform(1e-3, 1)])
        tasks.append(
            on(task, f"t{i}", rng.choice(list(LANES)), rng.choice([0, int(6e9 * rng.random() * seconds)]), deps)
        )
        prices[f"t{i}"] = seconds
    return tuple(tasks), prices


@pytest.mark.parametrize("seed", range(200))
def test_equals_an_exact_replay(seed: int, task: MakeTask, graph: MakeGraph) -> None:
    rng = random.Random(seed)
    tasks, prices = random_case(rng, task, 40)
    shares = rng.choice([{}, {"s2d": "h2d"}, {"s2d": "h2d", "s2h": "s2d"}, {"h2d": "d2h", "s2d": "h2d"}])
    hardware = machine(rng.choice([3e9, 8e9, 1e12]), shares)
    done = replay(graph(*tasks), lambda t: prices[t.id], hardware)
    exact = ExactReplay(tasks, lambda t: prices[t.id], hardware).run()
    assert done.start == pytest.approx([start for start, _ in exact], rel=1e-9, abs=1e-9)
    assert done.end == pytest.approx([end for _, end in exact], rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("seed", range(200))
def test_scheduling_equals_the_replay_where_nothing_contends(seed: int, task: MakeTask, graph: MakeGraph) -> None:
    """Both let the first ready task in the graph go first, so a free lane never waits for an earlier task."""
    tasks, prices = random_case(random.Random(1000 + seed), task, 120)
    dag = graph(*(replace(t, bytes=0) for t in tasks))
    done = replay(dag, lambda t: prices[t.id], machine(1e12, {}))
    assert makespan(dag, lambda t: prices[t.id]) == pytest.approx(done.makespan, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("seed", range(60))
def test_a_window_wider_than_what_starts_early_changes_nothing(seed: int, task: MakeTask, graph: MakeGraph) -> None:
    """The rule of the window: how many tasks before one are unfinished when it starts, at most."""
    tasks, prices = random_case(random.Random(2000 + seed), task, 150)
    hardware = machine(8e9, {"s2d": "h2d"})
    whole = replay(graph(*tasks), lambda t: prices[t.id], hardware)
    needed = 1 + max(sum(end > start for end in whole.end[:i]) for i, start in enumerate(whole.start))
    seen: dict[int, tuple[float, float]] = {}
    some = replay_stream(
        iter(tasks), lambda t: prices[t.id], hardware, lambda i, _, a, b: seen.update({i: (a, b)}), window=needed
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
    with pytest.raises(ValueError, match="task b cannot take"):
        replay(dag, lambda t: seconds if t.id == "b" else 1.0, machine(1e12, {}))
