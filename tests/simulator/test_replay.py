import random
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise

import pytest
from exact_replay import ExactReplay
from plain_clock import makespan
from seeds import seeds
from together import together

from helmsman.lowering.graph import Task, TaskGraph
from helmsman.lowering.lower import lower
from helmsman.lowering.placement import Placement
from helmsman.scheduler.iteration import single_stream
from helmsman.schemas.hardware import Figure, Hardware
from helmsman.schemas.workload import Workload
from helmsman.simulator.replay import Replay, replay, spans

MakeTask = Callable[..., Task]
MakeGraph = Callable[..., TaskGraph]
LANES = ("cpu", "acc", "h2d", "d2h")
ROOT = {"dram": "dram", "vram": "dram", "far": "far"}
CAPACITY = {"dram": Fraction(30 * 10**9), "far": Fraction(5 * 10**9)}
HOMES = (("dram",), ("vram",), ("dram", "vram"), ("far",), ("dram", "far"), ("far", "vram"))


def at(prices: dict[str, float]) -> Callable[[Task], float]:
    return lambda task: prices[task.name]


def random_case(seed: int, task: MakeTask, graph: MakeGraph, scale: float = 60e9) -> tuple[TaskGraph, dict[str, float]]:
    rng = random.Random(seed)
    tasks, prices = [], {}
    for i in range(rng.randint(1, 40)):
        deps = tuple(sorted(rng.sample(range(i), min(i, rng.choice([0, 0, 1, 1, 2, 3])))))
        seconds = rng.choice([0.0, rng.uniform(1e-3, 1), rng.uniform(1e-3, 1), rng.uniform(1e-3, 1)])
        size = rng.choice([0, int(rng.uniform(0, scale) * seconds)])
        tasks.append(task(f"t{i}", rng.choice(LANES), size, rng.choice(HOMES), deps))
        prices[f"t{i}"] = seconds
    return graph(*tasks), prices


@together("seed", seeds(range(250), 50))
def test_equals_an_exact_reference(seed: int, hardware: Hardware, task: MakeTask, graph: MakeGraph) -> None:
    dag, prices = random_case(seed, task, graph)
    done = replay(dag, at(prices), hardware)
    exact = ExactReplay(dag.tasks, at(prices), hardware).run()
    assert done.end == pytest.approx([end for _, end in exact], rel=1e-9, abs=1e-12)


def check_bounds(done: Replay, prices: dict[str, float]) -> None:
    tasks = done.graph.tasks
    path: list[float] = []
    for i, task in enumerate(tasks):
        price = prices[task.name]
        assert done.end[i] - done.start[i] >= price * (1 - 1e-9)
        assert all(done.start[i] >= done.end[dep] for dep in task.deps)
        path.append(max((path[dep] for dep in task.deps), default=0.0) + price)
    for lane in {task.resource for task in tasks}:
        mine = sorted((done.start[i], done.end[i]) for i, task in enumerate(tasks) if task.resource == lane)
        assert all(b[0] >= a[1] for a, b in pairwise(mine))
        assert done.busy[lane] <= done.makespan * (1 + 1e-9)
        assert done.makespan >= sum(prices[t.name] for t in tasks if t.resource == lane) * (1 - 1e-9)
    assert done.makespan >= max(path) * (1 - 1e-9)


def check_work_conserving(done: Replay) -> None:
    """A task starts the moment its last dependency ends or its lane becomes free."""
    tasks = done.graph.tasks
    for i, task in enumerate(tasks):
        rivals = [done.end[j] for j, other in enumerate(tasks) if other.resource == task.resource]
        assert done.start[i] in {0.0, *(done.end[dep] for dep in task.deps), *rivals}


def check_capacity(done: Replay) -> None:
    """Bytes that ran through a memory in the time during which it was in use by two or more."""
    moved = {"dram": 0.0, "far": 0.0}
    for task in done.graph.tasks:
        for home in task.memories:
            moved[ROOT[home]] += task.bytes
    for pool, size in moved.items():
        assert size <= float(CAPACITY[pool]) * done.makespan * (1 + 1e-9)


@together("seed", seeds(range(150), 30))
def test_lanes_dependencies_bounds_and_capacity_hold(
    seed: int, hardware: Hardware, task: MakeTask, graph: MakeGraph
) -> None:
    dag, prices = random_case(1000 + seed, task, graph, scale=5e9 / 2)
    done = replay(dag, at(prices), hardware)
    check_bounds(done, prices)
    check_work_conserving(done)
    check_capacity(done)
    assert done == replay(dag, at(prices), hardware)


@together("seed", seeds(range(40), 10))
def test_overlap_is_the_time_with_two_lanes_at_work(
    seed: int, hardware: Hardware, task: MakeTask, graph: MakeGraph
) -> None:
    dag, prices = random_case(2000 + seed, task, graph)
    done = replay(dag, at(prices), hardware)
    times = sorted({*done.start, *done.end})
    together = 0.0
    for left, right in pairwise(times):
        middle = (left + right) / 2
        if sum(a < middle < b for a, b in zip(done.start, done.end, strict=True)) > 1:
            together += right - left
    assert done.overlap == pytest.approx(together, rel=1e-9, abs=1e-12)


def test_a_task_alone_runs_at_its_price_whatever_the_memory_says(
    hardware: Hardware, task: MakeTask, graph: MakeGraph
) -> None:
    done = replay(graph(task("t", "cpu", 10**12, ("dram",))), at({"t": 0.25}), hardware)
    assert done.makespan == 0.25


def test_two_tasks_that_want_the_whole_memory_take_as_long_as_one_after_the_other(
    hardware: Hardware, task: MakeTask, graph: MakeGraph
) -> None:
    dag = graph(*(task(lane, lane, 30 * 10**9, ("dram",)) for lane in ("cpu", "acc")))
    assert replay(dag, lambda _: 1.0, hardware).end == (2.0, 2.0)


def test_of_ready_tasks_the_first_in_the_graph_runs_first(hardware: Hardware, task: MakeTask, graph: MakeGraph) -> None:
    dag = graph(
        task("a", "cpu", 0, ("dram",)),
        task("b", "acc", 0, ("vram",)),
        task("c", "h2d", 0, ("dram", "vram"), (1,)),
        task("d", "h2d", 0, ("dram", "vram"), (0,)),
    )
    done = replay(dag, lambda _: 1.0, hardware)
    assert done.start == (0.0, 0.0, 1.0, 2.0)


def test_an_empty_graph_takes_no_time(hardware: Hardware, graph: MakeGraph) -> None:
    assert replay(graph(), lambda _: 1.0, hardware).makespan == 0.0


def test_a_circle_is_refused(hardware: Hardware, task: MakeTask, graph: MakeGraph) -> None:
    dag = graph(task("a", "cpu", 0, ("dram",), (1,)), task("b", "cpu", 0, ("dram",), (0,)))
    with pytest.raises(ValueError, match="cycle"):
        replay(dag, lambda _: 1.0, hardware)


def price(task: Task) -> float:
    return 1e-6 + task.bytes / 20e9


def streaming(task: Task) -> float:
    return task.bytes / 20e9


def figure(value: float) -> Figure:
    return Figure(value=value, p10=value, p90=value, source="test")


def test_a_sequential_plan_takes_the_sum_of_its_prices(placement: Callable[..., Placement]) -> None:
    plan = placement(Workload(prompt_tokens=7, output_tokens=5, context=12, batch=2))
    for iteration in single_stream(plan.workload):
        dag = lower(plan, iteration)
        assert {task.resource for task in dag.tasks} == {"cpu", "acc", "h2d", "d2h"}
        done = replay(dag, price, plan.hardware)
        assert done.makespan == pytest.approx(sum(map(price, dag.tasks)), rel=1e-9)
        assert done.makespan == pytest.approx(makespan(dag, price), rel=1e-9)
        assert done.overlap == 0.0


def test_prefetch_overlaps_and_contention_costs(placement: Callable[..., Placement]) -> None:
    plan = placement(Workload(prompt_tokens=7, output_tokens=5, context=12), "streamed")
    dag = lower(plan, next(single_stream(plan.workload)))
    links = tuple(link.model_copy(update={"bandwidth": figure(1e15)}) for link in plan.hardware.links)
    machine = plan.hardware.model_copy(update={"links": links})
    wide = tuple(memory.model_copy(update={"bandwidth": figure(1e15)}) for memory in plan.hardware.memories)
    free = replay(dag, streaming, machine.model_copy(update={"memories": wide}))
    shared = replay(dag, streaming, machine)
    assert free.makespan * 1.1 < shared.makespan < sum(map(streaming, dag.tasks)) * 1.1
    assert shared.overlap > 0.0
    assert shared.moved == {lane: sum(t.bytes for t in dag.tasks if t.resource == lane) for lane in shared.busy}


def test_spans_carry_ids_lanes_and_times(placement: Callable[..., Placement]) -> None:
    plan = placement(Workload(prompt_tokens=7, output_tokens=5, context=12))
    done = replay(lower(plan, next(single_stream(plan.workload))), price, plan.hardware)
    rows = spans(done, offset=10.0)
    assert [row.task for row in rows] == [task.id for task in done.graph.tasks]
    assert rows[0].layer == -1 and rows[0].start_s == 10.0 and rows[0].phase == "prefill"
    assert max(row.end_s for row in rows) == 10.0 + done.makespan


def test_a_ready_task_does_not_overtake(hardware: Hardware, task: MakeTask, graph: MakeGraph) -> None:
    """Lanes are queues: c is ready at once, but b was issued before it and waits for the link."""
    dag = graph(
        task("a", "h2d", 0, ("dram",)),
        task("b", "acc", 0, ("vram",), (0,)),
        task("c", "acc", 0, ("vram",)),
    )
    price = at({"a": 2.0, "b": 1.0, "c": 4.0})
    assert replay(dag, price, hardware).start == (0.0, 2.0, 3.0)
    assert makespan(dag, price) == 7.0
