from collections.abc import Callable
from dataclasses import replace

import pytest

from helmsman.lowering.graph import Task, TaskGraph
from helmsman.lowering.placement import Placement
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.workload import Workload
from helmsman.simulator.breakdown import Breakdown, BreakdownSum
from helmsman.simulator.replay import replay_stream
from helmsman.simulator.stream import simulate
from helmsman.timing.handovers import Handovers


def accelerated(hardware: Hardware) -> Hardware:
    devices = tuple(d.model_copy(update={"kind": "loopback"}) if d.name == "acc" else d for d in hardware.devices)
    return hardware.model_copy(update={"devices": devices})


def test_every_task_is_in_its_row(
    hardware: Hardware, task: Callable[..., Task], graph: Callable[..., TaskGraph]
) -> None:
    """One after the other, each twice as long as the one before."""
    machine, up, down = accelerated(hardware), ("dram", "vram"), ("vram", "dram")
    moves = (
        ("weights", "h2d", up), ("cache", "h2d", up), ("activation", "h2d:activations", up),
        ("new cache entries", "d2h", down),
    )  # fmt: skip
    tasks = [task(what, lane, 0, ends)._replace(payload=what, kind="transfer") for what, lane, ends in moves]
    tasks.append(task("expansion", "acc", 0, ("vram",))._replace(kind="decompress", payload="weights"))
    tasks += [task("q", "acc", 0, ("vram",)), task("down", "cpu", 0, ("dram",))]
    chain = [each._replace(deps=(i - 1,) if i else ()) for i, each in enumerate(tasks)]
    seconds = {each.name: float(2**i) for i, each in enumerate(chain)}
    rows = BreakdownSum(machine)
    done = replay_stream(chain, lambda t: seconds[t.name], machine, rows.add)
    found = rows.breakdown(done.shares)
    assert found == Breakdown(compute=32, decompression=16, cache=2, weights=1, cpu=64, other=12, idle=79)
    assert found.idle == done.makespan - found.compute - found.decompression


def price(task: Task) -> float:
    return 1e-6 + task.bytes / (2e9 if task.kind == "transfer" else 20e9)


def test_rows_of_a_stream_are_the_work_of_its_lanes(placement: Callable[..., Placement]) -> None:
    plan = placement(Workload(prompt_tokens=16, output_tokens=8, context=32), "streamed")
    plan = replace(plan, hardware=accelerated(plan.hardware))
    whole = simulate(plan, price, Handovers(plan.hardware))
    for phase in (whole.prefill, whole.decode):
        busy = {lane.resource: lane.busy for lane in phase.lanes}
        rows = phase.rows
        assert rows.compute == pytest.approx(busy["acc"]) and rows.cpu == pytest.approx(busy["cpu"])
        assert rows.weights > 0.0
        assert rows.weights + rows.cache + rows.other == pytest.approx(
            sum(seconds for lane, seconds in busy.items() if lane not in ("acc", "cpu"))
        )
        assert rows.idle == pytest.approx(phase.seconds - busy["acc"])
