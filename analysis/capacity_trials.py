"""Simulated runs of a study that say whether its SLO is kept, and what is concluded from those of several seeds."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import TypeVar

from helmsman.analysis.ask_serving import ServingLoad, ServingStudy
from helmsman.schemas.errors import UsageError
from helmsman.schemas.serving import Slo
from helmsman.simulator.serving.convergence import (
    MISSES,
    MOST_SEEDS,
    Bracket,
    Effort,
    Find,
    SeedAnswers,
    converge,
    over_seeds,
)
from helmsman.simulator.serving.requests.request_source import Variation
from helmsman.simulator.serving.run import Setup, keeps_slo

Ran = Callable[[], object]
"""A callback after every simulated run, for progress bars."""
B = TypeVar("B", bound=Bracket)


@dataclass
class Trials:
    """Trials are simulated runs of a study, which are counted: `runs` of them, with `requests` in all."""

    study: ServingStudy
    slo: Slo
    ran: Ran
    runs: int = 0
    requests: int = 0

    def keeps(self, setup: Setup, seed: int, variation: Variation) -> bool:
        """Run the requests once, and return whether they keep the SLO."""
        requests = self.study.source.requests(seed, variation)
        self.runs, self.requests = self.runs + 1, self.requests + len(requests)
        kept = keeps_slo(requests, setup, self.slo)
        self.ran()
        return kept

    def answers(self, find: Find[B], seeds: int | None, step: float = 0.0) -> SeedAnswers[B]:
        """Return the answers of as many seeds, or of as many as it takes; of one where nothing is drawn.

        `step`: the least by which answers can differ."""
        source, first = self.study.source, self.study.question.seed
        draws = range(first, first + ((seeds or MOST_SEEDS) if source.drawn else 1))
        if seeds is not None:
            return over_seeds(find, draws, source.count)
        least = MISSES / (1.0 - self.slo.share) if self.slo.share < 1.0 else inf
        return converge(find, Effort(draws, source.count, least, source.most, step, lambda: self.requests))


def no_trials_yet(study: ServingStudy, ran: Ran) -> Trials:
    """Return the trials of a study before its first run. Raises UsageError for a study without an SLO."""
    return Trials(study, demanded(study), ran)


def demanded(load: ServingLoad) -> Slo:
    """Return the SLO within which is counted what can be served. Raises UsageError where there is none."""
    if load.slo is None:
        remedy = "write ttft=2s,tpot=100ms"
        raise UsageError("what can be served is counted within an SLO", field="slo", remedy=remedy)
    return load.slo
