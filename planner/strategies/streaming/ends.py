"""Rules for what two working devices share: the ends of the model, and vectors, which both have."""

from typing import Literal

from helmsman.planner.strategies.streaming.place import ENDS, Frame
from helmsman.schemas.plan import ComputeRule, LayerRange, Residence, Schedule, Select

End = Literal["host", "accelerator"]
"""Where the final norm and the output live and run."""

_OUTPUT = ("final_norm", "head")


def blocks(frame: Frame) -> LayerRange:
    """Every block."""
    return LayerRange(start=0, stop=frame.model.layers)


def end_homes(frame: Frame, end: End) -> tuple[Residence, ...]:
    """The embedding lives on the host, which looks its rows up; the output where `end` says."""
    memories = {"host": frame.roles.host.memory, "accelerator": frame.accelerator.memory}
    where = {name: memories[end if name.startswith(_OUTPUT) else "host"] for name in ENDS}
    return tuple(
        Residence(select=Select(names=name), memory=memory, format=frame.weights) for name, memory in where.items()
    )


def end_places(frame: Frame, end: End) -> tuple[ComputeRule, ...]:
    """The ends run where they live."""
    names = {"host": frame.roles.host.name, "accelerator": frame.accelerator.name}
    found = [ComputeRule(select=Select(names="embedding"), device=names["host"])]
    found += [ComputeRule(select=Select(names=name), device=names[end]) for name in _OUTPUT]
    return tuple(found)


def vectors(frame: Frame) -> tuple[Residence, ...]:
    """Norms and biases of every block, in both memories."""
    host, away = frame.roles.host.memory, frame.accelerator.memory
    return tuple(
        Residence(select=Select(names=name, layers=blocks(frame)), memory=host, format=frame.weights, replicas=(away,))
        for name in ("*norm*", "*.bias")
    )


def schedule(frame: Frame) -> Schedule:
    """Weights come ahead while other layers are worked on, and once for all batches."""
    return Schedule(
        order="layer-major" if frame.workload.batches > 1 else "token-major",
        overlap=frame.overlap,
        prefetch=frame.prefetch if frame.overlap == "next-layer" else 0,
    )
