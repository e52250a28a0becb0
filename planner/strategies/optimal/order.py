"""In which order blocks of several ways follow each other, so that what comes is there when it is needed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from helmsman.planner.strategies.optimal.beginnings import EVENNESS, followed
from helmsman.planner.strategies.optimal.flow import flow_seconds
from helmsman.planner.strategies.optimal.pace import HOST, LEAST, Pace, Track

_OFFSETS = (0.0, 0.25, 0.5, 0.75, 1.0)
_LEADS = (1, 2, 3, 5, 8, 12)
"""So many blocks begin a pass for which least comes: nothing is on its way yet."""
_RUNS = (1, 2, 4, 8)
"""Into so many ranges the blocks of each device are divided."""
_PERMUTED = 4
"""Of so many devices every order is tried; of more, theirs."""
_SWAPS = 40
"""So many exchanges of neighbours are tried."""


Pattern = tuple[int, float]
"""How many blocks begin the pass, and an offset."""


@dataclass(frozen=True, slots=True)
class Arranged:
    """Blocks in order, by way, their `seconds`, and the pattern that they follow."""

    rows: tuple[int, ...]
    seconds: float
    pattern: Pattern


def arranged(counts: Mapping[int, int], track: Track, buffers: int, known: Pattern | None = None) -> Arranged:
    """Blocks in the best order among patterns, or as in one that is `known`.

    Blocks of every way are spread evenly over all blocks, those that need the link most a little later than others,
    after some for which least comes."""
    if known is not None:
        return _patterned(counts, track, buffers, known)
    found = min((_patterned(counts, track, buffers, (0, offset)) for offset in _OFFSETS), key=_seconds)
    leads = (_patterned(counts, track, buffers, (lead, found.pattern[1])) for lead in _LEADS)
    return min((found, *leads), key=_seconds)


def ordered(counts: Mapping[int, int], track: Track, buffers: int) -> tuple[tuple[int, ...], ...]:
    """The ways of all blocks in the best order that was found, and in the best ranges, one for each device, where that
    is another; `buffers`: for how many blocks something may be here.

    Blocks are arranged, or in a few ranges of their device; then neighbours are exchanged while that helps."""
    evenly = arranged(counts, track, buffers).rows
    if len({track.pace[way].on for way in counts} - {HOST}) < 2:
        return (exchanged(evenly, track, buffers),)

    def took(rows: tuple[int, ...]) -> float:
        return seconds(rows, track, buffers)

    ranges = {runs: tuple(_ranges(counts, track.pace, runs)) for runs in _RUNS}
    best = min((evenly, *(rows for found in ranges.values() for rows in found)), key=took)
    whole = min(ranges[1], key=took)
    found = exchanged(best, track, buffers)
    return (found,) if whole == best else (found, whole)


def lined_up(known: Arranged, counts: Mapping[int, int], track: Track, buffers: int) -> Arranged:
    """Blocks arranged as they are `known`, with neighbours exchanged, or in a better order of one batch on one device
    that was found by following its beginnings."""
    best = exchanged(known.rows, track, buffers)
    if track.batches == 1:
        orders = [followed(counts, track.pace, buffers, each) for each in EVENNESS]
        best = min((best, *orders), key=lambda rows: seconds(rows, track, buffers))
    return Arranged(best, seconds(best, track, buffers), known.pattern)


def roughly(counts: Mapping[int, int], track: Track, buffers: int) -> float:
    """About how many seconds blocks of several devices take in order: evenly, or in ranges of their device."""
    ranges = (rows for runs in _RUNS for rows in _ranges(counts, track.pace, runs))
    evenly = _patterned(counts, track, buffers, (0, 0.5)).seconds
    return min([evenly, *(seconds(rows, track, buffers) for rows in ranges)])


def _seconds(each: Arranged) -> float:
    return each.seconds


def _patterned(counts: Mapping[int, int], track: Track, buffers: int, pattern: Pattern) -> Arranged:
    lead, offset = pattern
    least = min(counts, key=lambda way: (track.pace[way].link, -track.pace[way].chain))
    lead = max(0, min(lead, counts[least] - 1))
    rest = {**counts, least: counts[least] - lead}
    rows = (*(least,) * lead, *_spread(rest, track.pace, offset))
    return Arranged(rows, seconds(rows, track, buffers), (lead, offset))


def seconds(rows: Sequence[int], track: Track, buffers: int) -> float:
    """Until the last block is done, in all passes: what comes for a block waits for the link and for buffers that those
    before have done with, its operations for the block before and for what comes."""
    others = sum(worth * seconds(rows, other, buffers) for worth, other in track.others)
    return others + _pass_seconds(rows, track, buffers)


def _pass_seconds(rows: Sequence[int], track: Track, buffers: int) -> float:
    """The same of one pass."""
    if track.batches == 1:
        return _flowed([track.pace[row] for row in rows], track, buffers)
    run = _Run(track, buffers)
    for row in rows:
        run.block(track.pace[row])
    return max(run.now) + track.crossings.get((run.at, track.ends[1]), 0.0)


def _flowed(blocks: Sequence[Pace], track: Track, buffers: int) -> float:
    """The same for one batch."""
    before = (track.ends[0], *(block.last for block in blocks))
    after = (*(block.first for block in blocks), track.ends[1])
    crossed = [track.crossings.get(pair, 0.0) for pair in zip(before, after, strict=True)]
    return flow_seconds(blocks, dict(enumerate(crossed)), buffers) + crossed[-1]


class _Run:
    """`now`: by batch, when it is through; `at`: where hidden states are; `free`: by device, when its link, and when
    its operations of all batches so far, are done; `done`: by device, when blocks for which something came were."""

    def __init__(self, track: Track, buffers: int) -> None:
        self.track, self.buffers = track, buffers
        self.now = [0.0] * track.batches
        self.at = track.ends[0]
        self.link: dict[int, float] = {}
        self.free: dict[int, float] = {}
        self.done: dict[int, list[float]] = {}

    def block(self, block: Pace) -> None:
        """All batches go through one more block."""
        crossing, done = self.track.crossings.get((self.at, block.first), 0.0), self.done.setdefault(block.on, [])
        start = 0.0
        if block.link > 0.0:
            waited = done[-self.buffers] if len(done) >= self.buffers else 0.0
            start = max(self.link.get(block.on, 0.0), waited)
            self.link[block.on] = start + block.link
        for batch, now in enumerate(self.now):
            end = self._worked(self._begun(now + crossing, block), block)
            self.now[batch] = max(end, start + block.through) if block.link > 0.0 else end
        if block.link > 0.0:
            done.append(max(self.now) - block.after)
        self.at = block.last

    def _worked(self, now: float, block: Pace) -> float:
        """When operations that begin `now` are done, every link that is busy until later slowing them."""
        loss, left = block.loss, block.chain
        busy = sorted(until for until in self.link.values() if until > now) if loss else []
        for number, until in enumerate(busy):
            speed = max(LEAST, 1 - loss * (len(busy) - number))
            if left <= (until - now) * speed:
                return now + left / speed
            now, left = until, left - (until - now) * speed
        return now + left

    def _begun(self, ready: float, block: Pace) -> float:
        """When a batch may begin, that waits for the devices where batches follow each other."""
        devices = zip((block.on, HOST), block.busy, strict=True)
        used = [(device, busy) for device, busy in devices if busy > 0.0]
        begun = max((ready, *(self.free.get(device, 0.0) for device, _ in used)))
        for device, busy in used:
            self.free[device] = begun + busy
        return begun


def _spread(counts: Mapping[int, int], pace: Sequence[Pace], offset: float) -> Iterator[int]:
    """Every way at even distances; `offset`: how much of one of them the way that needs the link most is behind."""
    needs = {way: pace[way].link / (pace[way].link + pace[way].chain) for way in counts}
    most = max(needs.values()) or 1.0
    places = [
        ((number + (1 - offset) / 2 + offset * needs[way] / most) / count, way)
        for way, count in counts.items()
        for number in range(count)
    ]
    return (way for _, way in sorted(places))


def _ranges(counts: Mapping[int, int], pace: Sequence[Pace], runs: int) -> Iterator[tuple[int, ...]]:
    """The blocks of each device in so many ranges, devices in every order."""
    devices = sorted({pace[way].on for way in counts})
    members = {on: {way: count for way, count in counts.items() if pace[way].on == on} for on in devices}
    inside = {on: tuple(_spread(mine, pace, 0.5)) for on, mine in members.items()}
    for order in permutations(devices) if len(devices) <= _PERMUTED else (tuple(devices),):
        yield tuple(way for run in range(runs) for on in order for way in _part(inside[on], run, runs))


def _part(rows: tuple[int, ...], run: int, runs: int) -> tuple[int, ...]:
    return rows[run * len(rows) // runs : (run + 1) * len(rows) // runs]


def exchanged(rows: tuple[int, ...], track: Track, buffers: int) -> tuple[int, ...]:
    """Blocks in an order in which neighbours were exchanged where that helps."""
    best, least = rows, seconds(rows, track, buffers)
    tries = [place for place in range(len(rows) - 1) if rows[place] != rows[place + 1]][:_SWAPS]
    for place in tries:
        other = (*best[:place], best[place + 1], best[place], *best[place + 2 :])
        found = seconds(other, track, buffers)
        if found < least:
            best, least = other, found
    return best
