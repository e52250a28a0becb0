"""Program: a pass as submissions to queues and copy engines, built once and run with other tokens every time."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from helmsman.executor._kernels import CopyEngine, Event, Queue
from helmsman.executor.devices.opening import Devices
from helmsman.executor.moves import (
    Expansion,
    Lookup,
    Move,
    Read,
    Signals,
    Submit,
    Turn,
    submit_lookup,
    submit_move,
    submit_read,
)
from helmsman.executor.order import Ordered
from helmsman.executor.pager import Pager
from helmsman.executor.passes import Pass, name_of
from helmsman.executor.ranges import PagedRange, Range
from helmsman.executor.recorded import NOT_MOVED, PageTimes, Recorded, together, with_pages
from helmsman.executor.seats import Seat, Seats
from helmsman.executor.submissions import Submission
from helmsman.executor.transfers import Transfers
from helmsman.schemas.hardware import lane_owner

Part = Move | Lookup | Read | Expansion | Turn


@dataclass(frozen=True)
class Lanes:
    """What takes submissions: a queue for every device and storage memory, an engine for every lane of a link; by
    memory, what moves the pages of windows there."""

    devices: Devices
    queues: dict[str, Queue]
    engines: dict[str, CopyEngine]
    pagers: dict[str, Pager]


class Program:
    """The passes of one phase. `stamps`: seconds at which the latest pass's operations and moves began and ended."""

    def __init__(self, found: Pass, ordered: Ordered, seats: Seats, transfers: Transfers, lanes: Lanes) -> None:
        self.phase = found.phase
        self.seats = seats
        builder = _Builder(found, ordered, seats, transfers, lanes)
        self._submits, self._events, self._last = builder.submits, builder.events, builder.last
        self._stamps, self._queues = builder.stamps, tuple(lanes.queues.values())
        self._pagers = tuple(lanes.pagers.values())
        self._head, self._batches = found.device_of("head"), len({batch for _, batch in seats})
        self._names = tuple(name_of(task) for task in found.tasks)
        self._places = builder.places
        self._moves = [builder.moved.get(index) for index in range(len(found.tasks))]
        self._rows: list[tuple[int, int, int]] = []
        self._taken: list[NDArray[np.float64]] = []
        self._paged: list[PageTimes] = []

    def run(self, tokens: int, past: int) -> None:
        """Every sequence advances by `tokens` on top of `past` cached ones."""
        for pager in self._pagers:
            pager.begin(tokens, past)
        for event in self._events:
            event.clear()
        for submit in self._submits:
            submit(tokens, past)
        for event in self._last:
            event.wait()
        for pager in self._pagers:
            pager.finish()
        for queue in self._queues:
            queue.check()

    def logits(self) -> NDArray[np.float32]:
        """f32 (sequences, vocab) of the latest pass."""
        stages = [self.seats[self._head, batch].stage for batch in range(self._batches)]
        return np.concatenate([np.asarray(stage.logits()) for stage in stages])

    def record(self, number: int, tokens: int, past: int) -> None:
        """Keep the times of the latest pass as those of pass `number`."""
        self._rows.append((number, tokens, past))
        self._taken.append(self._stamps.copy())
        if self._pagers:
            self._paged.append(together([pager.taken() for pager in self._pagers]))

    def take(self) -> tuple[Recorded, ...]:
        """What was recorded since the last call: of passes that executed the same tasks together."""
        found, paged = self._take(), self._paged
        self._paged = []
        return tuple(with_pages(found, paged)) if self._pagers else (found,)

    def _take(self) -> Recorded:
        rows, taken = self._rows, np.array(self._taken).reshape(len(self._taken), len(self._stamps))
        self._rows, self._taken = [], []
        starts, ends = (taken[:, [place[side] for place in self._places]] for side in (0, 1))
        moved = [[_total(moves, tokens, past) for moves in self._moves] for _, tokens, past in rows]
        shape = len(rows), len(self._names)
        numbers = np.array([number for number, *_ in rows], np.int64)
        return Recorded(numbers, self._names, starts, ends, np.array(moved, np.int64).reshape(shape))


def _total(moves: Sequence[Move | Lookup | Read] | None, tokens: int, past: int) -> int:
    return NOT_MOVED if moves is None else sum(move.total(tokens, past) for move in moves)


class _Builder:
    """Turns submissions into calls; `places`: of every task, the indices of its start and end among the stamps."""

    def __init__(self, found: Pass, ordered: Ordered, seats: Seats, transfers: Transfers, lanes: Lanes) -> None:
        self._found = found
        self._seats = seats
        self._transfers = transfers
        self._lanes = lanes
        self._chunked = ordered.chunked
        self.moved = {i: transfers.moves(i) for i, task in enumerate(found.tasks) if task.kind in ("transfer", "pin")}
        self.places: list[tuple[int, int]] = [(0, 0)] * len(found.tasks)
        self.submits: list[Submit] = []
        plan = ordered.submissions
        tails = {each.lane: number for number, each in enumerate(plan)}
        done = [Event() if each.signals or tails[each.lane] == number else None for number, each in enumerate(plan)]
        self.events = [event for event in done if event is not None]
        self.last = [event for number in tails.values() if (event := done[number]) is not None]
        self._used = 0
        self.stamps = np.zeros(sum(self._room(each) for each in plan))
        for each, event in zip(plan, done, strict=True):
            self._add(each, [other for number in each.waits if (other := done[number]) is not None], event)

    def _room(self, submission: Submission) -> int:
        """Stamps that a submission fills."""
        index = submission.tasks[0]
        if index in self._found.uses:
            first, last = self._range(submission)
            return last - first + 1
        parts = self._parts(index)
        assert parts, f"{self._found.tasks[index].id} moves nothing"
        return 2 * len(parts)

    def _parts(self, index: int) -> Sequence[Part]:
        if self._found.tasks[index].kind in ("decompress", "reshape"):
            return self._transfers.expansions(index)
        return self.moved[index]

    def _range(self, submission: Submission) -> tuple[int, int]:
        seat = self._seat(submission.tasks[0])
        ends = [seat.ops(self._found.tasks[i].layer, self._found.tasks[i].op) for i in submission.tasks]
        return ends[0][0], ends[-1][1]

    def _seat(self, index: int) -> Seat:
        return self._seats[self._found.uses[index].device, self._found.tasks[index].batch]

    def _add(self, submission: Submission, waits: list[Event], done: Event | None) -> None:
        if submission.tasks[0] in self._found.uses:
            self._add_range(submission, waits, done)
        else:
            self._add_moves(submission.tasks[0], submission.lane, waits, done)

    def _add_range(self, submission: Submission, waits: list[Event], done: Event | None) -> None:
        seat, (first, last) = self._seat(submission.tasks[0]), self._range(submission)
        stamps = self._take(last - first + 1)
        for index in submission.tasks:
            task = self._found.tasks[index]
            begin, end = seat.ops(task.layer, task.op)
            self.places[index] = (stamps.start + begin - first, stamps.start + end - first)
        head, tail = (self._found.tasks[submission.tasks[place]].op for place in (0, -1))
        source = seat.tokens if head == "embedding" else seat.hidden
        target = seat.chosen if tail == "head" else seat.hidden
        queue, ops = self._lanes.queues[submission.lane], range(first, last)
        whole = Range(queue, seat.stage, seat.first_layer, ops, source, seat.hidden, target, self.stamps[stamps])
        paged = self._paged(submission, seat)
        self.submits.append((whole if paged is None else PagedRange(whole, *paged)).submit(waits, done))

    def _paged(self, submission: Submission, seat: Seat) -> tuple[list[tuple[int, int]], Pager] | None:
        """The blocks and operations of a range that read pages, and what moves those."""
        tasks = [self._found.tasks[index] for index in submission.tasks]
        pager = self._lanes.pagers.get(tasks[0].memories[0])
        layers = [task.layer for task in tasks if task.layer is not None and task.op == "attention"]
        if pager is None or not layers:
            return None
        return [(layer, seat.ops(layer, "attention")[0]) for layer in layers], pager

    def _add_moves(self, index: int, lane: str, waits: list[Event], done: Event | None) -> None:
        parts = self._parts(index)
        begin = self._used
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            times = self.stamps[self._take(2)].data
            signals = Signals(times, waits if number == 0 else [], done if last else None)
            self.submits.append(self._submit(part, lane, signals))
        self.places[index] = (begin, self._used - 1)

    def _submit(self, part: Part, lane: str, signals: Signals) -> Submit:
        if isinstance(part, Move):
            return submit_move(self._lanes.engines[lane], part, signals)
        if isinstance(part, Lookup):
            return submit_lookup(self._lanes.engines[lane], part, signals)
        if isinstance(part, Read):
            return submit_read(self._lanes.queues[lane], part, signals)
        return self._lanes.devices.by_name[lane_owner(lane)].expanding(self._lanes.queues[lane], part, signals)

    def _take(self, count: int) -> slice:
        self._used += count
        return slice(self._used - count, self._used)
