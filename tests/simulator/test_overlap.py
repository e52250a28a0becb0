"""Links that share lanes, replay in a bounded window, and what worked together."""

import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from helmsman.lowering.graph import Task, TaskGraph
from helmsman.lowering.lower import lower, lower_tasks
from helmsman.lowering.placement import Placement
from helmsman.scheduler.iteration import decode
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.workload import Workload
from helmsman.simulator.overlap import FIELDS, OverlapShares
from helmsman.simulator.replay import replay, replay_stream
from helmsman.timing.pools import Pools

MakeTask = Callable[..., Task]
WORK = Workload(prompt_tokens=40, output_tokens=9, context=64)
GB = 10**9


def joined(hardware: Hardware, first: str, second: str) -> Hardware:
    """Link `first` uses the physical lanes of `second`."""
    links = tuple(ln.model_copy(update={"shares": second}) if ln.name == first else ln for ln in hardware.links)
    return hardware.model_copy(update={"links": links})


def transfer(task: MakeTask, name: str, lane: str, memories: tuple[str, ...]) -> Task:
    return task(name, lane, GB, memories)._replace(kind="transfer")


@pytest.mark.parametrize("order", [("h2d", "d2h"), ("d2h", "h2d")])
def test_links_on_the_same_lanes_share_them(order: tuple[str, str], hardware: Hardware, task: MakeTask, graph) -> None:
    ends = {"h2d": ("dram", "vram"), "d2h": ("vram", "dram")}
    pair = graph(*(transfer(task, name, name, ends[name]) for name in order))
    assert replay(pair, lambda _: 0.5, hardware).makespan == pytest.approx(0.5)
    assert replay(pair, lambda _: 0.5, joined(hardware, *order)).makespan == pytest.approx(1.0)
    alone = graph(transfer(task, "one", order[0], ends[order[0]]))
    assert replay(alone, lambda _: 0.5, joined(hardware, *order)).makespan == 0.5


def test_lanes_of_one_link_share_it(hardware: Hardware, task: MakeTask, graph) -> None:
    pair = graph(*(transfer(task, lane, lane, ("dram", "vram")) for lane in ("h2d", "h2d:activations")))
    assert replay(pair, lambda _: 0.5, hardware).makespan == pytest.approx(1.0)


def test_links_that_share_in_a_circle(hardware: Hardware) -> None:
    with pytest.raises(BadInputError, match="shares itself"):
        Pools(joined(joined(hardware, "h2d", "d2h"), "d2h", "h2d"))


def price(task: Task) -> float:
    return 1e-6 + task.bytes / (2e9 if task.kind == "transfer" else 20e9)


@pytest.mark.parametrize("kind", ["split", "streamed"])
def test_a_window_does_not_change_the_result(kind: str, placement: Callable[..., Placement]) -> None:
    plan = placement(WORK, kind)
    whole = replay(lower(plan, decode(WORK, 3)), price, plan.hardware)
    seen: dict[int, tuple[float, float]] = {}
    tasks = lower_tasks(plan, decode(WORK, 3))
    some = replay_stream(tasks, price, plan.hardware, lambda i, _, a, b: seen.update({i: (a, b)}), window=48)
    assert some == whole.summary
    assert [seen[i] for i in range(len(seen))] == list(zip(whole.start, whole.end, strict=True))


def repeated(plan: Placement, times: int) -> Iterator[Task]:
    """The tasks of a step, `times` over, each step after the one before."""
    graph = lower(plan, decode(WORK, 3))
    for turn in range(times):
        base = turn * len(graph.tasks)
        for task in graph.tasks:
            deps = tuple(base + dep for dep in task.deps) or ((base - 1,) if turn else ())
            yield task._replace(deps=deps)


def test_memory_does_not_grow_with_the_layers(placement: Callable[..., Placement]) -> None:
    plan = placement(WORK, "streamed")

    def peak(times: int) -> int:
        tracemalloc.reset_peak()
        replay_stream(repeated(plan, times), price, plan.hardware, window=256)
        return tracemalloc.get_traced_memory()[1]

    tracemalloc.start()
    peak(150)  # the interpreter keeps some freed tuples: let it have them
    few, many = peak(10), peak(150)
    tracemalloc.stop()
    assert many < 1.2 * few


@pytest.mark.parametrize("kind", ["split", "streamed"])
def test_shares_add_up_to_the_makespan(kind: str, placement: Callable[..., Placement]) -> None:
    plan = placement(WORK, kind)
    done = replay(lower(plan, decode(WORK, 3)), price, plan.hardware).summary
    assert done.shares.total == pytest.approx(done.makespan, rel=1e-9)
    assert all(getattr(done.shares, name) >= 0 for name in FIELDS)


def test_what_works_together(hardware: Hardware, task: MakeTask, graph: Callable[..., TaskGraph]) -> None:
    """cpu 0..1, the accelerator 1..4, a transfer to it 0..2, one back 4..5."""
    devices = tuple(d.model_copy(update={"kind": "loopback"}) if d.name == "acc" else d for d in hardware.devices)
    machine = hardware.model_copy(update={"devices": devices})
    times = {"a": 1.0, "b": 3.0, "c": 2.0, "d": 1.0}
    tasks = (
        task("a", "cpu", 0, ("dram",)),
        task("b", "acc", 0, ("vram",), (0,)),
        transfer(task, "c", "h2d", ("dram", "vram")),
        transfer(task, "d", "d2h", ("vram", "dram")),
    )
    tasks = (*tasks[:3], tasks[3]._replace(deps=(1,)))
    shares = replay(graph(*tasks), lambda t: times[t.name], machine).summary.shares
    assert shares == OverlapShares(h2d_cpu=1.0, h2d_gpu=1.0, gpu=2.0, other=1.0)
