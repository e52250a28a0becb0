"""The candidates of `expert-split`, and the rules of each.

The first layers may live and compute on the host whole, as in a layer split. Of the others the dense part (attention,
router, shared networks, caches) is on the accelerator; so are the experts of the last ones. Of those between, some
experts are there and the rest on the host, which computes what tokens choose of them at the same time; or all are on
the host and some are cached in slots there, and those that are not are computed on the host or fetched. Keys and values
of some blocks may be on the host, where decode steps attend to them; prompts attend on the accelerator all the same."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from helmsman.lowering.bodies.experts import EXPERTS
from helmsman.lowering.layer_cache import cache_of, owner
from helmsman.lowering.operation import Formats
from helmsman.lowering.ops import ONE_TOKEN, block_ops
from helmsman.lowering.placement import Placement
from helmsman.lowering.stages import beginnings
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.planner.tensor_formats import with_own_formats
from helmsman.schemas.blocks.feed_forward import Experts
from helmsman.schemas.errors import UsageError
from helmsman.schemas.model import Model
from helmsman.schemas.plan import ComputeRule, ExpertSlots, KvRule, LayerRange, Part, Residence, Schedule, Select
from helmsman.schemas.routing import Eviction


class SlotRule(NamedTuple):
    """Says how experts are cached: which leave slots, and what happens to those that are not there; `share`: of these
    that are fetched, where they are divided."""

    eviction: Eviction
    misses: Literal["host", "fetched", "divided"]
    share: float | None = None


@dataclass(frozen=True, slots=True)
class ExpertLayout:
    """A candidate. `host`: the first layers, on the host whole; `away`: the next layers with experts, of which only the
    first `kept` experts are on the accelerator; `streamed`: whether prompts compute the others there as well, their
    weights coming over the link. `rule`: how `slots` of each of these layers are cached instead, `by_layer`: of every
    one where they differ. `entry`: whether the accelerator has what is before the blocks as well, and so everything.
    `attended`: of the blocks after the first `host` that have caches, how many have them on the host."""

    host: int
    away: int
    kept: int = 0
    streamed: bool = False
    rule: SlotRule | None = None
    slots: int = 0
    by_layer: tuple[int, ...] = ()
    entry: bool = False
    attended: int = 0

    def slots_of(self, place: int) -> int:
        """Return the slots of a layer by its place among those whose experts are away."""
        return self.by_layer[place] if self.by_layer else self.slots


def expert_layers(model: Model) -> tuple[int, ...]:
    """Return the layers that have routed experts."""
    with_experts = {layout.letter for layout in model.layouts if any(isinstance(b.op, Experts) for b in layout.bodies)}
    return tuple(layer for layer, letter in enumerate(model.pattern) if letter in with_experts)


def expert_count(model: Model, strategy: str = "expert-split") -> int:
    """Return how many experts a layer has. Raises UsageError for a model without, or whose layers differ."""
    counts = {body.op.experts for block in model.layouts for body in block.bodies if isinstance(body.op, Experts)}
    if len(counts) != 1:
        problem = "has no routed experts" if not counts else "has layers of different numbers of experts"
        remedy = "use layer-split, or best"
        raise UsageError(f"{model.name} {problem}", field="strategy", value=strategy, remedy=remedy)
    return counts.pop()


def away_layers(model: Model, layout: ExpertLayout) -> tuple[int, ...]:
    """Return the layers whose experts are not all on the accelerator, those on the host whole apart."""
    return tuple(layer for layer in expert_layers(model) if layer >= layout.host)[: layout.away]


@lru_cache(maxsize=64)
def cached_layers(model: Model) -> tuple[int, ...]:
    """Return the layers whose caches may be elsewhere than their weights: plain ones, none where layers share them."""
    if any(owner(model, layer) != layer for layer in range(model.layers)):
        return ()
    plain = {letter for letter in model.pattern if _attends_plainly(model, model.pattern.index(letter))}
    return tuple(layer for layer, letter in enumerate(model.pattern) if letter in plain)


def _attends_plainly(model: Model, layer: int) -> bool:
    """Whether nothing but attention reads what a layer keeps of past tokens."""
    cache = cache_of(model, layer)
    kinds = {op.kind for op in block_ops(model, layer, ONE_TOKEN, Formats())}
    return cache is not None and not cache.pools and not kinds & {"index", "recurrence", "convolution"}


def host_attending_layers(model: Model, layout: ExpertLayout) -> tuple[int, ...]:
    """Return the layers that attend on the host, those on the host whole apart."""
    return tuple(layer for layer in cached_layers(model) if layer >= layout.host)[: layout.attended]


def place(frame: Frame, layout: ExpertLayout) -> Placement:
    """Return the rules of a candidate."""
    model, host, accelerator = frame.model, frame.roles.host, frame.accelerator
    whole, elsewhere = _whole(layout), _elsewhere(model, layout)
    attending = host_attending_layers(model, layout)
    ends = [Select(names=names) for names in beginnings(model)] if not layout.entry else []
    if layout.host == model.layers:
        ends.append(Select(names="*"))
    residence = [
        *(Residence(select=select, memory=host.memory, format=frame.weights) for select in (*whole, *ends, *elsewhere)),
        Residence(select=Select(), memory=accelerator.memory, format=frame.weights),
    ]
    compute = [
        *_prompt_rules(frame, layout, elsewhere),
        *_fetched(frame, layout),
        *_attending(frame, attending),
        *(ComputeRule(select=select, device=host.name) for select in (*whole, *ends, *elsewhere)),
        ComputeRule(select=Select(), device=accelerator.name),
    ]
    streams = layout.streamed and bool(elsewhere)
    placed = Placement(
        model=model,
        hardware=frame.roles.hardware,
        workload=frame.workload,
        residence=tuple(residence),
        kv=(
            *(
                KvRule(select=select, memory=host.memory, format=frame.kv)
                for select in (*whole, *([_layers("*", attending)] if attending else []))
            ),
            KvRule(select=Select(), memory=accelerator.memory, format=frame.kv),
        ),
        compute=tuple(compute),
        activations=frame.roles.activations,
        schedule=Schedule(overlap="next-layer", prefetch=1) if streams else Schedule(),
        expert_slots=tuple(_slots(frame, layout)),
    )
    return with_own_formats(placed, frame.formats)


def _whole(layout: ExpertLayout) -> list[Select]:
    return [Select(layers=LayerRange(start=0, stop=layout.host))] if layout.host else []


def _elsewhere(model: Model, layout: ExpertLayout) -> list[Select]:
    """Return the selectors of experts on the host."""
    layers = away_layers(model, layout)
    if not layers:
        return []
    part = Part(axis="experts", start=layout.kept, stop=expert_count(model)) if layout.kept else None
    return [_experts(layers, part)]


def _prompt_rules(frame: Frame, layout: ExpertLayout, elsewhere: list[Select]) -> Iterator[ComputeRule]:
    """Yield where prompts compute experts of the host: on the accelerator where they are streamed; else on the host,
    whatever decode steps do."""
    device = frame.accelerator if layout.streamed else frame.roles.host
    if layout.streamed or (layout.rule is not None and layout.rule.misses == "fetched"):
        yield from (ComputeRule(select=select, device=device.name, phase="prefill") for select in elsewhere)


def _attending(frame: Frame, layers: tuple[int, ...]) -> Iterator[ComputeRule]:
    """Yield where decode steps of layers whose caches are on the host write to them and attend."""
    for name in ("append", "attention") if layers else ():
        yield ComputeRule(select=_layers(name, layers), device=frame.roles.host.name, phase="decode")


def _fetched(frame: Frame, layout: ExpertLayout) -> Iterator[ComputeRule]:
    """Yield the rule of layers whose experts decode steps fetch into slots."""
    if layout.rule is None or layout.rule.misses != "fetched":
        return
    layers = away_layers(frame.model, layout)
    cached = tuple(layer for place, layer in enumerate(layers) if layout.slots_of(place))
    if cached:
        yield ComputeRule(select=_experts(cached), device=frame.accelerator.name, phase="decode")


def _slots(frame: Frame, layout: ExpertLayout) -> Iterator[ExpertSlots]:
    """Yield the slots of layers, those of one size together."""
    if layout.rule is None:
        return
    layers = away_layers(frame.model, layout)
    of_size: dict[int, list[int]] = {}
    for place, layer in enumerate(layers):
        of_size.setdefault(layout.slots_of(place), []).append(layer)
    for slots, members in of_size.items():
        if slots:
            yield ExpertSlots(
                select=_experts(tuple(members)),
                memory=frame.accelerator.memory,
                slots=slots,
                eviction=layout.rule.eviction,
                misses=layout.rule.misses,
                fetched=layout.rule.share,
            )


def _experts(layers: tuple[int, ...], part: Part | None = None) -> Select:
    """Return the selector of routed experts of these layers."""
    return _layers(EXPERTS, layers, part)


def _layers(names: str, layers: tuple[int, ...], part: Part | None = None) -> Select:
    ranges = tuple(LayerRange(start=start, stop=stop) for start, stop in _runs(layers))
    return Select(names=names, layers=ranges if len(ranges) > 1 else ranges[0], part=part)


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
    """Return a candidate in HELM's notation, with where experts are: `cpu(3)->cuda(47) experts cpu(20x96)`, and how
    many are in slots: `experts cpu(20), 32 slots least-recent, misses fetched`."""
    units, away = frame.model.units, len(away_layers(frame.model, layout))
    split = f"cpu({layout.host + 1})->{frame.accelerator.kind}({units - layout.host - 1})"
    if layout.entry:
        return f"{frame.accelerator.kind}({units})"
    caches = f", caches cpu({layout.attended})" if layout.attended else ""
    if not away:
        return f"{split}{caches}"
    many = "" if not layout.kept else f"x{expert_count(frame.model) - layout.kept}"
    streamed = ", streamed to prompts" if layout.streamed else ""
    return f"{split} experts cpu({away}{many}){_slots_label(layout)}{streamed}{caches}"


def _slots_label(layout: ExpertLayout) -> str:
    if layout.rule is None:
        return ""
    slots = f"{layout.slots}"
    if layout.by_layer:
        least, most = min(layout.by_layer), max(layout.by_layer)
        slots = f"{least}..{most}" if least < most else f"{most}"
    misses = {"host": "on the host", "fetched": "fetched", "divided": f"{layout.rule.share or 0:.0%} fetched"}
    return f", {slots} slots {layout.rule.eviction}, misses {misses[layout.rule.misses]}"
