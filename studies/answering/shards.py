"""Points in shards: what one process answers at a time, and what is kept when it is done."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from helmsman.planner.registry import method
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.model import Model
from helmsman.schemas.study import Study
from helmsman.schemas.study_row import StudyRow
from helmsman.studies.answering.answer import Answerer
from helmsman.studies.questions.named_parts import Machines
from helmsman.studies.questions.points import Machine, ServedPoint, StudyPoint

SIZE = 64
"""The number of points of a shard whose answers take some milliseconds each: writing it costs as much as an answer."""

SLOW_SIZE = 8
"""That of a shard whose answers take tenths of a second, or seconds: whoever is killed loses little."""


@dataclass(frozen=True, slots=True)
class StudyShard:
    """Neighbouring points with their keys, and the models and machines that they are about, so that whoever answers
    need not have their files. `enough`: tokens a second at which the points after one that makes them are not asked."""

    points: tuple[tuple[str, StudyPoint], ...]
    models: tuple[tuple[str, Model], ...]
    machines: tuple[tuple[Machine, Hardware], ...]
    enough: float | None = None


Rows = tuple[StudyRow, ...]
Engine = Callable[[Study, Sequence[StudyShard]], Iterator[Rows]]
"""Answers shards in whatever order they are done."""


def shards_of(points: Sequence[tuple[str, StudyPoint]], machines: Machines) -> list[StudyShard]:
    """Return the points in shards; the same points make the same shards, however many processes there are."""
    strategies = {point.method.strategy for _, point in points}
    served = any(point.served != ServedPoint() for _, point in points)
    size = SIZE if not served and all(method(strategy).quick for strategy in strategies) else SLOW_SIZE
    return [shard_of(points[first : first + size], machines) for first in range(0, len(points), size)]


def shard_of(points: Sequence[tuple[str, StudyPoint]], machines: Machines, enough: float | None = None) -> StudyShard:
    """Return the shard of some points; `enough`: as there."""
    named, models = (dict.fromkeys(getattr(point, name) for _, point in points) for name in ("machine", "model"))
    known = tuple((name, machines.model(name)) for name in models)
    return StudyShard(tuple(points), known, tuple((name, machines.plain(name)) for name in named), enough)


def answered(study: Study, shard: StudyShard) -> Rows:
    """Return the rows of a shard's points, as far as they are asked."""
    answerer, rows = Answerer(study, Machines.of(shard.machines, shard.models)), list[StudyRow]()
    for key, point in shard.points:
        rows.append(answerer.row(key, point))
        rate = rows[-1].decode_rate
        if shard.enough is not None and rate is not None and rate >= shard.enough:
            break
    return tuple(rows)
