"""Pages of a key and value cache: which are in a device's window, which are at home, and what moves between.

A sequence's positions are cut into pages. A window on the device is a ring of whole pages: position p lies in ring row
p mod window. Above a watermark the oldest full pages leave for home (HELM-58..61), where the whole context has room;
attention then streams them back page by page. What happens in a pass is returned as values, so lowering, simulator and
executor agree on it. Nothing here knows bytes, devices or layers."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Run:
    """Positions position <= p < position + count lie in ring rows from `row` on."""

    position: int
    row: int
    count: int


@dataclass(frozen=True, slots=True)
class Advance:
    """The advance of one sequence in a pass: it adds `written` positions on top of `past` cached ones.

    `streamed`: pages at home that attention reads; `resident`: the rest of what it reads, at most two runs of the ring;
    `evicted`: pages whose rows are copied home during the pass, and may be overwritten from the next one on."""

    past: int
    context: int
    streamed: range
    resident: tuple[Run, ...]
    written: tuple[Run, ...]
    evicted: tuple[tuple[int, Run], ...]


@dataclass(frozen=True, slots=True)
class Paging:
    """Pages of `page` tokens, a window of `window` tokens (whole pages), `high` tokens in it above which pages leave.

    `high` is at least a page, so the page being filled never leaves, and less than `window`, so there is room for new
    tokens while pages are on their way."""

    page: int
    window: int
    high: int

    def __post_init__(self) -> None:
        assert self.window % self.page == 0, "a window of whole pages"
        assert self.page <= self.high < self.window, "room for the page being filled, and for new tokens"

    @property
    def most_new(self) -> int:
        """Return tokens that one pass may add: more would overwrite rows that are not at home yet, or send home a page
        that the same pass fills."""
        return min(self.window - self.high, self.high - self.page + 1)

    def evicted(self, cached: int) -> int:
        """Pages at home, E(c) = max(0, ceil((c - high) / page)), once `cached` positions are cached."""
        return max(0, -((self.high - cached) // self.page))

    def row(self, position: int) -> int:
        """Return the ring row of a position."""
        return position % self.window

    def runs(self, start: int, stop: int) -> tuple[Run, ...]:
        """Return positions start <= p < stop, at most a window of them, as runs of ring rows: at most two."""
        return tuple(self._runs(start, stop))

    def advance(self, past: int, tokens: int) -> Advance:
        """Return a pass of `tokens` (at most `most_new`) on top of `past` cached positions."""
        assert 0 < tokens <= self.most_new, "a pass that fits beside what is resident"
        context, before = past + tokens, self.evicted(past)
        leaving = range(before, self.evicted(context))
        return Advance(
            past,
            context,
            range(before),
            self.runs(before * self.page, context),
            self.runs(past, context),
            tuple((page, self.runs(page * self.page, (page + 1) * self.page)[0]) for page in leaving),
        )

    def _runs(self, start: int, stop: int) -> Iterator[Run]:
        while start < stop:
            count = min(stop - start, self.window - self.row(start))
            yield Run(start, self.row(start), count)
            start += count


class PageTable:
    """Where the pages of several sequences are. `capacity`: positions that home has room for, of each sequence.

    Sequences are numbered by the caller; every one has a ring of its own."""

    def __init__(self, paging: Paging, capacity: int) -> None:
        self.paging = paging
        self.capacity = capacity
        self._cached: dict[int, int] = {}
        self._at_home: dict[int, int] = {}
        self._slots: dict[int, dict[int, int]] = {}

    @property
    def sequences(self) -> tuple[int, ...]:
        """Return those that have a place, in the order in which they came."""
        return tuple(self._cached)

    def cached(self, sequence: int) -> int:
        """Return positions of a sequence that are cached."""
        return self._cached[sequence]

    def evicted(self, sequence: int) -> int:
        """Return its oldest pages, which are at home."""
        return self._at_home[sequence]

    def slots(self, sequence: int) -> dict[int, int]:
        """By place in its ring, the page that is there."""
        return dict(self._slots[sequence])

    def add(self, sequence: int) -> None:
        """A new sequence, empty."""
        assert sequence not in self._cached, f"sequence {sequence} has a place already"
        self._cached[sequence] = self._at_home[sequence] = 0
        self._slots[sequence] = {}

    def free(self, sequence: int) -> None:
        """Forget a sequence: its ring and its pages at home are free."""
        del self._cached[sequence], self._at_home[sequence], self._slots[sequence]

    def advance(self, sequence: int, tokens: int) -> Advance:
        """Append `tokens` to a sequence; what the pass that does so streams, reads, writes and evicts.

        Pages leave while the pass works, so they are read in the ring once more."""
        past = self._cached[sequence]
        assert past + tokens <= self.capacity, f"{past + tokens} positions where home has {self.capacity}"
        step, slots = self.paging.advance(past, tokens), self._slots[sequence]
        for page in self._pages(past, step.context):
            slot = page % self._ring
            assert slots.get(slot, page) == page, f"page {page} would overwrite {slots[slot]}, which is not at home"
            slots[slot] = page
        for page, _ in step.evicted:
            del slots[page % self._ring]
        self._cached[sequence] = step.context
        self._at_home[sequence] = len(step.streamed) + len(step.evicted)
        return step

    def check_integrity(self) -> None:
        """Raise AssertionError unless every cached position is in exactly one place where it can be read."""
        for sequence, cached in self._cached.items():
            at_home, slots = self._at_home[sequence], self._slots[sequence]
            resident = sorted(slots.values())
            assert at_home == self.paging.evicted(cached), "as many pages at home as the closed form says"
            assert at_home * self.paging.page <= cached <= self.capacity, "only full pages are at home"
            assert resident == list(range(at_home, -(-cached // self.paging.page))), "every other page is resident"
            assert all(page % self._ring == slot for slot, page in slots.items()), "pages lie where positions say"
            assert len(slots) <= self._ring, "no more pages than the ring has places"

    @property
    def _ring(self) -> int:
        """Pages of a window."""
        return self.paging.window // self.paging.page

    def _pages(self, start: int, stop: int) -> range:
        """Return the pages that positions start <= p < stop are in."""
        return range(start // self.paging.page, -(-stop // self.paging.page))
