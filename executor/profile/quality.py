"""The quality of a profile: every point is measured in a quiet spell if there is one, and again while it was disturbed.

A point is the smallest thing that is measured at once: one size of one format, one stage, one link. How much others
took while it was measured is kept with it (`executor.system.interference.disturbance`). Others on the same memory
outside this machine take no processor time that it sees: what they do shows in how far the samples of a point lie
apart, and such a point is measured again as well; whatever stays so has figures as wide as its samples lie apart. Times
of a few microseconds, as of waking a thread, lie apart on the calmest machine: points of these have no such sign.

A machine may also be slow for seconds, steadily, and nobody to be seen: rates that are not measured against one taken
beside them are measured in several visits, apart in time, so that no such spell is most of them. Clock, readings of the
system and sleep are passed in, so that all this is tested on a virtual machine with a virtual load."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, Generic, TypeVar

from helmsman.executor.profile.samples import UnsettledPoints
from helmsman.executor.system.interference import Moment, disturbance, moment
from helmsman.schemas.figures import DISTURBED

BUDGET_S = 90.0
"""Seconds from the start of a profile after which nothing is measured again."""
LOOK_S = 0.25
"""A spell is quiet when others took little during so many seconds: 25 clock ticks a processor."""
SPELL_S = 3.0
"""Longest wait for a quiet spell before one point."""
FIRST_WAITS_S = 15.0
"""Longest wait before all points together while they are measured for the first time: a sixth of the budget."""
ATTEMPTS = 4
"""A point that stays disturbed so often is measured beside a load that does not end."""

VISITS = 3
"""Of points whose measurements are spread over a profile: a spell that meets one of them meets no median."""

UNSTEADY = 0.15
"""Spread of a point's pairs, 10th to 90th percentile over the median, beyond which it is measured again: nine tenths of
those of a calm profile are within 0.13 (2 cores of an AMD EPYC, Zen 5), half of those of one in a bad spell beyond."""

SamplesT = TypeVar("SamplesT")


@dataclass(frozen=True)
class MeasuredPoint(Generic[SamplesT]):
    """`measure` returns samples and stores nothing, so that it may be called again; `keep` stores the samples of the
    least disturbed attempt together with the share of the time that others took from it; `spread`: how far samples lie
    apart, as a share of their median; `more`: samples with those of another visit, of points that are measured in
    several. Points of one `group` that follow each other need the same buffers."""

    group: str
    measure: Callable[[], SamplesT]
    keep: Callable[[SamplesT, float], None]
    spread: Callable[[SamplesT], float] = lambda _: 0.0
    more: Callable[[SamplesT], SamplesT] | None = None


@dataclass(frozen=True)
class Watch:
    """The clock and the monitor of a session: `now` reads the system, `sleep` waits so many seconds."""

    now: Callable[[], Moment] = moment
    sleep: Callable[[float], None] = time.sleep


@dataclass
class _Attempt:
    """A point, the samples of its least disturbed attempt, the share of the time that others took from it, and seconds
    of the latest attempt."""

    point: MeasuredPoint[Any]
    samples: Any
    share: float
    seconds: float

    @property
    def disturbance(self) -> float:
        """Of the worse of both signs, as a multiple of what is accepted."""
        return max(self.share / DISTURBED, self.point.spread(self.samples) / UNSTEADY)

    @property
    def bad(self) -> bool:
        """Whether it is to be measured again."""
        return self.disturbance > 1.0


class Session:
    """Measures points; nothing is kept before `finish`.

    `drop` frees buffers between groups of points that are measured again; `beside` is done after every point, for what
    is to be of the whole profile."""

    def __init__(
        self,
        watch: Watch,
        drop: Callable[[], None],
        budget: float = BUDGET_S,
        beside: Callable[[], None] = lambda: None,
    ) -> None:
        self._watch, self._drop, self._beside = watch, drop, beside
        self._attempted: list[_Attempt] = []
        self._end = watch.now().seconds + budget
        self._first_waits = FIRST_WAITS_S
        self._noisy = True

    def take(self, points: Iterable[MeasuredPoint[Any]]) -> None:
        """Measure every point once; its first visit."""
        for point in points:
            self._first_waits -= self._wait(min(SPELL_S, self._first_waits))
            samples, share, seconds = self._measured(point.measure)
            self._attempted.append(_Attempt(point, samples, share, seconds))
            self._beside()

    def finish(self) -> UnsettledPoints:
        """Visit points again that have more visits, measure disturbed and unsteady ones again while there is time, then
        keep all, those of several visits last, as they may rest on others; how many stayed so."""
        for visit in range(1, VISITS):
            for _, group in groupby(self._visited(), key=lambda one: one.point.group):
                for one in group:
                    self._visit(one, visit)
                    self._beside()
                self._drop()
        for _ in range(1, ATTEMPTS):
            for _, group in groupby(self._bad(), key=lambda one: one.point.group):
                for one in group:
                    self._again(one)
                self._drop()
        for one in sorted(self._attempted, key=lambda one: one.point.more is not None):
            one.point.keep(one.samples, one.share)
        disturbed = sum(one.share > DISTURBED for one in self._attempted)
        return UnsettledPoints(disturbed, len(self._bad()) - disturbed)

    def _bad(self) -> list[_Attempt]:
        return [one for one in self._attempted if one.bad]

    def _visited(self) -> list[_Attempt]:
        return [one for one in self._attempted if one.point.more is not None]

    def _visit(self, one: _Attempt, before: int) -> None:
        """Another visit after so many `before`, whatever is left of the budget: a point is all of its visits."""
        more = one.point.more
        if more is None:
            return
        one.samples, share, one.seconds = self._measured(partial(more, one.samples))
        one.share = (before * one.share + share) / (before + 1)

    def _again(self, one: _Attempt) -> None:
        """Another attempt, if it can end in time; the less disturbed one counts."""
        self._wait(min(SPELL_S, self.left - one.seconds))
        if self.left < one.seconds:
            return
        again = _Attempt(one.point, *self._measured(partial(_whole, one.point)))
        one.seconds = again.seconds
        if again.disturbance < one.disturbance:
            one.samples, one.share = again.samples, again.share

    @property
    def left(self) -> float:
        """Seconds of the budget."""
        return self._end - self._watch.now().seconds

    def _measured(self, measure: Callable[[], SamplesT]) -> tuple[SamplesT, float, float]:
        """Samples, disturbance and seconds of an attempt, or of a visit."""
        before = self._watch.now()
        samples = measure()
        after = self._watch.now()
        share = disturbance(before, after)
        self._noisy = share > DISTURBED
        return samples, share, after.seconds - before.seconds

    def _wait(self, longest: float) -> float:
        """Wait until others take little, at most `longest` seconds; how long it took.

        After a point that nobody disturbed there is nothing to wait for, and nobody looks."""
        start = before = self._watch.now()
        while self._noisy and before.seconds - start.seconds + LOOK_S <= longest:
            self._watch.sleep(LOOK_S)
            after = self._watch.now()
            self._noisy = disturbance(before, after) > DISTURBED
            before = after
        return before.seconds - start.seconds


def _whole(point: MeasuredPoint[SamplesT]) -> SamplesT:
    """The samples of all visits to a point, one after the other."""
    samples = point.measure()
    if point.more is not None:
        for _ in range(1, VISITS):
            samples = point.more(samples)
    return samples
