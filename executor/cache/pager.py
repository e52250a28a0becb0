"""The pager: what a pass reads of caches with a window, page by page, and what it takes home (HELM-58..65).

A page comes while those before it are attended to, the first of a block already while the block before it computes:
buffers take turns, and nothing else holds a page back. Python only submits; queues and copy engines do the rest."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from helmsman.executor._kernels import Event
from helmsman.executor.cache.page_stamps import PageStamps
from helmsman.executor.cache.paged_caches import PagedBlock, PagedBuffers, PagedCaches, move_page
from helmsman.executor.devices.parts import CopyEngine, Queue, Stage
from helmsman.executor.passes.pass_times import NOT_MOVED, PageTimes
from helmsman.lowering.cargo import transfer_word
from helmsman.lowering.emit import page_word, task_name
from helmsman.lowering.page_moves import page_cargo
from helmsman.lowering.paging import home_tokens, paging_of
from helmsman.scheduler.pages import Advance, PageTable, Run

_SEQUENCES = 0
"""In the page table: the sequences of a batch are equally long, and their pages move together."""


Submitted = Callable[[int, int, Sequence[Event], Event | None], None]
"""Submits something for so many tokens on top of a past, after some events and before another."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A lane that attends to the pages of blocks: a queue and a stage, whose first block is `first`."""

    queue: Queue
    stage: Stage
    first: int


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of a recorded pass in which such `pages` are streamed and leave: `names` of tasks as lowering gives
    them, `rows` of the page stamps that hold their times, bytes `moved`."""

    pages: tuple[tuple[int, ...], tuple[int, ...]]
    names: tuple[str, ...]
    rows: NDArray[np.int64]
    moved: NDArray[np.int64]


class Pager:
    """Moves the pages of the windows in one memory, for one pass after the other.

    `come`, `leave`: names and engines of the links from and to where the caches live; `context`: positions that there
    may be."""

    def __init__(
        self, caches: PagedCaches, come: tuple[str, CopyEngine], leave: tuple[str, CopyEngine], context: int
    ) -> None:
        self._caches = caches
        self._come, self._leave = come, leave
        self._paging = paging_of(caches.cache)
        self._capacity = home_tokens(caches.cache, context)
        self._table = PageTable(self._paging, self._capacity)
        self._rank = {layer: rank for rank, layer in enumerate(caches.blocks)}
        self._stamps = PageStamps(len(caches.blocks), self._paging.evicted(self._capacity), self._most_leaving())
        self._arrived: list[Event] = []
        self._read: list[Event] = []
        self._left: list[Event] = []
        self._turn = 0
        self._gone = 0
        self._step: Advance | None = None
        self._columns = self._columns_of((), ())

    @property
    def streams(self) -> bool:
        """Whether any page of the pass under way is at home."""
        return bool(self._now.streamed)

    def assume(self, tokens: int) -> None:
        """Pages are where they would be after `tokens` tokens."""
        self._restart()
        while (cached := self._table.cached(_SEQUENCES)) < tokens:
            self._table.advance(_SEQUENCES, min(self._paging.most_new, tokens - cached))

    def begin(self, tokens: int, past: int) -> None:
        """A pass of `tokens` on top of `past` begins; without a past, all pages are free."""
        if past == 0:
            self._restart()
        assert self._table.cached(_SEQUENCES) == past, f"{past} cached where pages hold another past"
        self._step = self._table.advance(_SEQUENCES, tokens)
        for event in (*self._arrived[: self._turn], *self._read[: self._turn], *self._left[: self._gone]):
            event.clear()
        self._turn = self._gone = 0

    def attending(self, layer: int, reader: Reader) -> Submitted:
        """Return the function that submits attention of a block."""
        return partial(self._attend, layer, reader)

    def _restart(self) -> None:
        for sequence in self._table.sequences:
            self._table.free(sequence)
        self._table.add(_SEQUENCES)

    def _attend(
        self, layer: int, reader: Reader, tokens: int, past: int, wait: Sequence[Event], done: Event | None
    ) -> None:
        """Submit attention of a block: page by page, then over what is in the window."""
        block, number, waits = self._caches.blocks[layer], layer - reader.first, list(wait)
        for page in self._now.streamed:
            place = self._bring(layer, block, page)
            room, times = self._arriving(place), self._stamps.read(self._rank[layer], page)
            spans = [room.span(0, page * self._paging.page, self._paging.page)]
            waits.append(self._arrived[place])
            reader.queue.attend(
                reader.stage, number, spans, page == 0, False, tokens, past, times, waits, self._read[place]
            )
            waits = []
        spans = [block.ring.span(run.row, run.position, run.count) for run in self._now.resident]
        times = self._stamps.resident(self._rank[layer])
        reader.queue.attend(reader.stage, number, spans, not self.streams, True, tokens, past, times, waits, done)

    def evict(self, layer: int) -> None:
        """Submit the copies home of pages that leave in this pass; all that they hold was there before it."""
        block = self._caches.blocks[layer]
        for number, (page, run) in enumerate(self._now.evicted):
            event, self._gone = _next(self._left, self._gone), self._gone + 1
            times = self._stamps.leaving(self._rank[layer], number)
            target = block.home, page * self._paging.page
            move_page(self._leave[1], run, (block.ring, run.row), target, times, [], event)

    def finish(self) -> None:
        """Wait for what leaves."""
        if self._gone:
            self._left[self._gone - 1].wait()

    def taken(self) -> PageTimes:
        """When the pages of the pass that is done moved and were read, and when the rest of attention was."""
        step = self._now
        pages = tuple(step.streamed), tuple(page for page, _ in step.evicted)
        if self._columns.pages != pages:  # they change once in as many steps as a page has tokens
            self._columns = self._columns_of(*pages)
        return PageTimes(self._columns.names, self._stamps.values[self._columns.rows], self._columns.moved)

    def _columns_of(self, streamed: tuple[int, ...], evicted: tuple[int, ...]) -> _Columns:
        names, rows, moved = list[str](), list[int](), list[int]()
        size = self._page_bytes
        for layer, rank in self._rank.items():
            for page in streamed:
                words = transfer_word(page_cargo(page), self._come[0]), page_word("attention", page)
                names += [task_name(layer, word) for word in words]
                rows += self._stamps.of_page(rank, page)
                moved += [size, NOT_MOVED]
            for number, page in enumerate(evicted):
                names.append(task_name(layer, transfer_word(page_cargo(page), self._leave[0])))
                rows.append(self._stamps.of_leaving(rank, number))
                moved.append(size)
        if streamed:
            names += [task_name(layer, "attention") for layer in self._rank]
            rows += [self._stamps.of_resident(rank) for rank in self._rank.values()]
            moved += [NOT_MOVED] * len(self._rank)
        return _Columns((streamed, evicted), tuple(names), np.array(rows, np.int64), np.array(moved, np.int64))

    @property
    def _now(self) -> Advance:
        assert self._step is not None, "no pass has begun"
        return self._step

    def _bring(self, layer: int, block: PagedBlock, page: int) -> int:
        """Submit the copy of a page that is at home; which turn of the buffers it is."""
        place, self._turn = self._turn, self._turn + 1
        arrived = _next(self._arrived, place)
        _next(self._read, place)
        staged = self._caches.cache.staged_pages
        free = [self._read[place - staged]] if place >= staged else []
        run = Run(page * self._paging.page, 0, self._paging.page)
        target, times = self._arriving(place), self._stamps.coming(self._rank[layer], page)
        move_page(self._come[1], run, (block.home, run.position), (target, 0), times, free, arrived)
        return place

    def _arriving(self, place: int) -> PagedBuffers:
        """Where the page that comes as number `place` of the pass arrives."""
        return self._caches.arriving[place % self._caches.cache.staged_pages]

    @property
    def _page_bytes(self) -> int:
        return self._caches.arriving[0].buffer.size

    def _most_leaving(self) -> int:
        """Pages that may leave in one pass."""
        return -(-self._paging.most_new // self._paging.page) + 1


def _next(events: list[Event], place: int) -> Event:
    """The event at `place`, made when it is first needed."""
    if place == len(events):
        events.append(Event())
    return events[place]
