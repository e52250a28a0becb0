"""Rules that engines share: homes of weights, and everything computed on the accelerator."""

from collections.abc import Iterable, Iterator
from itertools import groupby

from helmsman.lowering.placement import Placement
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.schemas.plan import ComputeRule, KvRule, LayerRange, Path, Residence, Schedule, Select


def home(
    frame: Frame, memory: str, names: str = "*", layers: tuple[int, int] | None = None, path: Path = "pinned"
) -> Residence:
    """Weights called `names`, of blocks start <= layer < stop if given, live in `memory`."""
    chosen = None if layers is None else LayerRange(start=layers[0], stop=layers[1])
    return Residence(select=Select(names=names, layers=chosen), memory=memory, format=frame.weights, path=path)


def on_accelerator(frame: Frame, residence: Iterable[Residence], schedule: Schedule) -> Placement:
    """Everything computed on the accelerator, keys and values there; weights live where `residence` says."""
    accelerator = frame.accelerator
    return Placement(
        model=frame.model,
        hardware=frame.roles.hardware,
        workload=frame.workload,
        residence=tuple(residence),
        kv=(KvRule(select=Select(), memory=accelerator.memory, format=frame.kv),),
        compute=(ComputeRule(select=Select(), device=accelerator.name),),
        activations=frame.roles.activations,
        schedule=schedule,
    )


def stretches(chosen: Iterable[bool]) -> Iterator[tuple[int, int]]:
    """Where neighbours are chosen, as (start, stop)."""
    for value, members in groupby(enumerate(chosen), key=lambda item: item[1]):
        places = [place for place, _ in members]
        if value:
            yield places[0], places[-1] + 1
