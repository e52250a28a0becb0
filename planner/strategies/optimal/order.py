"""In which order blocks of several ways follow each other, so that what comes is there when it is needed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_OFFSETS = (0.0, 0.25, 0.5, 0.75, 1.0)
_SWAPS = 120
"""So many exchanges of neighbours are tried."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds of a block of one way: its operations while nothing comes (`chain`) and while the link never rests
    (`beside`), what comes for it (`link`), and from when that begins to come until it is done (`through`), of which
    nothing that came is needed any more during the last (`after`)."""

    chain: float
    beside: float
    link: float
    through: float
    after: float


def ordered(counts: Mapping[int, int], pace: Sequence[Pace], buffers: int) -> tuple[int, ...]:
    """The ways of all blocks in the best order that was found; `buffers`: for how many blocks something may be here.

    Blocks of every way are spread evenly, those that need the link most a little later than others; then neighbours are
    exchanged while that helps."""
    found = min(
        (tuple(_spread(counts, pace, each)) for each in _OFFSETS), key=lambda rows: seconds(rows, pace, buffers)
    )
    return _exchanged(found, pace, buffers)


def seconds(rows: Sequence[int], pace: Sequence[Pace], buffers: int) -> float:
    """Until the last block is done: what comes for a block waits for the link and for buffers that those before have
    done with, its operations for the block before and for what comes."""
    now = free = 0.0
    done: list[float] = []
    for row in rows:
        block = pace[row]
        start = max(free, done[-buffers] if len(done) >= buffers else 0.0) if block.link > 0.0 else free
        free = start + block.link
        busy = max(0.0, free - now)
        part = min(1.0, busy / block.beside) if block.beside else 0.0
        now += part * block.beside + (1 - part) * block.chain
        if block.link > 0.0:
            now = max(now, start + block.through)
            done.append(now - block.after)
    return now


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


def _exchanged(rows: tuple[int, ...], pace: Sequence[Pace], buffers: int) -> tuple[int, ...]:
    best, least = rows, seconds(rows, pace, buffers)
    tries = [place for place in range(len(rows) - 1) if rows[place] != rows[place + 1]][:_SWAPS]
    for place in tries:
        other = (*best[:place], best[place + 1], best[place], *best[place + 2 :])
        found = seconds(other, pace, buffers)
        if found < least:
            best, least = other, found
    return best
