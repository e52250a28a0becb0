"""Program: a pass as submissions to queues and copy engines, built once and run with other tokens every time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from helmsman.executor._kernels import CopyEngine as NativeEngine
from helmsman.executor._kernels import Event, Submissions
from helmsman.executor._kernels import Queue as NativeQueue
from helmsman.executor.cache.pager import Pager
from helmsman.executor.devices.move_calls import (
    ExpansionMove,
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
from helmsman.executor.devices.opening import Devices
from helmsman.executor.devices.parts import Buffer, CopyEngine, Queue, of_kind
from helmsman.executor.moves.transfers import Transfers
from helmsman.executor.passes.halves import HIDDEN_MADE, HIDDEN_READ, WHOLE, TokenChunk
from helmsman.executor.passes.pass_times import NOT_MOVED, PageTimes, PassTimes, together, with_pages
from helmsman.executor.passes.phase_pass import PhasePass
from helmsman.executor.passes.stamps import Place, TaskStamps
from helmsman.executor.programs.order import PassOrder
from helmsman.executor.programs.ranges import PagedRange, Range
from helmsman.executor.programs.slot_steps import SlotStep, SlotTransfer, SlotTransfers, look_up
from helmsman.executor.programs.submissions import Submission
from helmsman.executor.routing.slots import LayerSlots
from helmsman.executor.stages.seats import Seat, Seats
from helmsman.lowering.bodies.experts_apart import ROUTER
from helmsman.lowering.buffers import chunk_of
from helmsman.lowering.tensors import LOOKUPS
from helmsman.schemas.hardware import lane_owner

Part = Move | Lookup | Read | ExpansionMove | Turn


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

    def __init__(
        self,
        phase_pass: PhasePass,
        ordered: PassOrder,
        seats: Seats,
        transfers: Transfers,
        lanes: Lanes,
        slots: Mapping[int, LayerSlots] | None = None,
    ) -> None:
        self.phase = phase_pass.phase
        self.seats = seats
        builder = _CallBuilder(phase_pass, ordered, seats, transfers, lanes, slots or {})
        self._to_slots = SlotTransfers(builder.to_slots)
        self._submits, self._events, self._last = builder.submits, builder.events, builder.last
        self._stamps, self._queues = builder.stamps, tuple(lanes.queues.values())
        self._pagers = tuple(lanes.pagers.values())
        self._head, self._batches = phase_pass.device_of("head"), len({batch for _, batch in seats})
        self._chosen, self._step_tokens = 0, phase_pass.step_tokens
        self._sequences = phase_pass.plan.workload.batch
        self._names = tuple(task.name for task in phase_pass.tasks)
        self._stamped = TaskStamps(builder.places, ordered.divided)
        self._moves = [builder.moved.get(index) for index in range(len(phase_pass.tasks))]
        self._chunks = builder.chunks
        self._rows: list[tuple[int, int, int]] = []
        self._taken: list[NDArray[np.float64]] = []
        self._paged: list[PageTimes] = []

    def run(self, tokens: int, past: int) -> None:
        """Every sequence advances by `tokens` on top of `past` cached ones."""
        self._chosen = self._sequences * min(tokens, self._step_tokens)
        for pager in self._pagers:
            pager.begin(tokens, past)
        for event in self._events:
            event.clear()
        self._submits.submit(tokens, past)
        for event in self._last:
            event.wait()
        for pager in self._pagers:
            pager.finish()
        for queue in self._queues:
            queue.check()

    def logits(self) -> NDArray[np.float32]:
        """f32 (sequences, vocab) of the latest pass; of one that verifies drafts, a row for every token."""
        stages = [self.seats[self._head, batch].stage for batch in range(self._batches)]
        return np.concatenate([np.asarray(stage.logits())[: self._chosen] for stage in stages])

    def record(self, number: int, tokens: int, past: int) -> None:
        """Keep the times of the latest pass as those of pass `number`."""
        self._to_slots.record(self._stamps)
        self._rows.append((number, tokens, past))
        self._taken.append(self._stamps.copy())
        if self._pagers:
            self._paged.append(together([pager.taken() for pager in self._pagers]))

    def take(self) -> tuple[PassTimes, ...]:
        """What was recorded since the last call: of passes that executed the same tasks together."""
        recorded, paged = self._take(), self._paged
        self._paged = []
        return tuple(with_pages(recorded, paged)) if self._pagers else (recorded,)

    def _take(self) -> PassTimes:
        rows, taken = self._rows, np.array(self._taken).reshape(len(self._taken), len(self._stamps))
        self._rows, self._taken = [], []
        starts, ends = self._stamped.times(taken)
        moved = [
            [_total(moves, chunks, tokens, past) for moves, chunks in zip(self._moves, self._chunks, strict=True)]
            for _, tokens, past in rows
        ]
        shape = len(rows), len(self._names)
        numbers, sizes = np.array([number for number, *_ in rows], np.int64), np.array(moved, np.int64).reshape(shape)
        self._to_slots.take(sizes)
        return PassTimes(numbers, self._names, starts, ends, sizes)


def _total(moves: Sequence[Move | Lookup | Read] | None, chunks: Sequence[TokenChunk], tokens: int, past: int) -> int:
    if moves is None:
        return NOT_MOVED
    return sum(move.total(*chunk.of(tokens, past)) for move in moves for chunk in chunks)


def _only(submit: Submit, chunk: TokenChunk) -> Submit:
    """`submit` for a chunk of a pass."""
    return submit if chunk is WHOLE else lambda tokens, past: submit(*chunk.of(tokens, past))


class _CallBuilder:
    """Turns submissions into calls; `places`: of every task, the indices of its start and end among the stamps;
    `chunks`: which tokens it is done for, each time."""

    def __init__(
        self,
        phase_pass: PhasePass,
        ordered: PassOrder,
        seats: Seats,
        transfers: Transfers,
        lanes: Lanes,
        slots: Mapping[int, LayerSlots],
    ) -> None:
        self._phase_pass = phase_pass
        self._slots = slots
        self.to_slots: list[SlotTransfer] = []
        self._seats = seats
        self._transfers = transfers
        self._lanes = lanes
        self._size = chunk_of(phase_pass.plan)
        self.moved = {
            i: () if phase_pass.comes_to_slots(i) else transfers.moves(i)
            for i, task in enumerate(phase_pass.tasks)
            if task.kind in ("transfer", "pin")
        }
        self.places: list[list[Place]] = [[] for _ in phase_pass.tasks]
        self.chunks: list[list[TokenChunk]] = [[] for _ in phase_pass.tasks]
        self.submits = Submissions()
        plan = ordered.submissions
        tails = {submission.lane: number for number, submission in enumerate(plan)}
        done = [
            Event() if submission.signals or tails[submission.lane] == number else None
            for number, submission in enumerate(plan)
        ]
        self.events = [event for event in done if event is not None]
        # The copies' tails last: most are done by then, and whoever waits long leaves them to a thread.
        ends = sorted(tails.items(), key=lambda lane: lane[0] in lanes.engines)
        self.last = [event for _, number in ends if (event := done[number]) is not None]
        self._used = 0
        self.stamps = np.zeros(sum(self._room(submission) for submission in plan))
        for submission, event in zip(plan, done, strict=True):
            self._add(submission, [other for number in submission.waits if (other := done[number]) is not None], event)

    def _room(self, submission: Submission) -> int:
        """Stamps that a submission fills."""
        index = submission.tasks[0]
        if index in self._phase_pass.uses:
            first, last = self._range(submission)
            return last - first + 1
        if self._phase_pass.comes_to_slots(index):
            return 2
        parts = self._parts(index)
        assert parts, f"{self._phase_pass.tasks[index].id} moves nothing"
        return 2 * len(parts)

    def _parts(self, index: int) -> Sequence[Part]:
        if self._phase_pass.tasks[index].kind in ("decompress", "reshape"):
            return self._transfers.expansions(index)
        return self.moved[index]

    def _range(self, submission: Submission) -> tuple[int, int]:
        seat = self._seat(submission.tasks[0])
        ends = [seat.ops_of(self._phase_pass.tasks[i]) for i in submission.tasks]
        return ends[0][0], ends[-1][1]

    def _seat(self, index: int) -> Seat:
        return self._seats[self._phase_pass.uses[index].device, self._phase_pass.tasks[index].batch]

    def _add(self, submission: Submission, waits: list[Event], done: Event | None) -> None:
        chunk = WHOLE if submission.chunk is None else TokenChunk(submission.chunk, self._size)
        for index in submission.tasks:
            self.chunks[index].append(chunk)
        if submission.tasks[0] in self._phase_pass.uses:
            step = self._look_up(submission, chunk)
            stamps = self._add_range(submission, chunk, waits, None if step is not None else done)
            if step is not None:
                self.submits.call(step.submit(stamps[-1:], done))
        elif self._phase_pass.comes_to_slots(submission.tasks[0]):
            self._add_to_slots(submission.tasks[0], done)
        else:
            self._add_moves(submission, chunk, waits, done)

    def _add_range(
        self, submission: Submission, chunk: TokenChunk, waits: list[Event], done: Event | None
    ) -> NDArray[np.float64]:
        """Return the stamps of a range, once it is among the calls."""
        seat, (first, last) = self._seat(submission.tasks[0]), self._range(submission)
        stamps = self._take(last - first + 1)
        for index in submission.tasks:
            begin, end = seat.ops_of(self._phase_pass.tasks[index])
            self.places[index].append((stamps.start + begin - first, stamps.start + end - first))
        source, target = self._ends(submission, seat)
        queue, ops, times = self._lanes.queues[submission.lane], range(first, last), self.stamps[stamps]
        paged = self._paged(submission, seat)
        if paged is None and isinstance(queue, NativeQueue):
            part = (chunk.number, chunk.size)
            self.submits.run(queue, seat.stage, source, target, times.data, first, last, part, waits, done)
            return times
        whole = Range(queue, seat.stage, seat.first_layer, ops, source, seat.hidden, target, times, chunk)
        self.submits.call((whole if paged is None else PagedRange(whole, *paged)).submit(waits, done))
        return times

    def _ends(self, submission: Submission, seat: Seat) -> tuple[Buffer | None, Buffer | None]:
        """What a range reads first and leaves last. Of a chunk that goes from device to device, hidden states are all
        that is not in the workspace."""
        ops = [self._phase_pass.tasks[index].op for index in submission.tasks]
        if all(self._phase_pass.routed_elsewhere(index) for index in submission.tasks):
            return None, None
        if submission.chunk is not None:
            reads, makes = not set(HIDDEN_READ).isdisjoint(ops), ops[-1] in HIDDEN_MADE
            return seat.hidden if reads else None, seat.hidden if makes else None
        return seat.tokens if ops[0] in LOOKUPS else seat.hidden, seat.chosen if ops[-1] == "head" else seat.hidden

    def _look_up(self, submission: Submission, chunk: TokenChunk) -> SlotStep | None:
        """Return what comes after a range that ends with the router of a layer with slots."""
        last = self._phase_pass.tasks[submission.tasks[-1]]
        if last.layer not in self._phase_pass.slotted or last.op != ROUTER:
            return None
        seat, chunked = self._seat(submission.tasks[0]), submission.chunk is not None
        device = self._lanes.devices.by_name[last.resource]
        turns = device.turns(self._lanes.queues[submission.lane], seat.stage)
        return look_up(self._phase_pass, last, seat, turns, self._slots, chunk, chunked)

    def _add_to_slots(self, index: int, done: Event | None) -> None:
        """A task that brings experts to slots is done by the look-up; nothing but the end of a pass waits for it."""
        task, stamps = self._phase_pass.tasks[index], self._take(2)
        slots = self._slots[task.layer or 0]
        place = [*slots.table.room.matrices].index(task.operation)
        awaited = self._phase_pass.slotted[task.layer or 0] != "host"
        self.to_slots.append(SlotTransfer(index, stamps.start, slots, place, awaited))
        self.places[index].append((stamps.start, stamps.start + 1))
        if done is not None:
            self.submits.call(lambda _tokens, _past: done.signal())

    def _paged(self, submission: Submission, seat: Seat) -> tuple[list[tuple[int, int]], Pager] | None:
        """The blocks and operations of a range that read pages, and what moves those."""
        tasks = [self._phase_pass.tasks[index] for index in submission.tasks]
        pager = self._lanes.pagers.get(tasks[0].memories[0])
        layers = [task.layer for task in tasks if task.layer is not None and task.op == "attention"]
        if pager is None or not layers:
            return None
        return [(layer, seat.ops(layer, "attention")[0]) for layer in layers], pager

    def _add_moves(self, submission: Submission, chunk: TokenChunk, waits: list[Event], done: Event | None) -> None:
        (index,) = submission.tasks
        parts = self._parts(index)
        begin = self._used
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            times = self.stamps[self._take(2)].data
            signals = Signals(times, waits if number == 0 else [], done if last else None)
            engine = self._lanes.engines.get(submission.lane)
            if isinstance(part, Move) and isinstance(engine, NativeEngine):
                self.submits.move(engine, part, (chunk.number, chunk.size), signals.wait, signals.done, times)
            else:
                self.submits.call(_only(self._submit(part, submission.lane, signals), chunk))
        self.places[index].append((begin, self._used - 1))

    def _submit(self, part: Part, lane: str, signals: Signals) -> Submit:
        if isinstance(part, Move):
            return submit_move(self._lanes.engines[lane], part, signals)
        if isinstance(part, Lookup):
            return submit_lookup(self._lanes.engines[lane], part, signals)
        if isinstance(part, Read):
            return submit_read(of_kind(self._lanes.queues[lane], NativeQueue), part, signals)
        return self._lanes.devices.by_name[lane_owner(lane)].expanding(self._lanes.queues[lane], part, signals)

    def _take(self, count: int) -> slice:
        self._used += count
        return slice(self._used - count, self._used)
