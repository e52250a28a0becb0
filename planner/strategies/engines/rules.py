"""Rules that engines share: homes of weights, and everything computed on the accelerator."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import groupby

from helmsman.lowering.placement import Placement
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.scheduler.iteration import Phase
from helmsman.schemas.formats import KvFormat, StoredFormat
from helmsman.schemas.plan import ComputeRule, KvRule, LayerRange, Path, Residence, Schedule, Select


def home(
    frame: Frame, memory: str, names: str = "*", layers: tuple[int, int] | None = None, path: Path = "pinned"
) -> Residence:
    """Weights called `names`, of blocks start <= layer < stop if given, live in `memory`."""
    return _home(memory, frame.weights, names, layers, path)


@lru_cache(maxsize=4096)
def _home(memory: str, fmt: StoredFormat, names: str, layers: tuple[int, int] | None, path: Path) -> Residence:
    return Residence(select=selected(names, layers), memory=memory, format=fmt, path=path)


@lru_cache(maxsize=4096)
def computed(
    device: str, names: str = "*", layers: tuple[int, int] | None = None, phase: Phase | None = None
) -> ComputeRule:
    """Operations called `names`, of blocks start <= layer < stop if given, run on `device`, in one phase or both."""
    return ComputeRule(select=selected(names, layers), device=device, phase=phase)


@lru_cache(maxsize=4096)
def cached_in(memory: str, fmt: KvFormat, layers: tuple[int, int] | None = None) -> KvRule:
    """Keys and values, of blocks start <= layer < stop if given, live in `memory`."""
    return KvRule(select=selected("*", layers), memory=memory, format=fmt)


def selected(names: str, layers: tuple[int, int] | None) -> Select:
    """What is called `names`, in blocks start <= layer < stop if given."""
    return Select(names=names, layers=None if layers is None else LayerRange(start=layers[0], stop=layers[1]))


def on_accelerator(frame: Frame, residence: Iterable[Residence], schedule: Schedule) -> Placement:
    """Everything computed on the accelerator, keys and values there; weights live where `residence` says."""
    accelerator = frame.accelerator
    return Placement(
        model=frame.model,
        hardware=frame.roles.hardware,
        workload=frame.workload,
        residence=tuple(residence),
        kv=(cached_in(accelerator.memory, frame.kv),),
        compute=(computed(accelerator.name),),
        activations=frame.roles.activations,
        schedule=schedule,
    )


def stretches(chosen: Iterable[bool]) -> Iterator[tuple[int, int]]:
    """Where neighbours are chosen, as (start, stop)."""
    for value, members in groupby(enumerate(chosen), key=lambda item: item[1]):
        places = [place for place, _ in members]
        if value:
            yield places[0], places[-1] + 1
