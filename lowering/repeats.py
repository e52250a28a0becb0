"""Turns of a pass that repeat each other are made once.

A turn that does the same work as an earlier one, and before which earlier tasks look the same, makes the same tasks, as
many places later. So do the turns that follow, as long as they do the same work: a model of many equal blocks is
lowered in the time of a few."""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from itertools import chain
from typing import Generic, NamedTuple, Protocol, TypeVar

from helmsman.lowering.bodies.attention import NEW_KV
from helmsman.lowering.graph import Task, TaskRun
from helmsman.lowering.parts import DividedOperation
from helmsman.lowering.turns import TurnPart

Turn = tuple[TurnPart, ...]
OutlookT = TypeVar("OutlookT", bound=Hashable)


class TurnBuilder(Protocol[OutlookT]):
    """Makes the tasks of turns, one after the other."""

    def turn(self, parts: Turn) -> tuple[Task, ...]:
        """Return the tasks of a turn."""

    def outlook(self, turn: Turn, live: frozenset[str]) -> OutlookT:
        """Return all that is remembered before a turn, by how far it lies back; `live`: the outputs that this turn or a
        later one reads."""

    def skip(self, outlook: OutlookT, tasks: int, unit: int) -> None:
        """Go on as if so many more tasks had been made and stage `unit` came next, before which all looks as in
        `outlook`."""


class _Stretch(NamedTuple, Generic[OutlookT]):
    """Turns that were made, by their tasks. `repeated`: the place among them of the one that the next turn repeats, and
    what is remembered before both; None where none is."""

    made: tuple[tuple[Task, ...], ...]
    repeated: tuple[int, OutlookT] | None


def task_runs(builder: TurnBuilder[OutlookT], turns: Sequence[Turn]) -> Iterator[TaskRun]:
    """Yield the tasks of `turns`, those that repeat each other once."""
    order = [_TurnPlace(_likeness(turn), turn[0].unit, _layer(turn)) for turn in turns]
    live = _live_before(turns)
    place = 0
    while place < len(turns):
        stretch = _made_until_repeated(builder, turns[place:], order[place:], live[place:])
        place += len(stretch.made)
        start, outlook = stretch.repeated or (len(stretch.made), None)
        yield from map(TaskRun, stretch.made[:start])
        if outlook is None:
            continue
        first, tasks = place - len(stretch.made) + start, tuple(chain.from_iterable(stretch.made[start:]))
        times = _repetitions(order, first, place)
        units, layers = order[place].distance(order[first])
        yield TaskRun(tasks, 1 + times, layers)
        builder.skip(outlook, times * len(tasks), order[place].unit + times * units)
        place += times * (place - first)


class _TurnPlace(NamedTuple):
    """Where a turn is: its first stage and block; `likeness`: as of turns that do the same work."""

    likeness: Hashable
    unit: int
    layer: int

    def distance(self, before: "_TurnPlace") -> tuple[int, int]:
        """Return by how many stages and blocks it comes later."""
        return self.unit - before.unit, self.layer - before.layer


def _made_until_repeated(
    builder: TurnBuilder[OutlookT],
    turns: Sequence[Turn],
    order: Sequence[_TurnPlace],
    live: Sequence[frozenset[str]],
) -> _Stretch[OutlookT]:
    """Make turns until one repeats another, and so do those after it up to itself; or all."""
    often = Counter(turn.likeness for turn in order)
    made: list[tuple[Task, ...]] = []
    seen: dict[Hashable, int] = {}
    for place, turn in enumerate(turns):
        likeness = order[place].likeness
        if often[likeness] > 1:
            outlook = builder.outlook(turn, live[place])
            start = seen.setdefault((likeness, outlook), place)
            if start < place and _repetitions(order, start, place):
                return _Stretch(tuple(made), (start, outlook))
        made.append(builder.turn(turn))
    return _Stretch(tuple(made), None)


def _repetitions(order: Sequence[_TurnPlace], first: int, place: int) -> int:
    """Return how many times turns `first` to `place` come again from `place` on."""
    period, times = place - first, 0
    units, layers = order[place].distance(order[first])
    while place + period <= len(order):
        further = (times + 1) * units, (times + 1) * layers
        pairs = zip(order[first : first + period], order[place : place + period], strict=True)
        if any(one.likeness != other.likeness or other.distance(one) != further for one, other in pairs):
            break
        times, place = times + 1, place + period
    return times


def _likeness(turn: Turn) -> Hashable:
    """Return what a turn shares with those that do the same work: operations, and how their blocks and stages follow
    each other."""
    unit, layer = turn[0].unit, _layer(turn)
    return tuple([(id(part.works), part.unit - unit, part.layer and part.layer - layer) for part in turn])


def _layer(turn: Turn) -> int:
    """Return the first block of a turn; 0 where it has none."""
    return next((part.layer for part in turn if part.layer is not None), 0)


def _live_before(turns: Sequence[Turn]) -> list[frozenset[str]]:
    """Return by turn the outputs that it or a later one reads before they are made anew."""
    uses: dict[int, tuple[frozenset[str], frozenset[str]]] = {}
    live: frozenset[str] = frozenset(("head",))
    result = []
    for turn in reversed(turns):
        for part in reversed(turn):
            key = id(part.works)
            if key not in uses:
                uses[key] = _read_and_made(part.works)
            read, made = uses[key]
            live = (live - made) | read
        result.append(live)
    return result[::-1]


def _read_and_made(works: tuple[DividedOperation, ...]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the outputs that operations read before they make them, and those that they make."""
    read, made = set[str](), set[str]()
    for work in works:
        read |= set(work.inputs) - made
        made.update(work.names, (NEW_KV,) if work.op.kind == "append" else ())
    return frozenset(read), frozenset(made)
