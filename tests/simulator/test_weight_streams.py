"""Transfer and expansion of one weight are ordered, those of different weights are not (PARK-36, E-PARK-03)."""

from dataclasses import replace

import pytest
from plans import figure, make_hardware
from shapes import small_model
from splits import make_frame

from helmsman.lowering.graph import Task, TaskGraph
from helmsman.lowering.lower import lower
from helmsman.planner.prediction.predict import mean_step
from helmsman.planner.strategies.streaming.place import Layout, place
from helmsman.schemas.hardware import Hardware
from helmsman.simulator.replay import replay


def machine() -> Hardware:
    """A GPU whose expansions have a lane of their own, in memories that nobody fills."""
    hardware = make_hardware(kind="cuda")
    wide = tuple(memory.model_copy(update={"bandwidth": figure(1e18)}) for memory in hardware.memories)
    return hardware.model_copy(update={"memories": wide})


def compressed(layers: int = 1, batches: int = 1) -> TaskGraph:
    """The mean step of a model whose weights and caches all come in 4-bit groups."""
    model = small_model("qwen3").with_layers(layers)
    frame = make_frame(model, hardware=machine())
    frame = replace(frame, workload=frame.workload.model_copy(update={"batches": batches}))
    units = frame.units({})
    layout = Layout(units, 0, len(units), weights_q4=True, cache_q4=True)
    return lower(place(frame, layout), mean_step(frame.workload, batches))


def what(task: Task) -> tuple[int | None, str, int]:
    """Which weight, or cache of which batch, a transfer or an expansion is about."""
    return task.layer, task.operation, task.batch


def test_an_expansion_follows_its_own_transfer_and_no_other_weight():
    graph = compressed(layers=3)
    streamed = [task for task in graph.tasks if task.kind == "decompress"]
    assert len(streamed) == 3 * 9
    for task in streamed:
        (dep,) = task.deps
        assert graph.tasks[dep].kind == "transfer"
        assert what(graph.tasks[dep]) == what(task)


def test_transfers_wait_for_no_expansion():
    """They follow the transfer before them on their link, and what frees their buffers two layers before."""
    graph = compressed(layers=4)
    for task in graph.tasks:
        if task.kind == "transfer" and task.resource == "h2d":
            before = [graph.tasks[dep] for dep in task.deps]
            assert all(each.kind != "decompress" for each in before)
            assert sum(each.kind == "transfer" for each in before) <= 1
            assert all(each.layer is not None and task.layer is not None for each in before)
            assert all(each.layer == task.layer - 2 for each in before if each.kind != "transfer")


def test_only_its_own_expansion_holds_an_operation_back():
    """`o` may start while later weights are still on their way, or being expanded."""
    graph = compressed()
    for task in graph.tasks:
        if task.kind == "linear" and task.layer is not None:
            own = {what(graph.tasks[dep]) for dep in task.deps if graph.tasks[dep].kind == "decompress"}
            assert own == {(task.layer, task.op, 0)}


@pytest.mark.parametrize(
    ("transfer", "expansion"),
    [
        pytest.param(lambda k: 1.0, lambda k: 2.0, id="expansions bind"),
        pytest.param(lambda k: 2.0, lambda k: 1.0, id="transfers bind"),
        pytest.param(lambda k: 1.0 + k % 3, lambda k: 3.0 - k % 3, id="one after the other"),
        pytest.param(lambda k: 0.25 * (k + 1), lambda k: 2.0 / (k + 1), id="from one to the other"),
    ],
)
def test_the_simulation_is_the_flow_shop(transfer, expansion):
    """finish_k = max(arrive_k, finish_{k-1}) + D_k: two machines, every weight through both, in order (E-PARK-03)."""
    graph = compressed()
    places = [what(task) for task in graph.tasks if task.kind == "decompress"]

    def price(task: Task) -> float:
        if task.layer is None or what(task) not in places:
            return 0.0
        number = places.index(what(task))
        return expansion(number) if task.kind == "decompress" else transfer(number) if task.resource == "h2d" else 0.0

    ran = replay(graph, price, machine())
    arrive = finish = 0.0
    for number, place_of in enumerate(places):
        arrive += transfer(number)
        finish = max(arrive, finish) + expansion(number)
        (end,) = (ran.end[i] for i, t in enumerate(graph.tasks) if t.kind == "decompress" and what(t) == place_of)
        assert end == pytest.approx(finish, rel=1e-12)


def test_streams_of_batches_do_not_mix():
    """Every batch of a zig-zag pass expands its own caches; weights come once for all."""
    graph = compressed(batches=2)
    expanded = [what(task) for task in graph.tasks if task.kind == "decompress"]
    assert len(set(expanded)) == len(expanded) == 7 + 2 * 2
    for task in graph.tasks:
        if task.kind == "decompress":
            assert {what(graph.tasks[dep]) for dep in task.deps} == {what(task)}
