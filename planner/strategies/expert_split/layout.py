"""The candidates of `expert-split`, and the rules of each.

The first layers may live and compute on the host whole, as in a layer split. Of the others the dense part (attention,
router, shared networks, caches) is on the accelerator; so are the experts of the last ones. Of those between, some
experts are there and the rest on the host, which computes what tokens choose of them at the same time."""

from dataclasses import dataclass

from helmsman.lowering.placement import Placement
from helmsman.lowering.stages import beginnings
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.schemas.blocks.feed_forward import Experts
from helmsman.schemas.errors import UsageError
from helmsman.schemas.model import Model
from helmsman.schemas.plan import ComputeRule, KvRule, LayerRange, Part, Residence, Schedule, Select

EXPERTS = "experts_*"
"""Tensors and operations of routed experts."""


@dataclass(frozen=True, slots=True)
class ExpertLayout:
    """A candidate. `host`: the first layers, on the host whole; `away`: the next layers with experts, of which only the
    first `kept` experts are on the accelerator; `streamed`: whether prompts compute the others there as well, their
    weights coming over the link."""

    host: int
    away: int
    kept: int = 0
    streamed: bool = False


def expert_layers(model: Model) -> tuple[int, ...]:
    """Return the layers that have routed experts."""
    with_experts = {layout.letter for layout in model.layouts if any(isinstance(b.op, Experts) for b in layout.bodies)}
    return tuple(layer for layer, letter in enumerate(model.pattern) if letter in with_experts)


def expert_count(model: Model) -> int:
    """Return how many experts a layer has. Raises UsageError for a model without, or whose layers differ."""
    counts = {body.op.experts for block in model.layouts for body in block.bodies if isinstance(body.op, Experts)}
    if len(counts) != 1:
        problem = "has no routed experts" if not counts else "has layers of different numbers of experts"
        remedy = "use layer-split, or best"
        raise UsageError(f"{model.name} {problem}", field="strategy", value="expert-split", remedy=remedy)
    return counts.pop()


def away_layers(model: Model, layout: ExpertLayout) -> tuple[int, ...]:
    """Return the layers whose experts are not all on the accelerator, those on the host whole apart."""
    return tuple(layer for layer in expert_layers(model) if layer >= layout.host)[: layout.away]


def place(frame: Frame, layout: ExpertLayout) -> Placement:
    """Return the rules of a candidate."""
    model, host, accelerator = frame.model, frame.roles.host, frame.accelerator
    whole, elsewhere = _whole(layout), _elsewhere(model, layout)
    ends = [Select(names=names) for names in beginnings(model)]
    if layout.host == model.layers:
        ends.append(Select(names="*"))
    residence = [
        *(Residence(select=select, memory=host.memory, format=frame.weights) for select in (*whole, *ends, *elsewhere)),
        Residence(select=Select(), memory=accelerator.memory, format=frame.weights),
    ]
    streamed = [
        ComputeRule(select=select, device=accelerator.name, phase="prefill")
        for select in (elsewhere if layout.streamed else ())
    ]
    compute = [
        *streamed,
        *(ComputeRule(select=select, device=host.name) for select in (*whole, *ends, *elsewhere)),
        ComputeRule(select=Select(), device=accelerator.name),
    ]
    return Placement(
        model=model,
        hardware=frame.roles.hardware,
        workload=frame.workload,
        residence=tuple(residence),
        kv=(
            *(KvRule(select=select, memory=host.memory, format=frame.kv) for select in whole),
            KvRule(select=Select(), memory=accelerator.memory, format=frame.kv),
        ),
        compute=tuple(compute),
        activations=frame.roles.activations,
        schedule=Schedule(overlap="next-layer", prefetch=1) if streamed else Schedule(),
    )


def _whole(layout: ExpertLayout) -> list[Select]:
    return [Select(layers=LayerRange(start=0, stop=layout.host))] if layout.host else []


def _elsewhere(model: Model, layout: ExpertLayout) -> list[Select]:
    """Return the selectors of experts on the host."""
    layers = away_layers(model, layout)
    if not layers:
        return []
    part = Part(axis="experts", start=layout.kept, stop=expert_count(model)) if layout.kept else None
    ranges = tuple(LayerRange(start=start, stop=stop) for start, stop in _runs(layers))
    return [Select(names=EXPERTS, layers=ranges if len(ranges) > 1 else ranges[0], part=part)]


def _runs(layers: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return neighbouring layers as (start, stop)."""
    runs: list[tuple[int, int]] = []
    for layer in layers:
        if runs and runs[-1][1] == layer:
            runs[-1] = runs[-1][0], layer + 1
        else:
            runs.append((layer, layer + 1))
    return runs


def label(frame: Frame, layout: ExpertLayout) -> str:
    """Return a candidate in HELM's notation, with where experts are: `cpu(3)->cuda(47) experts cpu(20x96)`."""
    units, away = frame.model.units, len(away_layers(frame.model, layout))
    split = f"cpu({layout.host + 1})->{frame.accelerator.kind}({units - layout.host - 1})"
    if not away:
        return split
    many = "" if not layout.kept else f"x{expert_count(frame.model) - layout.kept}"
    streamed = ", streamed to prompts" if layout.streamed else ""
    return f"{split} experts cpu({away}{many}){streamed}"
