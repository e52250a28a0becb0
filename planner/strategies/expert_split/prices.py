"""The seconds of passes of every layout of `expert-split`: the closed form by which it searches.

A block's seconds are by how much a pass over a few more such blocks takes longer, so that what overlaps within a block
counts once, and what passes only at the ends of a model not at all. Of these its experts are a part that depends on how
many of them are where (`expert_seconds`), and the rest is the same for all of that."""

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Literal

from helmsman.lowering.expert_parts import fetched_share
from helmsman.lowering.pass_shape import pass_of
from helmsman.lowering.placement import shaped
from helmsman.lowering.routing import Hits, distinct_experts, experts_of, hits, part_shares
from helmsman.planner.cost.model import CostModel
from helmsman.planner.prediction.predict import mean_step, pass_seconds
from helmsman.planner.strategies.expert_split.expert_seconds import ExpertSeconds, ExpertShare
from helmsman.planner.strategies.expert_split.layout import (
    ExpertLayout,
    SlotRule,
    expert_layers,
    host_attending_layers,
    place,
)
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.planner.tensor_formats import of_pattern
from helmsman.scheduler.iteration import Iteration, Phase, prefill
from helmsman.schemas.blocks.feed_forward import Experts
from helmsman.schemas.routing import LayerRouting

_FEW, _MORE = 2, 4
"""Blocks of the models whose difference gives the seconds of one: two follow each other in both, as in a long model."""

Configuration = Literal["host", "away", "streamed", "accelerator", "entry", "attending"]
"""Where a block is: wholly on the host, but for experts on the accelerator, the same with experts streamed there, or
wholly there; with what is before the blocks, too; but for the cache, to which the host attends."""


@dataclass(frozen=True)
class BlockPrices:
    """The prices of a question's blocks. `costs`: of the machine."""

    frame: Frame
    costs: CostModel

    def seconds(self, layout: ExpertLayout, phase: Phase) -> float:
        """Return the closed form of a pass: the sum over its blocks, and what passes at the ends of the model."""
        host, rest = self._added_up("host", phase), self._added_up("accelerator", phase)
        first = self._experts_before[layout.host]
        total = self._ends(phase, layout) + host[layout.host] + rest[-1] - rest[layout.host]
        total += self._attending(layout, phase)
        if layout.by_layer:
            many = min(layout.away, self._experts_before[-1] - first)
            places = range(first, first + many)
            return total + sum(
                self.moved(place, phase, replace(layout, slots=layout.by_layer[place - first], by_layer=()))
                for place in places
            )
        moved = self._moved(layout, phase)
        last = min(first + layout.away, len(moved) - 1)
        return total + moved[last] - moved[first]

    def _attending(self, layout: ExpertLayout, phase: Phase) -> float:
        """Return by how much blocks that attend on the host take longer."""
        pattern = self.frame.model.pattern
        letters = Counter(pattern[layer] for layer in host_attending_layers(self.frame.model, layout))
        return sum(
            count * (self._block(letter, "attending", phase) - self._block(letter, "accelerator", phase))
            for letter, count in letters.items()
        )

    def moved(self, place: int, phase: Phase, layout: ExpertLayout) -> float:
        """Return by how much a layer, by its place among those with experts, takes longer with experts on the host."""
        layer = self._layers[place]
        key = self._alike(layer), phase, layout.kept, layout.streamed, layout.rule, layout.slots
        if key not in self._moved_by:
            looked_up = self._experts(layer, phase).look_up if layout.rule is not None and layout.slots else 0.0
            here = self._seconds_on("accelerator", layer, phase)
            self._moved_by[key] = looked_up + self._away(layer, phase, layout) - here
        return self._moved_by[key]

    def filling(self, layout: ExpertLayout) -> float:
        """Return the seconds of the link in which experts enter slots behind a decode step."""
        rule = layout.rule
        if rule is None or rule.eviction == "popularity" or rule.misses != "host":
            return 0.0
        first, total = self._experts_before[layout.host], 0.0
        for number in range(min(layout.away, len(self._layers) - first)):
            layer, slots = self._layers[first + number], layout.slots_of(number)
            if slots:
                total += self._experts(layer, "decode").entering(self._shares(layer, "decode", rule, slots)[1])
        return total

    def _moved(self, layout: ExpertLayout, phase: Phase) -> tuple[float, ...]:
        """Return by how much the first 0, 1, ... layers with experts take longer with experts on the host."""
        key = phase, layout.kept, layout.streamed, layout.rule, layout.slots
        if key not in self._moved_of:
            more = (self.moved(place, phase, layout) for place in range(len(self._layers)))
            self._moved_of[key] = tuple(accumulate(more, initial=0.0))
        return self._moved_of[key]

    def _away(self, layer: int, phase: Phase, layout: ExpertLayout) -> float:
        """Return the seconds of a block whose experts are, all or some, on the host."""
        rule, own = layout.rule, self._experts(layer, phase)
        held = layout.slots if rule is not None else layout.kept
        here, there = self._shares(layer, phase, rule, held)
        if phase == "prefill" and layout.streamed:
            left = 1.0 - held / self._kind(layer).experts
            return max(self._seconds_on("accelerator", layer, phase), left * self._seconds_on("streamed", layer, phase))
        if held and phase == "decode" and rule is not None and rule.misses == "fetched":
            return self._beside("accelerator", layer, phase) + own.fetched(here, there)
        if there.empty:
            return self._seconds_on("accelerator", layer, phase)
        if held and rule is not None and rule.share is not None:
            share = fetched_share(held, rule.share, here.distinct + there.distinct, here.distinct)
            parts = there.part(share), there.part(1.0 - share)
            return self._beside("away", layer, phase) + own.divided(here, *parts)
        return self._beside("away", layer, phase) + own.both(here, there)

    def _shares(self, layer: int, phase: Phase, rule: SlotRule | None, held: int) -> tuple[ExpertShare, ExpertShare]:
        """Return the experts of a pass that are on the accelerator, and the others: the first `held` ones, or what is
        in so many slots."""
        experts, routing, tokens = self._kind(layer), self._routing(layer), self._tokens(phase)
        distinct = self._distinct(layer, phase)
        if rule is None:
            there = part_shares(experts, 0, held, tokens, routing) if held else Hits(0.0, 0.0)
        else:
            there = hits(experts, held, rule.eviction, tokens, routing) if held else Hits(0.0, 0.0)
        return (
            _share(experts, distinct, there),
            _share(experts, distinct, Hits(1.0 - there.experts, 1.0 - there.choices)),
        )

    def _distinct(self, layer: int, phase: Phase) -> float:
        """Return how many experts of a layer a pass chooses."""
        key = self._alike(layer), phase
        if key not in self._distinct_of:
            distinct = distinct_experts(self._kind(layer), self._tokens(phase), self._routing(layer))
            self._distinct_of[key] = distinct
        return self._distinct_of[key]

    def _added_up(self, where: Configuration, phase: Phase) -> tuple[float, ...]:
        """Return the seconds of the first 0, 1, ... blocks where all of them are in one configuration."""
        key = where, phase
        if key not in self._sums_of:
            blocks = (self._seconds_on(where, layer, phase) for layer in range(self.frame.model.layers))
            self._sums_of[key] = tuple(accumulate(blocks, initial=0.0))
        return self._sums_of[key]

    def _seconds_on(self, where: Configuration, layer: int, phase: Phase) -> float:
        """Return the seconds of a block in a configuration, with its own routing."""
        experts = experts_of(self.frame.model, layer)
        letter = self.frame.model.pattern[layer]
        if experts is None or where == "streamed" or self._routing(layer) is None:
            return self._block(letter, where, phase)
        key = self._alike(layer), where, phase
        if key not in self._routed:
            routed = self._all(where, layer, phase, self._routing(layer))
            self._routed[key] = self._beside(where, layer, phase) + routed
        return self._routed[key]

    def _beside(self, where: Configuration, layer: int, phase: Phase) -> float:
        """Return the seconds of a block without its experts, and without the messages to and from the host."""
        letter = self.frame.model.pattern[layer]
        key = letter, where, phase
        if key not in self._beside_of:
            alone = self._block(letter, where, phase) - self._all(where, layer, phase, None)
            messages = self._experts(layer, phase).messages if where == "away" else 0.0
            self._beside_of[key] = alone - messages
        return self._beside_of[key]

    def _all(self, where: Configuration, layer: int, phase: Phase, routing: LayerRouting | None) -> float:
        """Return the seconds of all experts that a pass chooses, on one device."""
        experts, own = self._kind(layer), self._experts(layer, phase)
        distinct = distinct_experts(experts, self._tokens(phase), routing)
        share = _share(experts, distinct, Hits(1.0, 1.0))
        return own.here(share) if where == "accelerator" else own.there(share)

    def _block(self, letter: str, where: Configuration, phase: Phase) -> float:
        """Return the seconds of a block under uniform routing."""
        key = letter, where, phase
        if key not in self._known:
            few, more = (self._pass(letter * count, where, phase) for count in (_FEW, _MORE))
            self._known[key] = (more - few) / (_MORE - _FEW)
        return self._known[key]

    def _pass(self, pattern: str, where: Configuration, phase: Phase) -> float:
        model, blocks = self.frame.model, len(pattern)
        workload = self.frame.workload.model_copy(update={"routing": None})
        formats = of_pattern(model, self.frame.formats, pattern)
        frame = replace(self.frame, model=model.with_pattern(pattern), workload=workload, formats=formats)
        layout = {
            "host": ExpertLayout(blocks, 0),
            "away": ExpertLayout(0, blocks),
            "streamed": ExpertLayout(0, blocks, streamed=True),
            "accelerator": ExpertLayout(0, 0),
            "entry": ExpertLayout(0, 0, entry=True),
            "attending": ExpertLayout(0, 0, attended=blocks),
        }[where]
        return pass_seconds(pass_of(shaped(place(frame, layout)), self.iteration(phase)), self.costs)

    def _ends(self, phase: Phase, layout: ExpertLayout) -> float:
        """Return what a pass takes beside its blocks, where they are on the accelerator, or where the last ones are."""
        where: Configuration = "host" if layout.host == self.frame.model.layers else "accelerator"
        where = "entry" if layout.entry else where
        letter = self.frame.model.pattern[-1]
        if (where, phase) not in self._ends_of:
            few = self._pass(letter * _FEW, where, phase)
            self._ends_of[where, phase] = few - _FEW * self._block(letter, where, phase)
        return self._ends_of[where, phase]

    def iteration(self, phase: Phase) -> Iteration:
        """Return the pass that stands for a phase."""
        work = self.frame.workload
        return prefill(work) if phase == "prefill" else mean_step(work)

    def _tokens(self, phase: Phase) -> int:
        work = self.frame.workload
        return work.batch * (work.new_tokens if phase == "prefill" else 1)

    def _kind(self, layer: int) -> Experts:
        experts = experts_of(self.frame.model, layer)
        assert experts is not None
        return experts

    def _routing(self, layer: int) -> LayerRouting | None:
        routing = self.frame.workload.routing
        return None if routing is None else routing.of_layer.get(layer)

    def _alike(self, layer: int) -> Hashable:
        """Return what layers of equal seconds have in common."""
        routing = self.frame.workload.routing
        return self.frame.model.pattern[layer], None if routing is None else routing.groups.get(layer)

    def _experts(self, layer: int, phase: Phase) -> ExpertSeconds:
        """Return the closed form of a layer's experts, the same for layers of one letter."""
        key = self.frame.model.pattern[layer], phase
        if key not in self._forms:
            self._forms[key] = ExpertSeconds(self.frame, self.costs, self.iteration(phase), layer)
        return self._forms[key]

    @cached_property
    def _layers(self) -> tuple[int, ...]:
        return expert_layers(self.frame.model)

    @cached_property
    def _experts_before(self) -> tuple[int, ...]:
        """Return by layer how many layers before it have experts."""
        experts = set(self._layers)
        return tuple(accumulate((layer in experts for layer in range(self.frame.model.layers)), initial=0))

    @cached_property
    def _forms(self) -> dict[tuple[str, Phase], ExpertSeconds]:
        return {}

    @cached_property
    def _known(self) -> dict[tuple[str, Configuration, Phase], float]:
        return {}

    @cached_property
    def _routed(self) -> dict[tuple[object, ...], float]:
        return {}

    @cached_property
    def _distinct_of(self) -> dict[tuple[object, ...], float]:
        return {}

    @cached_property
    def _beside_of(self) -> dict[tuple[str, Configuration, Phase], float]:
        return {}

    @cached_property
    def _sums_of(self) -> dict[tuple[Configuration, Phase], tuple[float, ...]]:
        return {}

    @cached_property
    def _moved_by(self) -> dict[tuple[object, ...], float]:
        return {}

    @cached_property
    def _moved_of(self) -> dict[tuple[object, ...], tuple[float, ...]]:
        return {}

    @cached_property
    def _ends_of(self) -> dict[tuple[Configuration, Phase], float]:
        return {}


def _share(experts: Experts, distinct: float, part: Hits) -> ExpertShare:
    """Return a part of the `distinct` experts that a pass chooses."""
    count = distinct * part.experts
    return ExpertShare(count / experts.experts, experts.experts, count, part.choices)
