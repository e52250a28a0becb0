"""Why the best plan of one question is as fast as it is, as a document."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from helmsman.planner.strategies.optimal.explain.ablation import Ablation, undone
from helmsman.planner.strategies.optimal.explain.divisible import (
    DivisibleQuestion,
    DivisibleSolution,
    NearbyQuestion,
    OneSide,
    beside,
    divisible_blocks,
)
from helmsman.planner.strategies.optimal.explain.quantities import UNITS, What, quantities
from helmsman.planner.strategies.optimal.explain.shadow_prices import PricedQuantity, Slope, priced
from helmsman.planner.strategies.optimal.pricing.lowered_parts import CHAIN
from helmsman.planner.strategies.optimal.search.finalist import Finalist
from helmsman.planner.strategies.optimal.strategy import Optimal
from helmsman.planner.strategies.streaming.store import WeightStore
from helmsman.schemas.explanation import Explanation, Part, Phase, ShadowPrice, Undone, Unit, Worth
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import digest

_UNIT: Mapping[What, Unit] = {
    "capacity": "GB",
    "memory bandwidth": "GB/s",
    "link bandwidth": "GB/s",
    "cores": "core",
    "arithmetic": "TFLOP/s",
}
_VISIBLE = 1e-3
"""Shares of a phase that are less are left out."""

_SAME = 1e-3
"""A plan that takes so little longer, as a share, is as good."""

_FULL = 1e-4
"""A memory of which that share more changes less than that share of the seconds has room."""


def explanation(optimal: Optimal, plan: Plan, tokens: int) -> Explanation:
    """Return what binds `plan`, the best of `optimal`, what more would be worth, and what its rules are worth.

    `tokens`: made, or read, in the seconds of the objective."""
    best = optimal.finalists[0]
    near, solved = _solved(optimal, best)
    shown = own(near, solved, best)
    lacked = quantities(near.question.frame.roles, _store(best))
    prices = tuple(priced(near, solved, quantity, shown) for quantity in lacked)
    worth = tokens / best.seconds / solved.seconds
    return Explanation(
        model=plan.model.name,
        hardware=plan.hardware.name,
        plan_sha256=digest(plan),
        label=plan.label,
        objective=optimal.aim.name,
        seconds=best.seconds,
        divided=solved.seconds,
        tokens=tokens,
        phases=tuple(_phases(optimal, near, solved, prices)),
        full=tuple(price.quantity.name for price in prices if _full(price, solved)),
        prices=tuple(_price(price, worth) for price in prices),
        undone=tuple(_undone(without, best.seconds) for without in undone(optimal, best)),
    )


def _store(best: Finalist) -> WeightStore | None:
    """Where a plan has weights beside host and accelerator, if it has."""
    return best.question.frame.store if any(way.stored for way in best.chosen.blocks) else None


def near_to(optimal: Optimal, best: Finalist) -> NearbyQuestion:
    """The question near the plan of `best`."""
    if best.question is optimal.with_one.question:
        return near_to(optimal.with_one, best)
    if best.question is not optimal.question:
        return OneSide(best.question, best.chosen, optimal.aim)
    blocks = divisible_blocks(optimal.question, optimal.blocks)
    blocks = blocks.only(beside(blocks, best.chosen.blocks))
    among = np.arange(len(blocks.ways))
    return DivisibleQuestion(blocks, optimal.question, optimal.aim, among)


def _solved(optimal: Optimal, best: Finalist) -> tuple[NearbyQuestion, DivisibleSolution]:
    """The question near a plan and its solution; about the first accelerator where others have no room to work."""
    near = near_to(optimal, best)
    solved = near.solved()
    if solved is None:
        near = near_to(optimal.with_one, replace(best, question=optimal.with_one.question))
        solved = near.solved()
    assert solved is not None, "what the plan needs is there"
    return near, solved


def own(near: NearbyQuestion, solved: DivisibleSolution, best: Finalist) -> DivisibleSolution:
    """Of all solutions with the same prices that with the blocks of the plan, if it is one: among equal accelerators
    others are as good that use one more than the other."""
    if not isinstance(near, DivisibleQuestion):
        return solved
    rows = Counter(near.blocks.ways.index(way) for way in best.chosen.blocks)
    its = replace(solved, counts={row: float(count) for row, count in rows.items()})
    return its if float(near.priced(its).sum()) <= solved.seconds * (1 + _SAME) else solved


def _phases(
    optimal: Optimal, near: NearbyQuestion, solved: DivisibleSolution, priced_quantities: tuple[PricedQuantity, ...]
) -> Iterator[Phase]:
    totals = near.priced(solved)
    for number, phase in enumerate(optimal.aim.phases):
        weight = optimal.aim.weights.get(phase, 0.0)
        rates = ((_words(priced_quantity), priced_quantity.shares[number]) for priced_quantity in priced_quantities)
        yield Phase(
            phase=phase,
            seconds=float(totals[number]) / weight if weight else 0.0,
            counted=weight,
            lanes=_parts(_lanes(near, solved, number)),
            rates=_parts(dict(rates)),
        )


def _lanes(near: NearbyQuestion, solved: DivisibleSolution, number: int) -> Mapping[str, float]:
    """By what is busy throughout a phase, the share of the price that it has; operations one after the other are those
    of a device that does all of them."""
    if not isinstance(near, DivisibleQuestion):
        return {near.question.frame.roles.host.name: 1.0} if isinstance(near, OneSide) else {}
    mine, seconds = near.blocks.phase == number, near.totals(solved)
    total, lanes = solved.lanes[mine].sum(), dict[str, float]()
    devices = [device.name for device in near.question.frame.roles.hardware.devices]
    busy = {seconds[lane]: name for lane, (_, name) in enumerate(near.blocks.lanes) if mine[lane] and name in devices}
    for lane in np.flatnonzero(mine & (solved.lanes > 0)):
        same = (name for took, name in busy.items() if took >= seconds[lane] * (1 - _SAME))
        name = next(same, _in_words(near.blocks.lanes[lane][1], near.question.frame.roles.hardware))
        lanes[name] = lanes.get(name, 0.0) + float(solved.lanes[lane] / total)
    return lanes


def _in_words(lane: str, hardware: Hardware) -> str:
    if lane.startswith(CHAIN):
        return "operations one after the other" + (" beside a busy link" if " beside " in lane else "")
    pool = lane.removeprefix("pool ")
    if pool in (memory.name for memory in hardware.memories):
        return f"{pool} bandwidth"
    return pool.removeprefix("link ").removeprefix("lanes ")


def _words(priced_quantity: PricedQuantity) -> str:
    what = {"memory bandwidth": " bandwidth", "link bandwidth": " bandwidth", "cores": " cores"}
    return priced_quantity.quantity.name + what.get(priced_quantity.quantity.what, f" {priced_quantity.quantity.what}")


def _parts(shares: Mapping[str, float]) -> tuple[Part, ...]:
    """The largest first."""
    order = sorted(shares.items(), key=lambda item: -item[1])
    return tuple(Part(name=name, share=share) for name, share in order if abs(share) >= _VISIBLE)


def _full(priced_quantity: PricedQuantity, solved: DivisibleSolution) -> bool:
    more = priced_quantity.more.price if priced_quantity.more is not None else 0.0
    return priced_quantity.quantity.what == "capacity" and more * priced_quantity.quantity.size > _FULL * solved.seconds


def _price(priced_quantity: PricedQuantity, worth: float) -> ShadowPrice:
    """`worth`: tokens/s of a second."""
    unit = UNITS[priced_quantity.quantity.what] * worth
    return ShadowPrice(
        what=priced_quantity.quantity.what,
        name=priced_quantity.quantity.name,
        unit=_UNIT[priced_quantity.quantity.what],
        size=priced_quantity.quantity.units,
        more=_worth(priced_quantity.more, unit),
        less=_worth(priced_quantity.less, unit),
        kinked=priced_quantity.kinked,
    )


def _worth(slope: Slope | None, unit: float) -> Worth | None:
    if slope is None:
        return None
    return Worth(price=slope.price * unit, again=slope.again * unit, step=slope.step)


def _undone(without: Ablation, seconds: float) -> Undone:
    more = without.seconds
    return Undone(
        rule=without.rule,
        label=without.label,
        seconds_more=more,
        slower=None if more is None else more / seconds,
    )
