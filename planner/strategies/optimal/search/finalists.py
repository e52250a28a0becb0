"""The compositions that are predicted block by block in order, and the bound on all of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from math import inf

import numpy as np

from helmsman.planner.strategies.optimal.configurations.offered_ways import quarters
from helmsman.planner.strategies.optimal.configurations.one_side import sides
from helmsman.planner.strategies.optimal.configurations.rules import Assignment, Ends, place
from helmsman.planner.strategies.optimal.configurations.stored_blocks import fullest, needs_store
from helmsman.planner.strategies.optimal.configurations.too_large import too_large
from helmsman.planner.strategies.optimal.pricing.all_blocks import AllBlocks
from helmsman.planner.strategies.optimal.search.compositions import Aim, Compositions, SearchResult
from helmsman.planner.strategies.optimal.search.finalist import Finalist, least, predicted
from helmsman.planner.strategies.optimal.search.minimum_memory import MinimumMemory, saving
from helmsman.planner.strategies.optimal.search.mixed_bound import MixedBound
from helmsman.planner.strategies.optimal.search.order_search import OrderSearch
from helmsman.planner.strategies.optimal.search.search_portfolio import ALL, SMOOTH, Try, tried
from helmsman.planner.strategies.optimal.search.symmetry import SymmetricWays
from helmsman.planner.strategies.optimal.search.tracks import Tracks
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.planner.strategies.streaming.question import Question

_GOOD_GAP = 0.005
"""The gap to its bound, as a share, up to which a plan is good: nothing more is tried."""

_FAR_GAP = 0.03
"""The gap to the bound, as a share, above which compositions must keep `_LIMIT_SHARES` of the limits."""

_LIMIT_SHARES = (0.95, 0.9, 0.82, 0.74)
"""The shares of limits that compositions must keep, one after the other."""

_MOST_TRIES = 3
"""The number of times at most that a search is repeated with less room."""


@dataclass(frozen=True)
class Finalists:
    """The search for one question under `aim`; `fewer`: whether questions of which less may be in 4-bit groups are
    asked as well."""

    question: Question
    aim: Aim
    fewer: bool = True

    @cached_property
    def answer(self) -> tuple[tuple[Finalist, ...], float]:
        """The best that fit, as they are predicted, and seconds that no composition beats, nor a side alone."""
        if too_large(self.question.frame):
            return (), inf
        return self._composed if self.composable else (self.alone, least(self.alone))

    @cached_property
    def bound(self) -> float:
        """Seconds that nothing that is searched beats; at the prices of their own formats where tensors have some."""
        formats = self.question.frame.formats
        if not formats or too_large(self.question.frame):
            return self.answer[1]
        if not self.composable:
            return least(self.alone)
        return MixedBound(self.question, self.blocks, self.aim, formats).seconds

    @cached_property
    def _composed(self) -> tuple[tuple[Finalist, ...], float]:
        """The same, where blocks may be divided."""
        finalists, bound, alone = list(self.alone), self.floor, least(self.alone)
        for attempt in tried(self.blocks.frame, "prefill" in self.aim.phases):
            best = least(finalists)
            if best <= min(alone, bound) * (1 + _GOOD_GAP):
                break
            space = self._space(attempt)
            composed = self._search(space, best)
            finalists += self._order.finalists(space, composed, best)
            if attempt == ALL:
                bound = max(bound, composed.bound)
            if not finalists and not self.aim.limits:
                finalists += self._tight
                if not finalists:
                    return (), self.floor
        bound = min(alone, bound)
        if self.aim.limits and least(finalists) > bound * (1 + _FAR_GAP):
            finalists += self._within_less(least(finalists))
        return (*finalists, *self._of_fewer(least(finalists), bound)), bound

    def _of_fewer(self, beat: float, bound: float) -> Iterator[Finalist]:
        """Yield the finalists of every question of which less may be in 4-bit groups, as this one predicts them, if
        they may take less than `beat`: what compositions add up to says too little of their order to find in all ways
        what was found in some. One side alone is as fast with fewer ways, and left out."""
        offered = quarters(self.question.frame) if self.fewer else ()
        for kept in (groups for count in reversed(range(len(offered))) for groups in combinations(offered, count)):
            if beat <= bound * (1 + _GOOD_GAP):
                return
            question = replace(self.question, frame=replace(self.question.frame, quarters=kept))
            narrower = replace(self, question=question, fewer=False)
            if not replace(narrower)._may_beat(beat):
                continue
            for answer in narrower.answer[0]:
                again = predicted(self.question, answer.chosen, self.aim) if answer.question is question else None
                if again is not None:
                    beat = min(beat, again.seconds)
                    yield again

    def _may_beat(self, beat: float) -> bool:
        """Whether any composition adds up to less than `beat`. A search makes amounts more exact, on which the next one
        rests: it is not to be the first of one whose answer counts."""
        return self.floor < beat and bool(self._space(ALL).search(self.aim, self._floors, beat).best)

    def _within_less(self, beat: float) -> Iterator[Finalist]:
        """Yield what keeps lower limits as it adds up: what comes late adds to that."""
        for share in _LIMIT_SHARES:
            limits = {phase: share * limit for phase, limit in self.aim.limits.items()}
            space, aim = self._space(SMOOTH), replace(self.aim, limits=limits)
            near = list(self._order.finalists(space, space.search(aim, self._floors, beat), beat, aim))
            beat = min(beat, least(near))
            yield from near

    @property
    def any_fits(self) -> bool:
        """Whether anything fits, limits of phases included, of what needs least; asks for less than the answer."""
        return not too_large(self.question.frame) and (bool(self.alone) or next(self._tight, None) is not None)

    @property
    def _tight(self) -> Iterator[Finalist]:
        """Yield what needs least of one memory or another, as it is predicted, where that fits."""
        for memory in self.memories:
            chosen = self.least(memory)
            finalist = None if chosen is None else predicted(self.question, chosen, self.aim)
            if finalist is not None:
                yield finalist

    @property
    def memories(self) -> tuple[str, ...]:
        """The memories of host, accelerators and store, where blocks may be divided."""
        return self._tightest.blocks.memories if self.composable else ()

    def least(self, memory: str) -> Assignment | None:
        """Return what needs least of one of the memories, and lacks nothing of others."""
        return self._tightest.least(memory)

    @cached_property
    def _tightest(self) -> MinimumMemory:
        blocks = saving(self._frame, self.question.costs(place(self._frame, fullest(self._frame))))
        return MinimumMemory(blocks, lambda chosen: self.question.lacks(place(self.question.frame, chosen)))

    @cached_property
    def composable(self) -> bool:
        """Whether blocks may be divided among a host and an accelerator."""
        return self.question.frame.roles.accelerator is not None

    @cached_property
    def alone(self) -> tuple[Finalist, ...]:
        """One side with everything, where it fits: the processor with all of its cores, or the accelerator."""
        whole = (predicted(question, chosen, self.aim) for question, chosen in sides(self.question))
        return tuple(
            sorted((finalist for finalist in whole if finalist is not None), key=lambda finalist: finalist.seconds)
        )

    def _search(self, space: Compositions, beat: float) -> SearchResult:
        """The search, repeated with less room while its best lacks something after all; the bound is that of the
        first."""
        match = first = space.search(self.aim, self._floors, beat)
        for _ in range(_MOST_TRIES):
            lacking = self._lacking(space, match)
            if not lacking:
                break
            space.less = {name: space.less.get(name, 0) + size for name, size in lacking.items()}
            match = space.search(self.aim, self._floors, beat)
        return replace(match, bound=first.bound)

    def _lacking(self, space: Compositions, result: SearchResult) -> dict[str, int]:
        """Return what the best composition lacks; nothing if there is none."""
        if not result.best:
            return {}
        ends, composition = result.best[0]
        counts = space.counted(composition)
        best = self._order.assignment(ends, [row for row, count in counts.items() for _ in range(count)])
        return self.question.lacks(place(self.question.frame, best))

    def _space(self, attempt: Try) -> Compositions:
        """Return the search over the ways that a try allows."""
        among = self._tracks.smooth(attempt.most, self.aim.leading)
        if attempt.undivided:
            among &= [way.prompt != "divided" for way in self.blocks.ways]
        if attempt.near:
            among &= [not way.stored for way in self.blocks.ways]
        waiting = attempt.lost * self._tracks.waiting if attempt.lost else None
        return Compositions(self.blocks, among=np.flatnonzero(among), lost=waiting)

    @property
    def floor(self) -> float:
        """Seconds that no composition beats."""
        return min(self._floors.values()) if self.composable else inf

    @cached_property
    def _floors(self) -> Mapping[Ends, float]:
        """The same, by where the ends are."""
        return Compositions(SymmetricWays(self.blocks, "together") if self.blocks.alike else self.blocks).floors(
            self.aim
        )

    @cached_property
    def blocks(self) -> AllBlocks:
        """The ways to run a block, priced as if the accelerator kept all that it can."""
        return AllBlocks(self._frame, self.question.costs(place(self._frame, fullest(self._frame))), self.aim.phases)

    @cached_property
    def _order(self) -> OrderSearch:
        """How compositions become finalists."""
        return OrderSearch(self.question, self.aim, self._tracks)

    @cached_property
    def _tracks(self) -> Tracks:
        return Tracks(self.blocks)

    @cached_property
    def _frame(self) -> Frame:
        """The frame with a store where that can matter; ways are searched with all weights in one format."""
        frame = replace(self.question.frame, formats={})
        return frame if needs_store(frame) else replace(frame, store=None)
