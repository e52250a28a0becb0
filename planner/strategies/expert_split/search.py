"""Searches the layouts of `expert-split`: the closed form ranks all of them, the prediction decides among the best."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from helmsman.lowering.placement import Placement, shaped
from helmsman.planner.strategies.expert_split.candidates import ExpertCandidates
from helmsman.planner.strategies.expert_split.layout import ExpertLayout, expert_layers, label, place
from helmsman.planner.strategies.expert_split.neighbours import neighbours
from helmsman.planner.strategies.streaming.question import Question

MAX_PREDICTED = 2
"""Candidates of a kind that are predicted: the closed form leaves out contention alone, which makes seconds no
fewer."""

MAX_STREAMED = 4
"""The same of kinds that stream to prompts: how streams overlap with the blocks around, the closed form does not
see."""

MAX_ROUNDS = 6
"""Rounds in which neighbours of the fastest split with slots are predicted."""

MAX_AROUND = 3
"""Neighbours that are predicted in a round: those that are fastest by the closed form."""

MOST_GAINED = 1.05
"""The longest a split with slots may take, as a multiple of the fastest split's seconds, for its neighbours to be
predicted: all rounds together saved 3 % at most."""

LEAST_GAIN = 0.001
"""The part of the seconds that a neighbour has to save for a further round."""

SHARE_FACTORS = (1.25, 1.06)
"""The factors by which a neighbour's share of fetched misses, or of misses on the host, differs from the layout's."""

FITS_TRIED = 3
"""Layouts that are placed to know whether any fits: those that leave most of the host's memory."""


@dataclass(frozen=True)
class FoundSplit:
    """A candidate that fits, and its predicted seconds of the objective."""

    layout: ExpertLayout
    placement: Placement
    seconds: float


@dataclass(frozen=True)
class ExpertSearch:
    """The search for a question; `executed`: among placements that Helm's executor runs, on the devices that there
    are."""

    question: Question
    executed: bool = False

    def splits(self) -> list[FoundSplit]:
        """Return the predicted candidates that fit, fastest first; empty where none does."""
        kinds: dict[tuple[object, ...], list[tuple[float, ExpertLayout]]] = {}
        for seconds, layout in sorted(self.candidates.ranked(), key=lambda pair: pair[0]):
            kind = layout.streamed, layout.rule and layout.rule[:2], layout.attended > 0
            kinds.setdefault(kind, []).append((seconds, layout))
        result = list[FoundSplit]()
        for ranked in sorted(kinds.values(), key=lambda ranked: ranked[0][0]):
            result += self._predicted(ranked, min((split.seconds for split in result), default=float("inf")))
        result += self._improved(result)
        return sorted(result, key=lambda split: split.seconds)

    def _improved(self, predicted: Sequence[FoundSplit]) -> Iterator[FoundSplit]:
        """Yield ever faster neighbours of the fastest split with slots, as long as there are any: near ones where of
        those further away none is."""
        cached = [split for split in predicted if split.layout.rule is not None]
        best = min(cached, key=lambda split: split.seconds, default=None)
        factors, seen = iter(SHARE_FACTORS), {split.layout for split in cached}
        factor = next(factors)
        least = min((split.seconds for split in predicted), default=0.0)
        near = best is not None and best.seconds <= least * MOST_GAINED
        for _ in range(MAX_ROUNDS if near else 0):
            assert best is not None
            around = map(self._with_most, neighbours(best.layout, self.candidates.beyond, factor))
            fitting = [one for one in dict.fromkeys(around) if one not in seen and self.candidates.rooms.fit(one)]
            seen.update(fitting)
            fastest = sorted(fitting, key=self.candidates.priced)[:MAX_AROUND]
            splits = filter(None, map(self._split, fastest))
            nearest = min(splits, key=lambda split: split.seconds, default=best)
            if nearest.seconds < best.seconds * (1.0 - LEAST_GAIN):
                best = nearest
                yield best
            elif (factor := next(factors, 0.0)) == 0.0:
                return

    def _with_most(self, layout: ExpertLayout) -> ExpertLayout:
        """Return a layout with as many slots as fit."""
        return replace(layout, slots=self.candidates.rooms.most_held(replace(layout, rule=None, slots=0)))

    def _split(self, layout: ExpertLayout) -> FoundSplit | None:
        """Return a layout with its prediction; None where it does not fit."""
        placement = place(self.question.frame, layout)
        plan = shaped(placement)
        return FoundSplit(layout, placement, self.question.seconds(plan)) if self.question.fits(plan) else None

    def fits(self) -> bool:
        """Whether any layout fits all memories."""
        model, rooms = self.question.frame.model, self.candidates.rooms
        candidates = [
            (rooms.on_host(layout), layout)
            for layout in self.candidates.roomiest()
            if rooms.on_accelerator(layout) >= 0
        ]
        ranked = sorted(candidates, key=lambda pair: -pair[0])[:FITS_TRIED]
        return bool(model.routed) and any(
            self.question.fits(place(self.question.frame, layout)) for _, layout in ranked
        )

    def label(self, split: FoundSplit) -> str:
        """Return a candidate in a few words."""
        return label(self.question.frame, split.layout)

    def nearest(self) -> Placement:
        """Return the candidate that needs least of the accelerator's memory with experts on the host."""
        return place(self.question.frame, ExpertLayout(0, len(expert_layers(self.question.frame.model))))

    def _predicted(self, ranked: Iterable[tuple[float, ExpertLayout]], best: float) -> Iterator[FoundSplit]:
        """Yield the first candidates of a kind that fit, as far as they may be among the best."""
        many = 0
        for seconds, layout in ranked:
            if (
                many == (MAX_STREAMED if layout.streamed else MAX_PREDICTED)
                or self.candidates.least(seconds, layout) > best
            ):
                return
            split = self._split(self._filled(layout))
            if split is not None:
                many, best = many + 1, min(best, split.seconds)
                yield split

    def _filled(self, layout: ExpertLayout) -> ExpertLayout:
        """Return a layout that holds as many experts on the accelerator as steps allow, with those that fit beyond
        them."""
        bare = replace(layout, kept=0, rule=None, slots=0, by_layer=())
        if layout.by_layer:
            left, experts = (
                self.candidates.rooms.slots_in_all(bare) - sum(layout.by_layer),
                self.candidates.rooms.experts,
            )
            more = min(max(0, left // len(layout.by_layer)), self.candidates.step)
            return replace(layout, by_layer=tuple(min(experts, slots + more) for slots in layout.by_layer))
        most, held = self.candidates.rooms.most_held(bare), layout.kept or layout.slots
        if not held or held != most // self.candidates.step * self.candidates.step:
            return layout
        return replace(layout, kept=most) if layout.kept else replace(layout, slots=most)

    @cached_property
    def candidates(self) -> ExpertCandidates:
        """Return what is searched among."""
        return ExpertCandidates(self.question, self.executed)
