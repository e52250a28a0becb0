"""A pass layer by layer: how long each computes, how long the next one takes to be loaded meanwhile, and their ratio
(Gupta & Dwarkadas Table IV, Fig 5 to 8; GUPTA-14, 33, 41, 42)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from helmsman.lowering.graph import CACHED
from helmsman.lowering.lower import lower
from helmsman.lowering.paging import passes_of
from helmsman.lowering.stages import half_of, stage_of
from helmsman.planner.prediction.predict import mean_step
from helmsman.scheduler.iteration import Iteration, Phase
from helmsman.schemas.hardware import lane_owner
from helmsman.schemas.plan import Plan
from helmsman.simulator.replay import Price, replay
from helmsman.timing.handovers import Handovers
from helmsman.timing.interference import Slowed

LayerKind = Literal["embedding", "attention", "ffn", "block", "output"]


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """Seconds of one layer in one pass: `compute` of devices, with the expansion of 4-bit groups; `load`: the busiest
    of the links that bring weights and caches for it."""

    kind: LayerKind
    layer: int | None
    compute: float
    load: float


@dataclass(frozen=True, slots=True)
class Overlap:
    """Layers of one `kind` and those after them: mean seconds of the compute of the first, of the `load` of the next.

    `ratio` 1 is a perfect overlap, less is bound by memory, more by computation; None where nothing is loaded."""

    kind: LayerKind
    following: LayerKind
    compute: float
    load: float

    @property
    def ratio(self) -> float | None:
        """Compute over load."""
        return self.compute / self.load if self.load else None


@dataclass(frozen=True, slots=True)
class PassLayers:
    """Every layer of a pass in order, and what overlaps between layers inside the model."""

    phase: Phase
    context: int
    layers: tuple[LayerTimes, ...]
    overlaps: tuple[Overlap, ...]


def per_layer(plan: Plan, price: Price, slowed: Slowed | None, between: Handovers) -> tuple[PassLayers, PassLayers]:
    """The last pass over the prompt and the mean decode step of a plan, replayed as all others (`simulator.replay`)."""
    all_passes = passes_of(plan)
    passes = (all_passes.prompt[-1], mean_step(plan.workload, all_passes.batches))
    first, step = (_layers(plan, one_pass, price, slowed, between) for one_pass in passes)
    return first, step


def _layers(plan: Plan, iteration: Iteration, price: Price, slowed: Slowed | None, between: Handovers) -> PassLayers:
    inward, devices = _inward(plan), {device.name for device in plan.hardware.devices}
    stages: dict[int, tuple[LayerKind, int | None]] = {}
    compute, load = dict[int, float](), dict[int, dict[str, float]]()
    made = replay(lower(plan, iteration), price, plan.hardware, slowed, between)
    for task, start, end in zip(made.graph.tasks, made.start, made.end, strict=True):
        stage, lane, seconds = stage_of(plan, task.operation, task.layer), lane_owner(task.resource), end - start
        stages.setdefault(stage, (_kind(plan, task.operation, task.layer), task.layer))
        if lane in devices:
            compute[stage] = compute.get(stage, 0.0) + seconds
        elif lane in inward and (task.payload == "weights" or task.payload in CACHED):
            lanes = load.setdefault(stage, {})
            lanes[lane] = lanes.get(lane, 0.0) + seconds
    layer_times = tuple(
        LayerTimes(*stages[n], compute.get(n, 0.0), max(load.get(n, {}).values(), default=0.0)) for n in sorted(stages)
    )
    return PassLayers(iteration.phase, iteration.context, layer_times, tuple(_overlaps(layer_times)))


def _inward(plan: Plan) -> set[str]:
    """Links that do not lead away from accelerators."""
    accelerated = {device.memory for device in plan.hardware.devices if device.kind != "cpu"}
    return {link.name for link in plan.hardware.links if link.source_memory not in accelerated}


def _kind(plan: Plan, op: str, layer: int | None) -> LayerKind:
    if layer is None:
        return "embedding" if stage_of(plan, op, layer) == 0 else "output"
    if plan.schedule.stage == "block":
        return "block"
    return "ffn" if half_of(plan.model, layer, op) == 1 else "attention"


def _overlaps(layers: Sequence[LayerTimes]) -> Iterator[Overlap]:
    """The means over all neighbours of two kinds, inside the model."""
    pairs: dict[tuple[LayerKind, LayerKind], list[tuple[float, float]]] = {}
    for layer, following in pairwise(layers):
        if layer.layer is not None and following.layer is not None:
            pairs.setdefault((layer.kind, following.kind), []).append((layer.compute, following.load))
    for kinds, times in pairs.items():
        compute, load = (sum(column) / len(times) for column in zip(*times, strict=True))
        yield Overlap(*kinds, compute, load)
