"""Looking up, in the turn of a device's queue, which experts a pass has chosen, and bringing them to slots."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from helmsman.executor._kernels import Event
from helmsman.executor.devices.move_calls import Submit
from helmsman.executor.devices.stage_turns import StageTurns
from helmsman.executor.passes.halves import TokenChunk
from helmsman.executor.passes.phase_pass import PhasePass, SlotMode
from helmsman.executor.routing.slots import LayerSlots
from helmsman.executor.stages.router_values import RouterValues
from helmsman.executor.stages.seats import Seat
from helmsman.lowering.bodies.experts import EXPERT_PRODUCTS
from helmsman.lowering.bodies.experts_apart import ROUTER
from helmsman.lowering.graph import Task


@dataclass(frozen=True)
class SlotStep:
    """The look-up after a router of a layer with slots, whose experts are `ops` of the stage; `sequences` and `chunk`:
    the rows of a pass; `router`: what it leaves of them."""

    slots: LayerSlots
    seat: Seat
    ops: range
    mode: SlotMode
    sequences: int
    chunk: TokenChunk
    chunked: bool
    turns: StageTurns
    router: RouterValues

    def submit(self, ended: NDArray[np.float64], done: Event | None) -> Submit:
        """Return the call that a pass makes in its place. `ended` (1,): the stamp at which the router has ended, which
        becomes that of the look-up; `done`: signalled then, before any expert leaves for its slot."""

        def submit(tokens: int, past: int) -> None:
            busy = set[int]()
            self.turns.call(partial(self._look_up, tokens, past, ended, busy), done)
            self.turns.call(partial(self._bring, tokens, busy), None)

        return submit

    def _look_up(self, tokens: int, past: int, ended: NDArray[np.float64], busy: set[int]) -> None:
        """Say what is computed where; `busy`: gets the experts whose slots are used in the pass."""
        start, stop = self.chunk.span(tokens)
        rows, first, rounds = self.sequences * (stop - start), start == 0, 0
        ids = self.router.chosen(rows)
        messages = None if self.mode == "fetched" else self.router.messages(rows)
        sent = self.router.sent(messages)
        match self.mode:
            case "fetched":
                for rounds, _ in enumerate(self.slots.rounds(ids, first), 1):
                    if rounds == 1:
                        self._stamp(ended)
                    self.slots.table.start()
                    self._compute(tokens, past, start, stop)
            case "divided":
                self.slots.divided(ids, sent, first)
            case "host":
                busy |= self.slots.beside(ids, sent, first)
        self.router.tell(messages)
        if rounds == 0:
            self._stamp(ended)

    def _stamp(self, ended: NDArray[np.float64]) -> None:
        self.slots.looked_up = ended[0] = monotonic()

    def _bring(self, tokens: int, busy: AbstractSet[int]) -> None:
        """Let experts come; behind the last rows of a pass, end it before."""
        if self.chunk.span(tokens)[1] == tokens and self.mode == "host":
            self.slots.end_beside(busy)
        elif self.chunk.span(tokens)[1] == tokens:
            self.slots.end(self.mode)
        self.slots.table.start()

    def _compute(self, tokens: int, past: int, start: int, stop: int) -> None:
        """Compute the experts of a round that is not the last."""
        hidden = self.seat.hidden if self.chunked else None
        self.turns.run(hidden, tokens, past, self.ops, range(start, stop))


def look_up(
    phase_pass: PhasePass,
    router: Task,
    seat: Seat,
    turns: StageTurns,
    slots: Mapping[int, LayerSlots],
    chunk: TokenChunk,
    chunked: bool,
) -> SlotStep:
    """Return the look-up after a router; `turns`: of the seat's stage; `slots`: by layer; `chunked`: whether chunks of
    a prompt pass in turns."""
    assert router.layer is not None, "a router of a block"
    first = seat.ops(router.layer, ROUTER)[1]
    last = seat.ops(router.layer, EXPERT_PRODUCTS[-1])[1]
    mode, sequences = phase_pass.slotted[router.layer], phase_pass.plan.workload.batch
    values = RouterValues.of(turns, seat.stage, router.layer)
    assert values is not None, "a stage with a router"
    ops, own = range(first, last), slots[router.layer]
    return SlotStep(own, seat, ops, mode, sequences, chunk, chunked, turns, values)


@dataclass(frozen=True)
class SlotTransfer:
    """A task of a pass that brings an operation's matrices to slots: its number, the first of its two stamps, and the
    operation's place among the layer's; `awaited`: whether stages wait for what comes."""

    task: int
    stamp: int
    slots: LayerSlots
    operation: int
    awaited: bool


class SlotTransfers:
    """The tasks of a pass that bring experts to slots: how long and how much is known once it has run."""

    def __init__(self, transfers: Sequence[SlotTransfer]) -> None:
        self._transfers = transfers
        self._moved: list[Mapping[int, int]] = []

    def record(self, stamps: NDArray[np.float64]) -> None:
        """Fill the stamps of the latest pass, and keep the bytes that it moved. What comes behind a pass has the moment
        of its look-up."""
        moved = dict[int, int]()
        for transfer in self._transfers:
            table, at = transfer.slots.table, slice(transfer.stamp, transfer.stamp + 2)
            came = transfer.awaited and table.copied
            stamps[at] = table.spans()[transfer.operation] if came else transfer.slots.looked_up
            moved[transfer.task] = table.moved(transfer.operation)
        self._moved.append(moved)

    def take(self, moved: NDArray[np.int64]) -> None:
        """Set the bytes (passes, tasks) of recorded passes."""
        for row, tasks in enumerate(self._moved):
            for task, size in tasks.items():
                moved[row, task] = size
        self._moved = []
