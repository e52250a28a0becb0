"""Searches the layouts of `expert-split`: the closed form ranks all of them, the prediction decides among the best."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from helmsman.lowering.placement import Placement
from helmsman.planner.prediction.objective import weighted_seconds
from helmsman.planner.strategies.expert_split.layout import ExpertLayout, expert_count, expert_layers, label, place
from helmsman.planner.strategies.expert_split.prices import BlockPrices
from helmsman.planner.strategies.streaming.question import Question
from helmsman.scheduler.iteration import Phase

MAX_PREDICTED = 10
"""Candidates that are predicted of those that stream to prompts, and of the others: as many as the closed form, which
does not see how streams overlap with the blocks around, puts before all others."""

SHARES = 16
"""Steps in which experts of a layer are kept on the accelerator, of all that a layer has."""


@dataclass(frozen=True)
class FoundSplit:
    """A candidate that fits, and its predicted seconds of the objective."""

    layout: ExpertLayout
    placement: Placement
    seconds: float


@dataclass(frozen=True)
class ExpertSearch:
    """The search for a question."""

    question: Question

    def splits(self) -> list[FoundSplit]:
        """Return the predicted candidates that fit, fastest first; empty where none does."""
        ranked = [layout for _, layout in sorted(self._ranked(), key=lambda pair: pair[0])]
        result = list[FoundSplit]()
        for streamed in (False, True):
            among = (layout for layout in ranked if layout.streamed == streamed)
            result += islice(self._fitting(among), MAX_PREDICTED)
        return sorted(result, key=lambda split: split.seconds)

    def _fitting(self, layouts: Iterable[ExpertLayout]) -> Iterator[FoundSplit]:
        for layout in layouts:
            placement = place(self.question.frame, layout)
            if self.question.fits(placement):
                yield FoundSplit(layout, placement, self.question.seconds(placement))

    def label(self, split: FoundSplit) -> str:
        """Return a candidate in a few words."""
        return label(self.question.frame, split.layout)

    def nearest(self) -> Placement:
        """Return the candidate that needs least of the accelerator's memory with experts on the host."""
        layers = len(expert_layers(self.question.frame.model))
        return place(self.question.frame, ExpertLayout(0, layers))

    def _ranked(self) -> Iterator[tuple[float, ExpertLayout]]:
        """Yield the closed form's seconds of every candidate for which the accelerator's memory has room."""
        frame = self.question.frame
        prices = BlockPrices(frame, self.question.costs(self.nearest()))
        weights: Mapping[Phase, float] = self.question.weights(self.nearest())
        for layout in self._layouts(prices):
            if prices.room(layout) >= 0:
                yield weighted_seconds(weights, partial(prices.seconds, layout)), layout

    def _layouts(self, prices: BlockPrices) -> Iterator[ExpertLayout]:
        """Yield all layouts: of every number of whole layers on the host and of layers with experts there, none of
        their experts kept, or some as far as there is room."""
        model = self.question.frame.model
        experts, step = expert_layers(model), max(1, expert_count(model) // SHARES)
        for host in range(model.layers + 1):
            beyond = sum(layer >= host for layer in experts)
            yield ExpertLayout(host, 0)
            for away in range(1, beyond + 1):
                for streamed in (False, True):
                    layout = ExpertLayout(host, away, 0, streamed)
                    yield layout
                    most = prices.most_kept(layout) // step * step
                    yield from (replace(layout, kept=kept) for kept in sorted({most // 2 // step * step, most} - {0}))
