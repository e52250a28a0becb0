"""The candidates of `expert-split`, ranked by the closed form: layouts without slots first, then those with slots where
the first ones are fastest."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial

from helmsman.planner.prediction.objective import weighted_seconds
from helmsman.planner.strategies.expert_split.layout import (
    ExpertLayout,
    SlotRule,
    cached_layers,
    expert_count,
    expert_layers,
    place,
)
from helmsman.planner.strategies.expert_split.prices import BlockPrices
from helmsman.planner.strategies.expert_split.rooms import Rooms
from helmsman.planner.strategies.expert_split.slot_allocation import allocate
from helmsman.planner.strategies.streaming.question import Question
from helmsman.scheduler.iteration import Phase
from helmsman.schemas.routing import LayerRouting, Routing

MAX_HOSTS = 6
"""Numbers of whole layers on the host for which slots, and half as many experts as fit, are looked at: those that are
fastest without."""

MAX_ATTENDING = 3
"""Numbers of whole layers on the host that are tried for layouts with caches on the host; 0 is always among them."""

QUARTERS = 4
"""Steps in which caches are on the host."""

SHARES = 16
"""Steps in which experts of a layer are kept on the accelerator, of all that a layer has."""

MAX_ALLOCATED = 2
"""Layouts of a kind whose slots are divided unevenly: the best ones with as many slots in every layer."""

FETCHED = SlotRule("least-recent", "fetched")
"""How experts are cached under uniform routing, beside with divided misses: those that stay are as good as any kept by
number, which need no rule, and copying in those that missed gains nothing."""

FAVOURING = (SlotRule("popularity", "host"), SlotRule("least-recent", "host"))
"""How experts are cached as well under a routing that favours some."""

CACHING = ("loopback",)
"""Kinds of accelerators on which Helm's executor caches experts in slots."""

MAX_ROUTINGS = 8
"""Kinds of layers by their routing that are told apart where candidates are ranked; predictions tell all apart."""

DIVISIONS = (1 / 32, 1 / 16, 1 / 8, 3 / 16, 1 / 4, 3 / 8, 1 / 2, 3 / 4, 7 / 8)
"""Shares of the experts that are not in slots that may be fetched while the host computes the others: a slow link's
and a fast one's."""

STREAMED_ERROR = 0.15
"""The part of the seconds of streamed prompts that the closed form may be too many: it was up to 14 % above the
prediction."""


def coarse(routing: Routing) -> Routing:
    """Return a routing of few kinds of layers, by which candidates are ranked: neighbours have that of the middle one
    of them. Where there are few kinds, it is the same."""
    if len(set(routing.groups.values())) <= MAX_ROUTINGS:
        return routing
    layers, size = routing.layers, -(-len(routing.layers) // MAX_ROUTINGS)
    merged = list[LayerRouting]()
    for start in range(0, len(layers), size):
        members = layers[start : start + size]
        middle = members[len(members) // 2]
        merged += [middle.model_copy(update={"layer": one.layer}) for one in members]
    return routing.model_copy(update={"layers": tuple(merged)})


@dataclass(frozen=True)
class ExpertCandidates:
    """The candidates for a question; `executed`: those that Helm's executor runs, on the devices that there are."""

    question: Question
    executed: bool = False

    def ranked(self) -> Iterator[tuple[float, ExpertLayout]]:
        """Yield the closed form's seconds of every candidate for which memories have room."""
        expert_count(self.question.frame.model)
        first = list(self._priced(self._layouts()))
        yield from first
        hosts = dict.fromkeys(layout.host for _, layout in sorted(first, key=lambda pair: pair[0]))
        second = list(self._priced(self._holding_on(tuple(hosts)[:MAX_HOSTS])))
        yield from second
        yield from self._priced(self._attending(tuple(dict.fromkeys((0, *hosts)))[:MAX_ATTENDING]))
        if self.question.frame.workload.routing is not None:
            yield from self._priced(self._uneven(second))

    def _priced(self, layouts: Iterable[ExpertLayout]) -> Iterator[tuple[float, ExpertLayout]]:
        """Yield the layouts that fit with the closed form's seconds."""
        for layout in layouts:
            if self.rooms.fit(layout):
                yield self.priced(layout), layout

    def _uneven(self, ranked: Iterable[tuple[float, ExpertLayout]]) -> Iterator[ExpertLayout]:
        """Yield the best layouts of every rule for slots, with these where they save most."""
        cached: dict[tuple[object, ...], int] = {}
        for _, layout in sorted(ranked, key=lambda pair: pair[0]):
            key = layout.rule and layout.rule[:2], layout.streamed
            if layout.rule is not None and cached.get(key, 0) < MAX_ALLOCATED:
                cached[key] = cached.get(key, 0) + 1
                yield self._divided(layout)

    def priced(self, layout: ExpertLayout) -> float:
        """Return the closed form's seconds of the objective; a step takes no less than experts need to enter slots."""
        total = 0.0
        for phase, weight in self.weights.items():
            taken = self._prices.seconds(layout, phase)
            total += weight * (max(taken, self._prices.filling(layout)) if phase == "decode" else taken)
        return total

    def _layouts(self) -> Iterator[ExpertLayout]:
        """Yield layouts without slots: of every number of whole layers on the host and of layers with experts there,
        as many of their experts kept as there is room for; none of them where as few layers as fit, or all, have
        experts there, since of those between each has one that is faster; and those that need least of the host's
        memory."""
        yield ExpertLayout(0, 0, entry=True)
        yield from self.roomiest()
        for host in range(self.question.frame.model.layers + 1):
            yield ExpertLayout(host, 0)
            fitting = set[bool]()
            for layout in self._away(host):
                most = self._most(layout)
                if most:
                    yield replace(layout, kept=most)
                if self.rooms.on_accelerator(layout) >= 0 and layout.streamed not in fitting:
                    fitting.add(layout.streamed)
                    yield layout

    def _holding_on(self, hosts: Iterable[int]) -> Iterator[ExpertLayout]:
        """Yield the layouts with half as many experts kept as fit, and with as many slots as fit, where so many layers
        are on the host."""
        for layout in (layout for host in hosts for layout in self._away(host)):
            most = self._most(layout)
            half = most // 2 // self.step * self.step
            if half:
                yield replace(layout, kept=half)
            if most:
                yield from (replace(layout, rule=rule, slots=most) for rule in self._rules(layout, most))

    def _attending(self, hosts: Iterable[int]) -> Iterator[ExpertLayout]:
        """Yield the layouts with a quarter, a half, ... of the caches on the host and as many experts on the
        accelerator as fit, kept or in slots: where they leave room for a layer's experts, or for the other weights."""
        cached = cached_layers(self.question.frame.model)
        if "decode" not in self.weights:
            return
        for host in hosts:
            many, bare = sum(layer >= host for layer in cached), ExpertLayout(host, self.beyond(host))
            if self.rooms.cached() < self.rooms.most_bytes and self.rooms.on_accelerator(bare) >= 0:
                continue
            for attended in dict.fromkeys(-(-many * part // QUARTERS) for part in range(1, QUARTERS + 1)):
                yield from self._attending_on(host, attended) if attended else ()

    def _attending_on(self, host: int, attended: int) -> Iterator[ExpertLayout]:
        """Yield the layouts with so many caches on the host: as few layers with experts there as fit, or all."""
        yield ExpertLayout(host, 0, attended=attended)
        for streamed in (False, True) if "prefill" in self.weights else (False,):
            counts = range(1, self.beyond(host) + 1)
            layouts = [ExpertLayout(host, away, streamed=streamed, attended=attended) for away in counts]
            fewest = bisect_left(layouts, True, key=lambda layout: self.rooms.on_accelerator(layout) >= 0)
            for layout in dict.fromkeys((*layouts[fewest : fewest + 1], *layouts[-1:])):
                yield layout
                most = self._most(layout)
                if most:
                    yield replace(layout, kept=most)
                    yield from (replace(layout, rule=rule, slots=most) for rule in self._rules(layout, most))

    def _away(self, host: int) -> Iterator[ExpertLayout]:
        """Yield the layouts with the first layers on the host, and the experts of any number of those after them."""
        streams = (False, True) if "prefill" in self.weights else (False,)
        for away in range(1, self.beyond(host) + 1):
            yield from (ExpertLayout(host, away, 0, streamed) for streamed in streams)

    def beyond(self, host: int) -> int:
        """Return how many layers with experts there are after the first `host` layers."""
        return sum(layer >= host for layer in expert_layers(self.question.frame.model))

    def _most(self, layout: ExpertLayout) -> int:
        """Return how many experts of a layer fit the accelerator's memory, in steps."""
        return self.rooms.most_held(layout) // self.step * self.step

    def _divided(self, layout: ExpertLayout) -> ExpertLayout:
        """Return a layout with its slots where they save most."""
        step = self.step
        first = sum(layer < layout.host for layer in expert_layers(self.question.frame.model))
        sizes = range(0, expert_count(self.question.frame.model) + 1, step)
        curves = [
            [self._moved(place, replace(layout, slots=slots)) for slots in sizes]
            for place in range(first, first + layout.away)
        ]
        bare = replace(layout, slots=0, rule=None)
        steps = self.rooms.slots_in_all(bare) // step
        return replace(layout, slots=0, by_layer=tuple(step * given for given in allocate(curves, steps)))

    def roomiest(self) -> Iterator[ExpertLayout]:
        """Yield the layouts that need least of the host's memory by how many layers are there whole."""
        for host in range(self.question.frame.model.layers + 1):
            yield ExpertLayout(host, 0)
            layout = ExpertLayout(host, self._expert_layers)
            yield replace(layout, kept=self.rooms.most_held(layout))

    def _moved(self, place: int, layout: ExpertLayout) -> float:
        """Return by how many seconds of the objective a layer with experts takes longer with these on the host."""
        return weighted_seconds(self.weights, partial(self._prices.moved, place, layout=layout))

    def least(self, seconds: float, layout: ExpertLayout) -> float:
        """Return the fewest seconds that a prediction may find where the closed form finds so many."""
        if not layout.streamed:
            return seconds
        return seconds - STREAMED_ERROR * self.weights.get("prefill", 0.0) * self._prices.seconds(layout, "prefill")

    @cached_property
    def weights(self) -> Mapping[Phase, float]:
        """Return how often the phases count."""
        return self.question.weights(place(self.question.frame, ExpertLayout(0, self._expert_layers)))

    def _rules(self, layout: ExpertLayout, slots: int) -> tuple[SlotRule, ...]:
        """Return how experts may be cached in so many slots of the layers of a layout."""
        favouring = () if self.question.frame.workload.routing is None else FAVOURING
        if self.executed and self.question.frame.accelerator.kind not in CACHING:
            return ()
        return (FETCHED, self._division(layout.streamed, slots), *favouring)

    def _division(self, streamed: bool, slots: int) -> SlotRule:
        """Return divided misses by the share that is fastest with so many slots in the first, the middle and the last
        layer with experts, which stand for all."""
        if (streamed, slots) not in self._divisions:
            layout = ExpertLayout(0, self._expert_layers, streamed=streamed, slots=slots)
            shares = [SlotRule("least-recent", "divided", share) for share in DIVISIONS]
            last = self._expert_layers - 1
            places = {0, last} if self.question.frame.workload.routing is None else {0, last // 2, last}
            best = min(shares, key=lambda rule: sum(self._moved(at, replace(layout, rule=rule)) for at in places))
            self._divisions[streamed, slots] = best
        return self._divisions[streamed, slots]

    @cached_property
    def _divisions(self) -> dict[tuple[bool, int], SlotRule]:
        return {}

    @property
    def _expert_layers(self) -> int:
        return len(expert_layers(self.question.frame.model))

    @cached_property
    def step(self) -> int:
        """Return by how many experts layouts differ."""
        return max(1, expert_count(self.question.frame.model) // SHARES)

    @cached_property
    def _prices(self) -> BlockPrices:
        frame = self.question.frame
        costs, routing = self.question.costs(place(frame, ExpertLayout(0, self._expert_layers))), frame.workload.routing
        if routing is not None:
            workload = frame.workload.model_copy(update={"routing": coarse(routing)})
            frame = replace(frame, workload=workload)
        return BlockPrices(frame, costs)

    @cached_property
    def rooms(self) -> Rooms:
        """Return the rooms of memories beside layouts."""
        return Rooms(self.question.frame)
