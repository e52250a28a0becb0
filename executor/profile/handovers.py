"""The cost of work that crosses from one device to the other, beside the bytes: a task, a copy, a hand-over, a join, a
look-up of which side computes an expert.

The executor's own queues, events and copy engines do it, with operations of the synthetic stage on both devices: what
is measured is what runs do, whatever their insides are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from helmsman.executor._kernels import Buffer, CopyEngine, Event, Pool, Queue, Stage
from helmsman.executor.devices.memory import arena_beside
from helmsman.executor.profile.look_ups import SlotLookUps
from helmsman.executor.profile.samples import HandoverSamples
from helmsman.executor.profile.settings import Loopback
from helmsman.executor.profile.synthetic_stage import MODEL, synthetic_stage

BYTES = 4096
"""Of a copy: the hidden states of one token, about. Its latency is all that counts."""
LARGE = 1 << 20
"""Of one that takes as long as weights do: what its engine does to a processor, it does again and again."""
ROUNDS = 25
CACHED = "0.k"
"""An operation whose matrix of 2 MB stays in a cache."""
WARM = 3
"""How often it is done before."""
PASSED_BY = {BYTES: 8, LARGE: 60}
"""How many of it take longer than a copy."""
LONG = ("gate", "up", "down")
"""Operations of which one is done while a copy passes: matrices of 9 MB, ten times as long as a copy."""


@dataclass
class _Side:
    """A device with a queue: its CPUs' threads run operations of a stage of its own."""

    name: str
    queue: Queue
    stage: Stage
    turn: int = 0

    def long(self) -> int:
        """The next long operation: other weights each time, so that none is in the cache."""
        self.turn += 1
        op = f"{self.turn // len(LONG) % MODEL.layers}.{LONG[self.turn % len(LONG)]}"
        return self.stage.ops.index(op)

    def finish(self) -> Event:
        """Submit a last operation; what happens after it. A run waits for such an event too, and for nothing before."""
        last = Event()
        self.run(self.stage.ops.index("0.norm1"), done=last)
        return last

    def run(self, op: int, wait: Sequence[Event] = (), done: Event | None = None) -> memoryview:
        """Submit one operation; where its start and end will be."""
        stamps = np.zeros(2).data
        self.queue.run(self.stage, None, None, 1, 1, stamps, op, op + 1, wait=wait, done=done)
        return stamps


def measure_handovers(
    ends: Sequence[tuple[str, Pool, int]], engines: Mapping[str, CopyEngine], link: Loopback
) -> HandoverSamples:
    """`ends`: of host and accelerator the name, the threads, and the CPU of the queue (-1: none); `engines` of the
    link's directions, first the one to the accelerator."""
    sides = [_Side(name, Queue(cpu), synthetic_stage(pool)) for name, pool, cpu in ends]
    handover_samples = HandoverSamples(nominal=link.latency + BYTES / link.link)
    buffers = _buffers()
    look_ups = SlotLookUps(next(iter(engines.values())))
    for _ in range(ROUNDS):
        for side in sides:
            _follow(side, handover_samples)
            _look_up(side, look_ups, handover_samples)
        for (name, engine), (giver, taker) in zip(engines.items(), (sides, sides[::-1]), strict=True):
            _cross(name, engine, buffers, giver, taker, handover_samples)
            for side in sides:
                for size in (BYTES, LARGE):
                    _pass_by(name, engine, buffers, side, size, handover_samples)
    return handover_samples


def _follow(side: _Side, handover_samples: HandoverSamples) -> None:
    """Operations that follow each other, submitted one by one; the last one also waits for what has happened."""
    go, happened = Event(), Event()
    happened.signal()
    first, second = side.run(side.long(), [go]), side.run(side.long())
    third = side.run(side.long(), [happened, go])
    last = side.finish()
    go.signal()
    last.wait()
    handover_samples.task.setdefault(side.name, []).append(second[0] - first[1])
    handover_samples.join.setdefault(side.name, []).append(third[0] - second[1])


def _look_up(side: _Side, look_ups: SlotLookUps, handover_samples: HandoverSamples) -> None:
    """A look-up follows an operation of the side whose routers choose."""
    go = Event()
    before, times = side.run(side.long(), [go]), look_ups.submit(side.queue)
    last = side.finish()
    go.signal()
    last.wait()
    look_ups.settle()
    handover_samples.look_up.setdefault(side.name, []).append(times[1] - before[1])


def _cross(
    name: str,
    engine: CopyEngine,
    buffers: tuple[Buffer, Buffer],
    giver: _Side,
    taker: _Side,
    handover_samples: HandoverSamples,
) -> None:
    """An operation's result goes over the link, and the other device, which has nothing else to do, takes it up."""
    go, made, moved = Event(), Event(), Event()
    times = np.zeros(2).data
    norm = taker.stage.ops.index("0.norm1")
    first = giver.run(giver.long(), [go], made)
    engine.submit(buffers[0], 0, buffers[1], 0, BYTES, [made], moved, times)
    then = taker.run(norm, [moved])
    last = taker.finish()
    go.signal()
    last.wait()
    handover_samples.copy.setdefault(name, []).append(times[1] - first[1])
    handover_samples.handover.setdefault(name, []).append(then[0] - times[1])


def _pass_by(
    name: str,
    engine: CopyEngine,
    buffers: tuple[Buffer, Buffer],
    side: _Side,
    size: int,
    handover_samples: HandoverSamples,
) -> None:
    """A device goes on working while a copy passes, and while none does: on one matrix that stays in its cache, since
    what memory does differs by more than a copy takes. What was first the last time is second now."""
    spent, moved = {False: 0.0, True: 0.0}, 0.0
    op = side.stage.ops.index(CACHED)
    side.turn += 1
    for copies in (False, True) if side.turn % 2 else (True, False):
        go, made, end = Event(), Event(), Event()
        times = np.zeros(2).data
        side.run(op, [go])
        for _ in range(WARM):
            side.run(op)
        first = side.run(op, done=made)
        if copies:
            engine.submit(buffers[0], 0, buffers[1], 0, size, [made], end, times)
        for _ in range(PASSED_BY[size]):
            last = side.run(op)
        done = side.finish()
        go.signal()
        done.wait()
        if copies:
            end.wait()
            moved = times[1] - first[1]
        spent[copies] = last[1] - first[1]
    handover_samples.taken.setdefault((name, side.name, size), []).append((spent[True] - spent[False], moved))
    if size == BYTES:
        handover_samples.beside.setdefault(name, []).append(moved)


def _buffers() -> tuple[Buffer, Buffer]:
    arena = arena_beside(3 * LARGE)
    return arena.alloc(LARGE, "profile"), arena.alloc(LARGE, "profile")
