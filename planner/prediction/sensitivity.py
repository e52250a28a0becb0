"""How far a plan's seconds move when one figure of the machine is other than its record says.

Two plans for one machine rest on the same figures, so most of what is uncertain about each is not uncertain about
their difference: a slow memory slows both. Each cause of error (a device's bandwidth, its arithmetic, its launches, a
link, what busy links and other devices at work cost) is put to its 5th and 95th percentile alone, both plans are
scheduled again, and the changes of the difference add in quadrature, as independent errors do. What only one plan uses,
its crossings for one, does not cancel."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

from helmsman.hwdb.percentiles import End
from helmsman.lowering.graph import RepeatingGraph
from helmsman.lowering.lower import lower_runs
from helmsman.lowering.paging import passes_of
from helmsman.lowering.placement import Placed, batches_together, known
from helmsman.planner.cost.estimate import Bound
from helmsman.planner.cost.model import CostModel
from helmsman.planner.prediction.pass_figures import works_by_price
from helmsman.planner.prediction.predict import mean_step
from helmsman.planner.prediction.prompt_passes import weighted_passes
from helmsman.scheduler.iteration import Iteration, Phase
from helmsman.schemas.hardware import lane_owner
from helmsman.schemas.predicted import Interval
from helmsman.timing.makespan import works_makespan
from helmsman.timing.works import Works

Cause = tuple[str, str]
"""What errs as one: the device or link, and what bounds its work there."""

OTHERS_AT_WORK: Cause = ("links", "slows")
"""What work loses while links are busy, or other devices compute."""

SHARED_MEMORIES: Cause = ("memories", "joint")
"""What several users of a memory reach together."""

HANDOVERS: Cause = ("tasks", "between")
"""The time between tasks: hand-overs, joins, the beginning of a pass."""

LAUNCH: Bound = "launch"
"""Of a device: the least time of its operations, and of the host's thread for launching them."""

_NEGLIGIBLE = 1e-3
"""A cause that could add at most this share to a pass is left out: far below what any figure is known to."""


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Seconds of a plan's objective, and by cause the seconds that are added to them (negative: saved) when its figures
    are at their 5th and at their 95th percentile of time."""

    seconds: float
    moved: Mapping[Cause, tuple[float, float]]


def sensitivity(placed: Placed, costs: CostModel, weights: Mapping[Phase, float]) -> Sensitivity:
    """The sensitivity of `placed` under `costs`, where each phase counts as often as `weights` say.

    O(causes) schedules of every pass that counts."""
    placed = known(placed)
    seconds, moved = 0.0, dict[Cause, tuple[float, float]]()
    for iteration, weight in _passes(placed, weights):
        one = _of_pass(lower_runs(placed, iteration), costs)
        seconds += weight * one.seconds
        for cause, (low, high) in one.moved.items():
            before = moved.get(cause, (0.0, 0.0))
            moved[cause] = before[0] + weight * low, before[1] + weight * high
    return Sensitivity(seconds, moved)


def gain(slower: Sensitivity, faster: Sensitivity) -> Interval:
    """Seconds that `faster` saves against `slower`: 5th percentile, median and 95th; 0 where that is below it.

    The median is clipped with the ends: a plan that saves nothing gains nothing."""
    mid = slower.seconds - faster.seconds
    fall, rise = 0.0, 0.0
    for cause in {**slower.moved, **faster.moved}:
        mine, other = slower.moved.get(cause, (0.0, 0.0)), faster.moved.get(cause, (0.0, 0.0))
        changes = [0.0, *(a - b for a, b in zip(mine, other, strict=True))]
        fall, rise = fall + min(changes) ** 2, rise + max(changes) ** 2
    ends = (mid - sqrt(fall), mid, mid + sqrt(rise))
    low, mid, high = (max(0.0, end) for end in ends)
    return Interval(low=low, mid=mid, high=high)


def regrets(plans: Sequence[Sensitivity]) -> list[float]:
    """By plan, the most seconds that it loses against the best of `plans` in any one case: every figure at its median,
    or one cause at an end of its interval."""
    causes = sorted({cause for plan in plans for cause in plan.moved})
    ends = [[plan.moved.get(cause, (0.0, 0.0)) for plan in plans] for cause in causes]
    changes = [[0.0] * len(plans), *([interval[end] for interval in moved] for moved in ends for end in (0, 1))]
    cases = [[plan.seconds + added for plan, added in zip(plans, change, strict=True)] for change in changes]
    return [max(case[place] - min(case) for case in cases) for place in range(len(plans))]


def _passes(placed: Placed, weights: Mapping[Phase, float]) -> Iterator[tuple[Iteration, float]]:
    if weights.get("prefill", 0.0) > 0.0:
        for iteration, weight in weighted_passes(placed, passes_of(placed)):
            yield iteration, weight * weights["prefill"]
    if weights.get("decode", 0.0) > 0.0:
        yield mean_step(placed.workload, batches_together(placed)), weights["decode"]


def _of_pass(graph: RepeatingGraph, costs: CostModel) -> Sensitivity:
    works = works_by_price(graph)
    prices = [costs.price(task) for task in works.kinds]
    causes = [(lane_owner(task.resource), price.bound) for task, price in zip(works.kinds, prices, strict=True)]
    launches = [(device.name, LAUNCH) for device in costs.between().hardware.devices if device.launching is not None]

    def seconds(moved: Cause | None = None, end: End = "mid") -> float:
        ends = [end if own == moved else "mid" for own in causes]
        beside = (OTHERS_AT_WORK, SHARED_MEMORIES, HANDOVERS)
        slows, joint, between = (end if moved == cause else "mid" for cause in beside)
        times = [getattr(price, end) for price, end in zip(prices, ends, strict=True)]
        handed = costs.between(between, end if moved in launches else "mid")
        pools = costs.pools_at(joint, alone=True)
        return works_makespan(works, times, pools, costs.slowed(slows), handed) + handed.begins(works)

    usual = seconds()
    most = _most_added(works, causes, [price.high - price.low for price in prices])
    telling = [cause for cause, added in most.items() if added > _NEGLIGIBLE * usual]
    if works.order.overlap:
        telling += [SHARED_MEMORIES] if costs.slowed("high") is None else [OTHERS_AT_WORK, SHARED_MEMORIES]
    telling += [HANDOVERS, *(cause for cause in launches if cause not in telling)]
    moved = {cause: (seconds(cause, "low") - usual, seconds(cause, "high") - usual) for cause in telling}
    return Sensitivity(usual, {cause: ends for cause, ends in moved.items() if any(ends)})


def _most_added(works: Works, causes: Sequence[Cause], spreads: Sequence[float]) -> dict[Cause, float]:
    """By cause, the sum of the spreads of all its tasks: no schedule moves by more."""
    most_added: dict[Cause, float] = {}
    for cause, count, spread in zip(causes, works.counts, spreads, strict=True):
        most_added[cause] = most_added.get(cause, 0.0) + count * spread
    return most_added
