"""Prices copies of the states that mixers keep: to snapshots, and back from there."""

from collections.abc import Mapping

from helmsman.lowering.graph import Task
from helmsman.planner.cost.model import CostModel
from helmsman.schemas.hardware import Device


def state_copy(device: Device, size: int) -> Task:
    """Return the copy of so many bytes of states to another place in a device's memory, where they are read and
    written."""
    return Task("append", "states", "decode", device.name, 1, 2 * size, 0, 0, "f32", (device.memory,), layer=0)


def copy_seconds(costs: CostModel, sizes: Mapping[str, int]) -> float:
    """Return seconds of one copy of all states, of which every device has so many bytes; devices copy in turn."""
    copies = (state_copy(costs.hardware.device(name), size) for name, size in sizes.items() if size)
    return sum(costs.price(task).mid for task in copies)
