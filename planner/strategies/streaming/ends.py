"""Rules for the ends of a model that two working devices share."""

from typing import Literal

from helmsman.planner.strategies.streaming.place import ENDS, Frame
from helmsman.schemas.plan import ComputeRule, LayerRange, Residence, Select

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
    result = [ComputeRule(select=Select(names="embedding"), device=names["host"])]
    result += [ComputeRule(select=Select(names=name), device=names[end]) for name in _OUTPUT]
    return tuple(result)
