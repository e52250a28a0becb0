"""What the rules of a plan are worth: the best plan without each of them."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from helmsman.planner.strategies.optimal.block_ways import ATTENTION, BlockWay
from helmsman.planner.strategies.optimal.compositions import Compositions
from helmsman.planner.strategies.optimal.divisible import EVERYWHERE
from helmsman.planner.strategies.optimal.label import label, named
from helmsman.planner.strategies.optimal.rules import Assignment
from helmsman.planner.strategies.optimal.several import Ends
from helmsman.planner.strategies.optimal.strategy import Finalist, Optimal
from helmsman.planner.strategies.streaming.place import Frame

_WAYS = 3
"""So many ways are left out, each alone, those of most blocks first."""

Uses = Callable[[BlockWay], bool]


@dataclass(frozen=True)
class Rule:
    """What a plan does, in words; `uses`: which ways do it; `ends`: which arrangements of the ends do not."""

    text: str
    uses: Uses
    ends: tuple[Ends, ...] = EVERYWHERE

    def kept_by(self, chosen: Assignment) -> bool:
        """Whether an assignment follows it."""
        return any(map(self.uses, chosen.blocks)) or (chosen.embedding, chosen.output) not in self.ends


@dataclass(frozen=True, slots=True)
class Without:
    """The best plan without a rule: its label, and how many seconds of the objective it takes more. None: nothing
    fits."""

    rule: str
    label: str | None
    seconds: float | None


def undone(optimal: Optimal, best: Finalist) -> tuple[Without, ...]:
    """What every rule of the best plan is worth, most first."""
    if best.question is not optimal.question:
        return _other_side(optimal, best)
    found = [_without(optimal, best, rule) for rule in rules(optimal.question.frame, best.chosen)]
    return tuple(sorted(found, key=lambda each: -float("inf") if each.seconds is None else -each.seconds))


def rules(frame: Frame, chosen: Assignment) -> tuple[Rule, ...]:
    """The rules of an assignment, those of all blocks before those of some."""
    found = (*_of_blocks(frame), *_of_ends(frame, chosen), *_of_ways(frame, chosen))
    return tuple(rule for rule in found if rule.kept_by(chosen))


def _of_blocks(frame: Frame) -> Iterator[Rule]:
    host, away = frame.roles.host.name, frame.accelerator.name
    yield Rule(f"{host} computes in blocks", lambda way: set(way.parts) != {"accelerator"})
    yield Rule(f"{away} computes in blocks", lambda way: set(way.parts) != {"host"} or way.prompt != "alike")
    yield Rule("operations of a block are divided between both", lambda way: len(set(way.parts) - {"both"}) > 1)
    yield Rule("rows of matrices are shared by both", lambda way: "both" in way.parts)
    if frame.roles.separate:
        home = frame.roles.host.memory
        yield Rule(f"weights stay on {away}", lambda way: any(way.resident))
        yield Rule(f"weights come to {away} every pass", lambda way: way.weights_come)
        yield Rule(f"keys and values live on {away}", lambda way: way.cache == "accelerator")
        yield Rule(f"keys and values come from {home} every pass", lambda way: way.cache_comes)
        yield Rule(
            f"prompts are computed on {away}, decode steps elsewhere too", lambda way: way.prompt == "accelerator"
        )
    yield Rule(f"attention on {host}", lambda way: way.parts[ATTENTION] == "host")


def _of_ends(frame: Frame, chosen: Assignment) -> Iterator[Rule]:
    for place, (what, end) in enumerate((("embedding", chosen.embedding), ("output", chosen.output))):
        side = frame.roles.host if end == "host" else frame.accelerator
        others = tuple(ends for ends in EVERYWHERE if ends[place] != end)
        yield Rule(f"{what} on {side.name}", lambda way: False, others)


def _of_ways(frame: Frame, chosen: Assignment) -> Iterator[Rule]:
    for way, count in Counter(chosen.blocks).most_common(_WAYS):
        yield Rule(f"{count} of {len(chosen.blocks)} blocks {named(frame, way)}", way.__eq__)


def _without(optimal: Optimal, best: Finalist, rule: Rule) -> Without:
    """The best composition, or a side alone, that does not follow a rule."""
    found = [*_composed(optimal, best.chosen.prefetch, rule), *_alone(optimal, rule)]
    if not found:
        return Without(rule.text, None, None)
    seconds, text = min(found)
    return Without(rule.text, text, max(0.0, seconds - _seconds(optimal, best.chosen)))


def _composed(optimal: Optimal, ahead: int, rule: Rule) -> Iterator[tuple[float, str]]:
    """Seconds and label of the best composition without a rule."""
    blocks = optimal.blocks
    among = np.flatnonzero([not rule.uses(way) for way in blocks.ways])
    if not len(among) or not rule.ends:
        return
    compositions = Compositions(blocks, ahead, among=among, arrangements=rule.ends)
    for ends, composition in compositions.search(optimal.aim).best[:1]:
        counts = ((blocks.ways[compositions.name(way)], count) for way, count in composition.counts)
        ways = tuple(way for each, count in counts for way in (each,) * count)
        chosen = Assignment(ways, *ends, blocks.shares, ahead)
        yield composition.seconds, label(optimal.question.frame, chosen)


def _alone(optimal: Optimal, rule: Rule) -> Iterator[tuple[float, str]]:
    """Seconds and label of one side that has everything, and does not follow a rule."""
    for each in optimal.finalists:
        if each.question is not optimal.question and not rule.kept_by(each.chosen):
            yield each.seconds, label(each.question.frame, each.chosen)


def _seconds(optimal: Optimal, chosen: Assignment) -> float:
    """What an assignment takes as a composition."""
    blocks, ends = optimal.blocks, (chosen.embedding, chosen.output)
    room = Compositions(blocks, chosen.prefetch).room(ends, optimal.aim).room
    rows = Counter(blocks.ways.index(way) for way in chosen.blocks)
    return float(room.seconds(room.ends + sum(count * blocks.exact(row) for row, count in rows.items())))


def _other_side(optimal: Optimal, best: Finalist) -> tuple[Without, ...]:
    """Where one side has everything, what dividing it costs."""
    side = f"{best.question.frame.roles.host.name} computes everything"
    others = [each for each in optimal.finalists if each.question is optimal.question]
    if not others:
        return (Without(side, None, None),)
    other = min(others, key=lambda each: each.seconds)
    return (Without(side, label(other.question.frame, other.chosen), other.seconds - best.seconds),)
