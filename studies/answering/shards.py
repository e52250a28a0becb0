"""Points in shards: what one process answers at a time, and what is kept when it is done."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from helmsman.schemas.study import Study
from helmsman.schemas.study_row import StudyRow
from helmsman.studies.answering.answer import Answerer
from helmsman.studies.questions.points import StudyPoint

QUICK = 16
"""The number of points of a shard, where an answer takes some hundredths of a second."""
SLOW = 4
"""The number where an answer is searched for or simulated, for a second or so."""
_QUICK_STRATEGIES = frozenset(
    {"layer-split", "llama-cpp", "vllm", "accelerate", "zero-inference", "cpu-only", "weights-on-host", "all-cpu"}
)


@dataclass(frozen=True, slots=True)
class StudyShard:
    """Neighbouring points with their keys."""

    points: tuple[tuple[str, StudyPoint], ...]


Rows = tuple[StudyRow, ...]
Engine = Callable[[Study, Sequence[StudyShard]], Iterator[Rows]]
"""Answers shards in whatever order they are done."""


def shards_of(study: Study, points: Sequence[tuple[str, StudyPoint]]) -> list[StudyShard]:
    """Return the points in shards; the same points make the same shards, however many processes there are."""
    size = QUICK if study.serving is None and set(study.strategies) <= _QUICK_STRATEGIES else SLOW
    return [StudyShard(tuple(points[first : first + size])) for first in range(0, len(points), size)]


def answered(study: Study, shard: StudyShard) -> Rows:
    """Return the rows of a shard's points."""
    answerer = Answerer(study)
    return tuple(answerer.row(key, point) for key, point in shard.points)
