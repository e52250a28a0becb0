"""Pairs of placements that one source ran on one machine: which of the two was faster, and which Helm says is."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations, groupby
from statistics import fmean

from benchmarks.strangers.answers import RowAnswer
from benchmarks.strangers.rows import OpenRow

_TIE = 0.02
"""Speeds that differ by less than runs of one thing do say nothing of which is faster."""


@dataclass(frozen=True, slots=True)
class PlacementPair:
    """Two placements, each of one or several runs; `phase`: whose speeds are compared, by their means over runs."""

    one: tuple[RowAnswer, ...]
    other: tuple[RowAnswer, ...]
    phase: str

    @property
    def measured(self) -> float:
        """Return how many times faster the first ran."""
        return _ratio(*(fmean(a.row.speed(f"{self.phase}_tps") or 0.0 for a in runs) for runs in self._runs))

    @property
    def said(self) -> float:
        """Return how many times faster the first is, as Helm says."""
        return _ratio(*(fmean(getattr(a, self.phase) for a in runs) for runs in self._runs))

    @property
    def apart(self) -> bool:
        """Whether every run of one is faster than every run of the other: what runs of one placement differ by says
        nothing of two."""
        one, other = ([a.row.speed(f"{self.phase}_tps") or 0.0 for a in runs] for runs in self._runs)
        return max(one) < min(other) or max(other) < min(one)

    @property
    def right(self) -> bool:
        """Whether Helm names the faster one."""
        return (self.measured > 1.0) == (self.said > 1.0)

    @property
    def _runs(self) -> tuple[tuple[RowAnswer, ...], ...]:
        return self.one, self.other

    def __str__(self) -> str:
        """Return it as one line."""
        names = " against ".join(f"{' '.join(_where(runs[0].row))[-60:]!r}" for runs in self._runs)
        verdict = "right" if self.right else "WRONG"
        verdict = verdict if self.apart else "noise"
        rows = " and ".join("+".join(str(a.row.number) for a in runs) for runs in self._runs)
        return f"{verdict}  {self.phase:7} measured {self.measured:5.2f}, said {self.said:5.2f}  rows {rows}: {names}"


def _ratio(one: float, other: float) -> float:
    return one / other


def pairs_of(answers: Iterable[RowAnswer]) -> Iterator[PlacementPair]:
    """Yield the pairs among answered rows whose placements differ and whose speeds are no tie; runs of one placement
    are one."""
    given = sorted((a for a in answers if not a.reason), key=lambda a: (_alike(a.row), a.row.number))
    for _, members in groupby(given, key=lambda a: _alike(a.row)):
        runs: dict[tuple[str, ...], list[RowAnswer]] = {}
        for member in members:
            runs.setdefault(_where(member.row), []).append(member)
        for one, other in combinations(runs.values(), 2):
            for phase in ("decode", "prefill"):
                compared = [tuple(a for a in of if phase in dict(a.errors())) for of in (one, other)]
                if all(compared):
                    pair = PlacementPair(compared[0], compared[1], phase)
                    if abs(pair.measured - 1.0) > _TIE and pair.said != 1.0:
                        yield pair


def _where(row: OpenRow) -> tuple[str, ...]:
    """Return what says where everything is."""
    settings = re.sub(r"--no-mmap|\(mmap\)|-rtr|-fmoe|-(?:u?b|amb|tb?|mla) \d+", "", row.settings)
    mode = re.search(r"hybrid|offload", row.engine)
    return re.sub(r"\s+", " ", settings).strip(), row.gpu, row.engine.partition(",")[2] or (mode[0] if mode else "")


def _alike(row: OpenRow) -> tuple[str, ...]:
    """Return all that two rows have in common which compare placements on one machine."""
    engine = re.split(r"[,(]", row.engine)[0].strip()
    gpu = row.gpu.split(" + ")[0].removeprefix("2x ")
    return row.source, row.model, row.quant, gpu, row.cpu, engine, row.context, row.prompt_tokens
