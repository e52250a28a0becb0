"""The plan to recommend among several strategies' answers to one question.

Predictions err. Between plans whose difference is smaller than what is uncertain about that difference, and than a
tenth of the seconds expected, the simplest is given: it has less that can go wrong when it runs, and nothing that is
known speaks against it. What a plan that was passed over would gain, at best, is told beside it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from helmsman.hwdb.percentiles import mean_of
from helmsman.planner.cost.footprint import at_footprint
from helmsman.planner.cost.model import CostModel, CostOptions
from helmsman.planner.cost.table_prices import table_prices
from helmsman.planner.decision import Decision
from helmsman.planner.prediction.complexity import Complexity, complexity
from helmsman.planner.prediction.sensitivity import Sensitivity, gain, regrets, sensitivity
from helmsman.scheduler.iteration import Phase
from helmsman.schemas.predicted import Interval

Risk = Literal["median", "pessimistic", "regret"]
"""By what plans are ranked: the median of their seconds, the 95th percentile, or the most that is lost against the
best of them when one figure is at an end of its interval."""

MOST_ABOVE_SIMPLE = 1.03
"""A simpler plan is recommended instead of a faster simple one (one device, whole layers, an engine's) only within
this factor, however uncertain their difference is: a user could have had the other without Helm."""

MOST_PASSED_OVER = 1.1
"""A simpler plan is recommended instead of the fastest only while its expected seconds are within this factor of the
fastest one's, however uncertain their difference is. Of margins of at least a tenth that were predicted and run, most
were realised by 70 per cent or more: 15 of 16 and 21 of 22 as measured in the last sittings on two kinds of processors,
14 of the 22 at the speeds of the profile (docs/measurements.md). Expected seconds, not medians: what nobody measured is
assumed in upper ends alone (`planner.cost.assumed_figures`), and a plan that crosses a hundred times is to answer for
it."""

NEVER_TOLD_APART = 1.03
"""Within this factor the simpler plan is recommended, however sure the figures are: runs of one plan on one machine
differ by 1.4 to 3.3 per cent from each other (docs/measurements.md)."""

_ROUNDING = 1e-9
"""A relative difference of seconds that is none."""


@dataclass(frozen=True)
class Contender:
    """A strategy's answer; `seconds`: its objective with its spread; `simple`: whether people have such plans
    without Helm."""

    decision: Decision
    seconds: Interval
    simple: bool
    weights: Mapping[Phase, float]
    cost_options: CostOptions

    @cached_property
    def complexity(self) -> Complexity:
        """The kind of its plan."""
        return complexity(self.decision.plan)

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """How its seconds move with the machine's figures."""
        plan = self.decision.plan
        costs = CostModel(at_footprint(plan), self.cost_options, table_prices(plan))
        return sensitivity(plan, costs, self.weights)


@dataclass(frozen=True)
class Choice:
    """The contender to recommend, and those with fewer seconds at their medians that were passed over, each with the
    seconds that it would save; fewest first."""

    chosen: Contender
    passed_over: tuple[tuple[Contender, Interval], ...]


def choose(contenders: Sequence[Contender], risk: Risk = "median") -> Choice:
    """The contender to recommend under `risk`; needs at least one."""
    if risk == "median":
        chosen = _simplest(contenders)
    elif risk == "pessimistic":
        chosen = min(contenders, key=lambda contender: (contender.seconds.high, contender.complexity))
    else:
        lost = regrets([contender.sensitivity for contender in contenders])
        chosen = min(zip(lost, contenders, strict=True), key=lambda pair: (pair[0], pair[1].complexity))[1]
    faster = sorted(
        (contender for contender in contenders if _faster(contender, chosen)),
        key=lambda contender: contender.seconds.mid,
    )
    return Choice(chosen, tuple((contender, gain(chosen.sensitivity, contender.sensitivity)) for contender in faster))


def _simplest(contenders: Sequence[Contender]) -> Contender:
    """The simplest of those that the fastest is neither surely nor by far faster than; never one beside which another
    that is no more intricate is faster."""
    best = min(contenders, key=lambda contender: contender.seconds.mid)
    limit = (
        min((contender.seconds.mid for contender in contenders if contender.simple), default=float("inf"))
        * MOST_ABOVE_SIMPLE
    )
    most = mean_of(best.seconds) * MOST_PASSED_OVER
    left = [contender for contender in contenders if not any(_rules_out(other, contender) for other in contenders)]
    for result in sorted(left, key=lambda contender: (contender.complexity, contender.seconds.mid)):
        if not _faster(best, result):
            return result
        if result.seconds.mid > limit or mean_of(result.seconds) > most:
            continue
        if result.seconds.mid <= best.seconds.mid * NEVER_TOLD_APART:
            return result
        if gain(result.sensitivity, best.sensitivity).low == 0.0:
            return result
    return best


def _rules_out(one: Contender, other: Contender) -> bool:
    return one.complexity <= other.complexity and _faster(one, other)


def _faster(one: Contender, other: Contender) -> bool:
    return one.seconds.mid < other.seconds.mid * (1 - _ROUNDING)
