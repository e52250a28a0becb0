"""The values that operations of a layer read from each other and how long they take: what a split's boundaries cost.

Derived from lowering's dataflow, so that search, lowering and simulation send the same activations."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate

from helmsman.lowering.graph import TaskKind
from helmsman.lowering.operation import Formats
from helmsman.lowering.variants import varied_ops
from helmsman.planner.prediction.predict import mean_step
from helmsman.planner.strategies.streaming.division import DivisionPiece
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.schemas.hardware import Link


@dataclass(frozen=True, slots=True)
class Wire:
    """One direction of the link for activations: seconds per transfer, bytes/s."""

    latency: float
    rate: float


@dataclass(frozen=True, slots=True)
class DataflowStep:
    """One operation of a layer for one batch.

    `names`: under which its output is read; `inputs`: what it reads; `size`: bytes of its output; `written`: bytes of
    new keys and values; `host`, `accelerator`: seconds of the whole operation there; `turn_host`, `turn_accelerator`:
    of turning the cache before it; `first`: its first unit; `edges`: the parts of it before each of its units, and 1.
    """

    name: str
    names: tuple[str, ...]
    inputs: tuple[str, ...]
    size: int
    written: int
    host: float
    accelerator: float
    turn_host: float
    turn_accelerator: float
    first: int
    edges: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Dataflow:
    """The steps of a layer in order; `into`, `back`: the link to the accelerator and from it; `overlap`: activations
    pass by what is streamed, which comes `prefetch` layers ahead if it does; `reshape`: new keys and values are read
    where they were made, not from the cache."""

    steps: tuple[DataflowStep, ...]
    into: Wire
    back: Wire
    overlap: bool
    reshape: bool
    prefetch: int = 1


def dataflow(
    frame: Frame,
    units: tuple[DivisionPiece, ...],
    host: Mapping[tuple[str, TaskKind], float],
    accelerator: Mapping[tuple[str, TaskKind], float],
) -> Dataflow:
    """The dataflow of a layer's mean decode step; `host`, `accelerator`: seconds there, by operation and kind."""
    into, back = activation_links(frame)
    iteration = mean_step(frame.workload)
    formats = Formats(kv=frame.kv, activations=frame.roles.activations)
    ops = varied_ops(frame.model, 0, iteration, formats, frame.form == "divided", frame.cache)
    place = _places(units)
    steps = tuple(
        DataflowStep(
            name=op.name,
            names=op.names,
            inputs=op.inputs,
            size=op.out_bytes,
            written=op.kv_write,
            host=host[op.name, op.kind],
            accelerator=accelerator[op.name, op.kind],
            turn_host=host.get((op.name, "reshape"), 0.0),
            turn_accelerator=accelerator.get((op.name, "reshape"), 0.0),
            first=place(op.name)[0],
            edges=place(op.name)[1],
        )
        for op in ops
    )
    return Dataflow(steps, _wire(into), _wire(back), frame.overlap == "next-layer", frame.reshape, frame.prefetch)


def activation_links(frame: Frame) -> tuple[Link, Link]:
    """The links to the accelerator's memory and back."""
    hardware, here, there = frame.roles.hardware, frame.roles.host.memory, frame.accelerator.memory
    into, back = hardware.link(here, there), hardware.link(there, here)
    assert into is not None and back is not None, "machines without links have no splits inside a layer"
    return into, back


def _wire(link: Link) -> Wire:
    return Wire(link.latency.value, link.bandwidth.value)


def _places(units: tuple[DivisionPiece, ...]) -> Callable[[str], tuple[int, tuple[float, ...]]]:
    """By operation its first unit and its edges; the cache is written where the last of V is computed."""
    ops = [unit.op for unit in units]

    def place(op: str) -> tuple[int, tuple[float, ...]]:
        if op == "append":
            return ops.index("v") + ops.count("v") - 1, (0.0, 1.0)
        own = [unit for unit in units if unit.op == op]
        ends = accumulate((unit.stop - unit.start for unit in own), initial=0)
        return ops.index(op), tuple(end / own[0].extent for end in ends)

    return place
