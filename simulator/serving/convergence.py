"""Answers from runs that are long enough to show an overload, over seeds that are enough for a narrow interval.

An overload by a share e makes requests wait e / rate seconds longer, one after the other: within limits of L seconds a
run of n requests hides one of up to L x rate / n. So what is answered too much halves as runs become twice as long, and
how far the answers of n / 2 and n requests are apart is what that of n still errs by. Where few requests may miss the
limits, one crowd more or less decides, and short runs may agree by chance: so many requests of a run must be allowed to
miss them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Generic, Protocol, TypeVar

from helmsman.schemas.errors import InfeasibleError
from helmsman.simulator.serving.bisection import NothingMissesError
from helmsman.simulator.serving.confidence import half_width

INTERVAL_SHARE = 0.075
"""Of the answer: the largest half width of its 95 % interval."""
LENGTH_SHARE = 0.03
"""Of the answer: what twice as many requests may change, on average over seeds."""
MISSES = 24
"""The least number of requests that may miss the limits in a run that is long enough: their share is then known to a
fifth, since the spread of a count is its root."""
FIRST_SEEDS = 4
MOST_SEEDS = 5
"""Beyond these, runs become longer: a seed's answer varies less in a longer run, and is less too high."""
MOST_WORK = 400_000
"""Requests of all runs, beyond which none becomes longer and no seed is added."""
_RUNS_OF_AN_ANSWER = 5
"""Near a known answer."""


class Bracket(Protocol):
    """A bracket is the answer of one seed: what keeps the SLO, beside what misses it."""

    @property
    def keeps(self) -> float:
        """Return the rate or number that keeps the SLO."""
        ...


B = TypeVar("B", bound=Bracket)
Find = Callable[[int, int, float | None], B]
"""A function that finds the answer of a seed, with as many requests, near another answer if there is one."""


@dataclass(frozen=True, slots=True)
class SeedAnswers(Generic[B]):
    """Seed answers are a bracket of every seed, the `requests` of each run behind them, and whether they `converged`
    (None: seeds and requests were given)."""

    brackets: tuple[B, ...]
    requests: int
    converged: bool | None


@dataclass(frozen=True, slots=True)
class Effort:
    """An effort says how much may be simulated for an answer.

    `seeds`: all that there are; `requests` of the first runs, of those that are long enough at `least`, and of the
    `longest`; `step`: the least by which answers of seeds can differ, 1 for whole numbers; `work`: returns the requests
    of all runs so far."""

    seeds: range
    requests: int
    least: float
    longest: int
    step: float
    work: Callable[[], int]

    def allows(self, requests: int, answers: int) -> bool:
        """Whether there is room for so many answers of runs of so many requests."""
        return self.work() + _RUNS_OF_AN_ANSWER * requests * answers <= MOST_WORK


def over_seeds(find: Find[B], seeds: Sequence[int], requests: int) -> SeedAnswers[B]:
    """Return the answers of given seeds with as many requests.

    Raises InfeasibleError where nothing keeps the SLO, NothingMissesError where nothing misses it."""
    return SeedAnswers(tuple(find(seed, requests, None) for seed in seeds), requests, None)


def converge(find: Find[B], effort: Effort) -> SeedAnswers[B]:
    """Return the answers of some seeds: runs become twice as long, and seeds more, until neither changes much.

    Raises InfeasibleError where nothing keeps the SLO, NothingMissesError where the longest runs miss nothing."""
    pairs = _first_pairs(find, effort)
    while not (pairs.agree() and pairs.narrow()):
        further = _with_seed(pairs, find, effort) if pairs.agree() else None
        further = further or _with_longer_runs(pairs, find, effort)
        if further is None:
            break
        pairs = further
    answers = pairs.longer or over_seeds(find, effort.seeds[:FIRST_SEEDS], pairs.requests).brackets
    return SeedAnswers(answers, pairs.requests, pairs.agree() and pairs.narrow())


@dataclass(frozen=True, slots=True)
class _Pairs(Generic[B]):
    """Pairs are the answers of seeds with `requests`, and with half as many; none where these are too few to tell.

    Means that differ by less than half a `step` round to the same number, and so does an interval of a step."""

    requests: int
    shorter: tuple[B, ...]
    longer: tuple[B, ...]
    effort: Effort

    def agree(self) -> bool:
        """Whether runs are long enough."""
        if self.requests < self.effort.least or not self.shorter or not self.longer:
            return False
        mean = _mean(self.longer)
        return abs(_mean(self.shorter) - mean) <= max(LENGTH_SHARE * mean, self.effort.step / 2)

    def narrow(self) -> bool:
        """Whether seeds are enough."""
        half = half_width([bracket.keeps for bracket in self.longer])
        return half is None or half <= max(INTERVAL_SHARE * _mean(self.longer), self.effort.step)


def _first_pairs(find: Find[B], effort: Effort) -> _Pairs[B]:
    seeds, requests = effort.seeds[:FIRST_SEEDS], effort.requests
    shorter = _answers(find, seeds, requests // 2, (), InfeasibleError)
    longer = _answers(find, seeds, requests, shorter, NothingMissesError)
    return _Pairs(requests, shorter, longer, effort)


def _with_longer_runs(pairs: _Pairs[B], find: Find[B], effort: Effort) -> _Pairs[B] | None:
    """Return the answers of runs twice as long; none where that is beyond a limit."""
    requests, count = 2 * pairs.requests, max(len(pairs.longer), min(FIRST_SEEDS, len(effort.seeds)))
    if requests > effort.longest or not effort.allows(requests, count):
        return None
    longer = _answers(find, effort.seeds[:count], requests, pairs.longer, NothingMissesError)
    return _Pairs(requests, pairs.longer, longer, effort)


def _with_seed(pairs: _Pairs[B], find: Find[B], effort: Effort) -> _Pairs[B] | None:
    """Return the answers with those of one more seed; none where that is beyond a limit, or its runs are too short."""
    count = len(pairs.longer)
    if count == len(effort.seeds) or not effort.allows(pairs.requests + pairs.requests // 2, 1):
        return None
    seeds = effort.seeds[count : count + 1]
    shorter = _answers(find, seeds, pairs.requests // 2, pairs.longer, InfeasibleError)
    longer = _answers(find, seeds, pairs.requests, shorter, NothingMissesError)
    if not shorter or not longer:
        return None
    return _Pairs(pairs.requests, (*pairs.shorter, *shorter), (*pairs.longer, *longer), effort)


def _answers(
    find: Find[B], seeds: Sequence[int], requests: int, near: tuple[B, ...], too_short: type[InfeasibleError]
) -> tuple[B, ...]:
    """Return the answer of every seed, each near a known one; none where an error says that runs are too short."""
    answers: list[B] = []
    if requests == 0:
        return ()
    try:
        for place, seed in enumerate(seeds):
            known = near[place] if near else answers[-1] if answers else None
            answers.append(find(seed, requests, None if known is None else known.keeps))
    except too_short:
        return ()
    return tuple(answers)


def _mean(brackets: Sequence[Bracket]) -> float:
    return fmean(bracket.keeps for bracket in brackets)
