"""Waits between lanes and devices, counted without those that others imply (PARK-77)."""

from collections.abc import Callable

import pytest

from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.graph import Task
from helmsman.lowering.placement import Placement
from helmsman.planner.machine import roles
from helmsman.planner.strategies.streaming.place import Frame, Layout, place
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.replay_report import Waits
from helmsman.schemas.workload import Workload
from helmsman.simulator.synchronisation import counted, synchronisation


def split(start: int, stop: int, batches: int = 1) -> Waits:
    """OPT-30B with units [start, stop) of its eleven operations on the GPU."""
    work = Workload(prompt_tokens=512, output_tokens=32, batch=8, batches=batches, context=544)
    frame = Frame(load_model("opt-30b"), roles(load_hardware("a4000-7950x", None)), work)
    return synchronisation(place(frame, Layout(frame.units({}), start, stop)))


@pytest.mark.parametrize(("start", "stop"), [(0, 9), (4, 11), (4, 10)])
@pytest.mark.parametrize("batches", [1, 3])
def test_a_split_hands_over_twice_a_layer_where_tensor_parallelism_needs_four_waits(start, stop, batches):
    """The GPU waits for the host and the host for the GPU; with all-reduces both wait twice."""
    found = split(start, stop, batches)
    assert found.tensor_parallel == 4
    assert 1.9 < found.devices <= 2.1


def test_streaming_alone_waits_for_the_link_and_no_device():
    found = split(0, 11)
    assert found.devices < 0.1
    assert found.lanes > 6
    assert found.tensor_parallel == 0


def test_one_device_waits_for_nobody(placement: Callable[..., Placement]):
    work = Workload(prompt_tokens=8, output_tokens=4, context=12)
    assert synchronisation(placement(work)).devices < 1


def test_a_wait_that_another_implies_is_none(hardware: Hardware, task: Callable[..., Task]):
    """acc waits for cpu through the link; that it needs the first task of cpu as well follows."""
    tasks = (
        task("a", "cpu", 1, ("dram",)),
        task("b", "cpu", 1, ("dram",), (0,)),
        task("c", "h2d", 1, ("dram", "vram"), (1,)),
        task("d", "acc", 1, ("vram",), (0, 1, 2)),
        task("e", "acc", 1, ("vram",), (2,)),
        task("f", "cpu", 1, ("dram",), (1,)),
    )
    assert counted(tasks, hardware) == (1, 2, 2)
