"""The rules that a plan follows, in words: what it does that another one may not."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from helmsman.planner.strategies.optimal.configurations.block_ways import ATTENTION, BlockWay
from helmsman.planner.strategies.optimal.configurations.label import named
from helmsman.planner.strategies.optimal.configurations.rules import Assignment, Ends, Side, device_of
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.schemas.hardware import Device

_MOST_WAYS = 3
"""The number of ways at most that are rules, each alone, those of most blocks first."""

Uses = Callable[[BlockWay], bool]


@dataclass(frozen=True)
class Rule:
    """A rule that a plan follows, in words; `uses`: which ways do it; `ends`: which arrangements of the ends do."""

    text: str
    uses: Uses
    ends: Callable[[Ends], bool] = lambda ends: False

    def kept_by(self, chosen: Assignment) -> bool:
        """Whether an assignment follows it."""
        return any(map(self.uses, chosen.blocks)) or self.ends((chosen.embedding, chosen.output))


def rules(frame: Frame, chosen: Assignment) -> tuple[Rule, ...]:
    """The rules of an assignment, those of all blocks before those of some."""
    every = (*_of_blocks(frame), *_of_ends(frame, chosen), *_of_ways(frame, chosen))
    return tuple(rule for rule in every if rule.kept_by(chosen))


def _of_blocks(frame: Frame) -> Iterator[Rule]:
    host = frame.roles.host.name
    both = f"{host} and an accelerator" if frame.roles.others else "both"
    yield Rule(f"{host} computes in blocks", lambda way: set(way.parts) != {"accelerator"})
    yield Rule(f"operations of a block are divided between {both}", lambda way: len(set(way.parts) - {"both"}) > 1)
    yield Rule(f"rows of matrices are shared by {both}", lambda way: "both" in way.parts)
    for on, device in enumerate(frame.roles.accelerators):
        for text, does in _of_accelerator(frame, device):
            yield Rule(text, partial(_there, on, does))
    yield Rule("weights live in storage", lambda way: bool(way.stored))
    yield Rule("weights are in 4-bit groups", lambda way: bool({"coming", "resident"} & set(way.q4)))
    yield Rule("keys and values come in 4-bit groups", lambda way: "cache" in way.q4)
    yield Rule(f"attention on {host}", lambda way: way.parts[ATTENTION] == "host")


def _of_accelerator(frame: Frame, device: Device) -> Iterator[tuple[str, Uses]]:
    """Yield what blocks may do with an accelerator."""
    away, home = device.name, frame.roles.host.memory
    yield f"{away} computes in blocks", lambda way: not way.alone
    if device.memory != home:
        yield f"weights stay on {away}", lambda way: any(way.resident)
        yield f"weights come to {away} every pass", lambda way: way.weights_come
        yield f"keys and values live on {away}", lambda way: way.cache == "accelerator"
        come = f"keys and values come from {home}" + (f" to {away}" if frame.roles.others else "")
        yield f"{come} every pass", lambda way: way.cache_comes
        yield (
            f"prompts are divided between {home} and {away} by shares of their own",
            lambda way: way.prompt == "divided",
        )
    yield f"prompts are computed on {away}, decode steps elsewhere too", lambda way: way.prompt == "accelerator"


def _there(on: int, does: Uses, way: BlockWay) -> bool:
    """Whether a way of an accelerator does something there."""
    return way.on == on and does(way)


def _of_ends(frame: Frame, chosen: Assignment) -> Iterator[Rule]:
    for place, (what, end) in enumerate((("embedding", chosen.embedding), ("output", chosen.output))):
        text = f"{what} on {device_of(frame, end).name}"
        yield Rule(text, lambda way: False, partial(_at, place, end))


def _at(place: int, end: Side, ends: Ends) -> bool:
    return ends[place] == end


def _of_ways(frame: Frame, chosen: Assignment) -> Iterator[Rule]:
    for way, count in Counter(chosen.blocks).most_common(_MOST_WAYS):
        yield Rule(f"{count} of {len(chosen.blocks)} blocks {named(frame, way)}", way.__eq__)
