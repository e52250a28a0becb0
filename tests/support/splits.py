"""Questions about operation splits on small models, for tests."""

from plans import figure, make_hardware

from helmsman.planner.machine import roles
from helmsman.planner.strategies.streaming.division import pieces
from helmsman.planner.strategies.streaming.place import Frame, Layout, place
from helmsman.schemas.hardware import Hardware, Link, Memory
from helmsman.schemas.model import Model
from helmsman.schemas.workload import Workload

WORK = Workload(prompt_tokens=8, output_tokens=9, context=32)


def make_frame(model: Model, workload: Workload = WORK, hardware: Hardware | None = None, **changes) -> Frame:
    formats = {"weights": "f32", "kv": "f32"}
    return Frame(model, roles(hardware or make_hardware()), workload, **formats | changes)


def make_layout(model: Model, start: int, stop: int, chunks: dict[str, int] | None = None, **changes) -> Layout:
    return Layout(pieces(model, chunks or {}), start, stop, **changes)


def split_placement(model: Model, start: int, stop: int, chunks=None, frame=None, **changes):
    """The placement of units [start, stop) on the loopback accelerator."""
    return place(frame or make_frame(model), make_layout(model, start, stop, chunks, **changes))


def with_storage(hardware: Hardware, *names: str, direct: bool = True) -> Hardware:
    """`hardware` with NVMe memories behind links of their own, straight to vram or to dram."""
    target = "vram" if direct else "dram"
    facts = {"kind": "nvme", "capacity": 1 << 40, "available": 1 << 40, "bandwidth": figure(3e9), "source": "test"}
    memories = tuple(Memory(name=name, **facts) for name in names)
    links = tuple(
        Link(
            name=f"s2d-{name}",
            source_memory=name,
            target_memory=target,
            kind="gds",
            bandwidth=figure(3e9),
            latency=figure(1e-4),
        )
        for name in names
    )
    return hardware.model_copy(update={"memories": (*hardware.memories, *memories), "links": (*hardware.links, *links)})
