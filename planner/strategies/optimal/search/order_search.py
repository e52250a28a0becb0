"""Compositions brought into order and predicted: those that take least, in the order that is best for them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

from helmsman.planner.strategies.optimal.configurations.block_ways import on_accelerator
from helmsman.planner.strategies.optimal.configurations.offered_ways import quarters
from helmsman.planner.strategies.optimal.configurations.rules import Assignment, Ends
from helmsman.planner.strategies.optimal.order.pace import Track
from helmsman.planner.strategies.optimal.search.compositions import Aim, Compositions, SearchResult
from helmsman.planner.strategies.optimal.search.estimates import OrderEstimate, OrderEstimator
from helmsman.planner.strategies.optimal.search.finalist import Finalist, predicted
from helmsman.planner.strategies.optimal.search.tracks import Tracks
from helmsman.planner.strategies.streaming.question import Question

_MOST_ORDERED = 4
"""The number of compositions at most that are brought into their best order."""

_MOST_ORDERED_OF_SEVERAL = 8
"""The number of these for several accelerators, whose patterns say less of the best order."""

_MOST_PREDICTED = 2
"""The number of ordered compositions at most that are predicted."""

_MOST_SIMPLE = 3
"""The number of compositions of one way, and of one and blocks that live on the accelerator, that are estimated."""

_MOST_SIMPLE_IN_TURNS = 8
"""The number of these where several batches take turns: what those add up to says less."""

_WORSE_RATIO = 1.01
"""The ratio to the best known seconds from which on an estimate is not predicted."""

_DISTINCT_SHARE = 2e-3
"""The share by which an estimate for several accelerators must exceed another to be slower, where both stream."""


@dataclass(frozen=True, eq=False)
class OrderSearch:
    """Compositions of one question's blocks under `aim`; `tracks`: how blocks follow each other. `seen`: what was
    predicted, which is not done again."""

    question: Question
    aim: Aim
    tracks: Tracks
    seen: set[tuple[object, ...]] = field(default_factory=set, init=False, repr=False)

    def finalists(
        self, space: Compositions, result: SearchResult, beat: float, aim: Aim | None = None
    ) -> Iterator[Finalist]:
        """Yield the compositions that take least in order, as they are predicted; `aim`: as they were composed, if not
        for the own one."""
        estimates = self._estimates(space, result, aim or self.aim, beat)
        if self._in_turns:
            if self._several:
                lined_up = ((estimator.lined_up(estimate), estimator) for estimate, estimator in estimates)
                estimates = sorted(lined_up, key=lambda pair: pair[0].seconds)
            yield from self._of_every_kind(estimates, beat)
            return
        best = sorted(self._lined_up(estimates), key=lambda pair: pair[0].seconds)
        for estimate, ends in best[:_MOST_PREDICTED]:
            worse = estimate.seconds > best[0][0].seconds * (1 + _DISTINCT_SHARE) and self._several
            if worse or estimate.seconds >= beat * self._worse:
                return
            yield from self.once(self.assignment(ends, estimate.arranged.rows))

    def _of_every_kind(
        self, estimates: Sequence[tuple[OrderEstimate, OrderEstimator]], beat: float
    ) -> Iterator[Finalist]:
        """The first of every kind of composition that may beat so many seconds, of batches in turns, as they are
        predicted: what kinds lose to busy links and shared memories is no part of their estimates."""
        kinds: dict[object, int] = {}
        for estimate, estimator in estimates:
            if estimate.seconds >= beat * self._worse:
                return
            kind = self._kind(estimate)
            kinds[kind] = kinds.get(kind, 0) + 1
            if kinds[kind] <= (_MOST_ORDERED_OF_SEVERAL if self._several else _MOST_PREDICTED):
                for finalist in self.once(self.assignment(estimator.ends, estimate.arranged.rows)):
                    beat = min(beat, finalist.seconds)
                    yield finalist

    @property
    def _worse(self) -> float:
        return inf if quarters(self.question.frame) else _WORSE_RATIO

    def _kind(self, estimate: OrderEstimate) -> object:
        """Who does what in most blocks, and about how many others live on the accelerator."""
        rows = Counter(estimate.arranged.rows)
        most = max(rows, key=lambda row: rows[row])
        return self.tracks.blocks.ways[most].parts, (rows[self._resident] if self._resident != most else 0).bit_length()

    def assignment(self, ends: Ends, rows: Sequence[int]) -> Assignment:
        """Blocks in order by row, with the ends of the model where they are."""
        blocks = tuple(self.tracks.blocks.ways[row] for row in rows)
        return Assignment(blocks, *ends, self.tracks.blocks.shares)

    def _estimates(
        self, space: Compositions, result: SearchResult, aim: Aim, beat: float
    ) -> list[tuple[OrderEstimate, OrderEstimator]]:
        """Return about how long compositions take in order, the least first; of batches in turns, of those that add up
        to less than `beat`."""
        estimates: dict[tuple[Ends, object], tuple[OrderEstimate, OrderEstimator]] = {}
        offered, most = self.aim.leading == "prefill", _MOST_SIMPLE_IN_TURNS if self._in_turns else _MOST_SIMPLE
        for ends in dict.fromkeys(
            (*(ends for ends, _ in result.best), *(space.blocks.arrangements if offered else ()))
        ):
            estimator = OrderEstimator(space, aim, ends, self._track(ends))
            pool = [composition for there, composition in result.best if there == ends]
            plain = estimator.simple(self._resident, most, self._in_turns) if offered or self._in_turns else ()
            tried = [composition for composition in (*pool, *plain) if composition.seconds < beat or not self._in_turns]
            for estimate in estimator.of(tried):
                estimates[ends, estimate.composition.counts] = estimate, estimator
        return sorted(estimates.values(), key=lambda pair: pair[0].seconds)

    def _lined_up(self, best: Sequence[tuple[OrderEstimate, OrderEstimator]]) -> Iterator[tuple[OrderEstimate, Ends]]:
        """The best few in their best order, and where their ends are; those of several accelerators that may take less
        than others do."""
        least = inf
        for estimate, estimator in best[: _MOST_ORDERED_OF_SEVERAL if self._several else _MOST_ORDERED]:
            if not self._several or estimate.composition.seconds < least:
                improved = estimator.lined_up(estimate)
                least = min(least, improved.seconds)
                yield improved, estimator.ends

    def once(self, chosen: Assignment) -> Iterator[Finalist]:
        """An assignment as it is predicted, unless it was before."""
        key = chosen.blocks, chosen.embedding, chosen.output
        if key not in self.seen:
            self.seen.add(key)
            finalist = predicted(self.question, chosen, self.aim)
            if finalist is not None:
                yield finalist

    @property
    def _resident(self) -> int:
        """The row of blocks that live on the accelerator."""
        return self.tracks.blocks.ways.index(on_accelerator(self.question.frame.model))

    def _track(self, ends: Ends) -> Track:
        return self.tracks.track(ends, self.aim.weights)

    @property
    def _in_turns(self) -> bool:
        """Whether several batches take turns."""
        return self.question.frame.workload.batches > 1

    @property
    def _several(self) -> bool:
        """Whether there are several accelerators."""
        return bool(self.question.frame.roles.others)
