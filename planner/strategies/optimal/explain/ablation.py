"""The worth of the rules of a plan: the best plan without each of them."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

import numpy as np

from helmsman.planner.strategies.optimal.configurations.label import label
from helmsman.planner.strategies.optimal.configurations.rules import Assignment, Ends
from helmsman.planner.strategies.optimal.explain.active_rules import Rule, rules
from helmsman.planner.strategies.optimal.pricing.all_blocks import AllBlocks
from helmsman.planner.strategies.optimal.program.ways import Chosen
from helmsman.planner.strategies.optimal.search.compositions import SLACK, Compositions
from helmsman.planner.strategies.optimal.search.finalist import Finalist
from helmsman.planner.strategies.optimal.search.symmetry import SymmetricWays
from helmsman.planner.strategies.optimal.strategy import Optimal


@dataclass(frozen=True)
class _Plan:
    """A plan that is known, and its seconds: those of a side alone as predicted, others as they are composed."""

    seconds: float
    finalist: Finalist


@dataclass(frozen=True, slots=True)
class Ablation:
    """The best plan without a rule: its label, and how many seconds of the objective it takes more. None: nothing
    fits."""

    rule: str
    label: str | None
    seconds: float | None


def undone(optimal: Optimal, best: Finalist) -> tuple[Ablation, ...]:
    """Return what every rule of the best plan is worth, most first.

    Less than the search looks for, as a share of its seconds, may be nothing."""
    if best.question is optimal.with_one.question:
        return (*_others(optimal, best), *undone(optimal.with_one, best))
    if best.question is not optimal.question:
        return _other_side(optimal, best)
    took, known = (
        _seconds(optimal, best),
        [_Plan(_seconds(optimal, finalist), finalist) for finalist in optimal.finalists],
    )
    ablations = []
    for rule in rules(optimal.question.frame, best.chosen):
        known += _better(optimal, rule, took, known)
        ablations.append(_without(rule, took, known))
    return tuple(sorted(ablations, key=lambda without: -inf if without.seconds is None else -without.seconds))


def _without(rule: Rule, took: float, known: list[_Plan]) -> Ablation:
    """The best of the plans that do not follow a rule, beside one that takes `took`."""
    free = _free(rule, known)
    if not free:
        return Ablation(rule.text, None, None)
    least = min(free, key=lambda plan: plan.seconds)
    text = label(least.finalist.question.frame, least.finalist.chosen)
    return Ablation(rule.text, text, max(0.0, least.seconds - took))


def _free(rule: Rule, known: list[_Plan]) -> list[_Plan]:
    return [plan for plan in known if not rule.kept_by(plan.finalist.chosen)]


def _better(optimal: Optimal, rule: Rule, took: float, known: list[_Plan]) -> Iterator[_Plan]:
    """The best compositions without a rule, where a known plan is not as good as the best one already."""
    blocks, least = optimal.blocks, min((plan.seconds for plan in _free(rule, known)), default=inf)
    for space in _spaces(blocks, rule) if least > took * (1 + SLACK) else ():
        for ends, composition in space.search(optimal.aim, beat=least).best[:1]:
            counts = space.counted(composition)
            rows = space.blocks.spread(counts) if isinstance(space.blocks, SymmetricWays) else counts
            ways = tuple(blocks.ways[row] for row in Counter(rows).elements())
            chosen = Assignment(ways, *ends, blocks.shares)
            least = min(least, composition.seconds)
            yield _Plan(
                composition.seconds, Finalist(optimal.question, chosen, composition.seconds, composition.seconds)
            )


def _spaces(blocks: AllBlocks, rule: Rule) -> Iterator[Compositions]:
    """Yield what is composed without a rule: where accelerators are alike the part of each, and all with one to which
    anything comes, whichever that is."""
    free = np.array([not rule.uses(way) for way in blocks.ways])
    ends = tuple(arrangement for arrangement in blocks.everywhere if not rule.ends(arrangement))
    if not blocks.alike:
        yield from _space(blocks, np.flatnonzero(free), ends)
        return
    separate, several = SymmetricWays(blocks, "each"), range(len(blocks.members))
    places = np.array([[separate.places[int(row), on] for on in several] for row in separate.rows])
    yield from _space(separate, np.flatnonzero(free[places].all(axis=1)), ends)
    for on in several:
        rows = blocks.lopsided(on)
        yield from _space(blocks, rows[free[rows]], ends)


def _space(blocks: AllBlocks | SymmetricWays, among: Chosen, arrangements: tuple[Ends, ...]) -> Iterator[Compositions]:
    if len(among):
        yield Compositions(blocks, among=among, arrangements=arrangements)


def _seconds(optimal: Optimal, finalist: Finalist) -> float:
    """Return what a plan takes as a composition; one side alone, as it is predicted."""
    if finalist.question is not optimal.question:
        return finalist.seconds
    blocks, chosen = optimal.blocks, finalist.chosen
    rows = Counter(blocks.ways.index(way) for way in chosen.blocks)
    own = Compositions(blocks, among=np.array(sorted(rows)))
    room = own.room((chosen.embedding, chosen.output), optimal.aim).room
    return float(room.seconds(room.ends + sum(count * blocks.exact(row) for row, count in rows.items())))


def _others(optimal: Optimal, best: Finalist) -> Iterator[Ablation]:
    """Where one accelerator has everything, what the others cost."""
    finalists = [finalist for finalist in optimal.finalists if finalist.question is optimal.question]
    if finalists:
        other = min(finalists, key=lambda finalist: finalist.seconds)
        text = f"{', '.join(device.name for device in optimal.question.frame.roles.others)} not used"
        yield Ablation(text, label(other.question.frame, other.chosen), other.seconds - best.seconds)


def _other_side(optimal: Optimal, best: Finalist) -> tuple[Ablation, ...]:
    """Where one side has everything, what dividing it costs."""
    side = f"{best.question.frame.roles.host.name} computes everything"
    others = [finalist for finalist in optimal.finalists if finalist.question is optimal.question]
    if not others:
        return (Ablation(side, None, None),)
    other = min(others, key=lambda other: other.seconds)
    return (Ablation(side, label(other.question.frame, other.chosen), other.seconds - best.seconds),)
