"""An engine that computes no attention, but keeps its caches as the real one does: blocks, copies, shared prefixes.

A row's content follows from all tokens up to it, so whoever reads another's block, or one that was written since, is
found out at once."""

from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import cast

import numpy as np

from helmsman.executor.serving.active_request import ActiveRequest
from helmsman.executor.serving.batches import Batches
from helmsman.executor.serving.cache import BlockCache, LayerRows, Pieces
from helmsman.executor.serving.engine import ServingEngine
from helmsman.executor.serving.homes import Homes
from helmsman.executor.serving.request import RequestOptions
from helmsman.executor.serving.runner import IterationSeconds, StepResult
from helmsman.executor.serving.seating import Seating
from helmsman.executor.serving.state_slots import StateMoves, StateSlots
from helmsman.scheduler.decision import Home, SchedulingDecision
from helmsman.scheduler.limits import Limits

NO_SECONDS = IterationSeconds(0, (0, 0), 0, 0, 0, 0, 0, 0, 0, 0)
VOCABULARY = 50
_ROW = 8

Clock = Callable[[SchedulingDecision, StepResult], IterationSeconds]
"""What a pass is said to have taken."""


def real_seconds(_: SchedulingDecision, stepped: StepResult) -> IterationSeconds:
    """What was measured."""
    return stepped.seconds


def virtual_seconds(decision: SchedulingDecision, _: StepResult) -> IterationSeconds:
    """By what was decided alone: a pass of 1 ms and 20 us for each row; each row of the host 50 us there and 5 us on
    the link."""
    on_cpu = len(decision.decode0_cpu) + len(decision.decode1_cpu)
    rows = sum(chunk.tokens for chunk in decision.prefill) + len(decision.decode0_gpu) + on_cpu
    linear, host, link = 1e-3 + 20e-6 * rows, 50e-6 * on_cpu, 5e-6 * on_cpu
    waits = host + link if decision.kind == "simple" else 0.0
    return IterationSeconds(linear + waits, (linear, 0.0), 0.0, 0.0, host, link / 2, link / 2, 0.0, 0.0, 0.0)


class VirtualTime:
    """A `Runner`: an engine whose passes take virtual seconds, and find landed what cohorts had under way. `now`: the
    clock that goes with them."""

    def __init__(self, engine: ServingEngine) -> None:
        self._engine, self._now = engine, 0.0
        self.check_options, self.add, self.release, self.reset = (
            engine.check_options,
            engine.add,
            engine.release,
            engine.reset,
        )

    def now(self) -> float:
        """Seconds of all passes so far."""
        return self._now

    def step(self, decision: SchedulingDecision) -> StepResult:
        stepped = self._engine.step(decision)
        landed(self._engine)
        seconds = virtual_seconds(decision, stepped)
        self._now += seconds.total
        return StepResult(stepped.tokens, stepped.on_cpu, seconds)


def landed(engine: ServingEngine) -> None:
    """Wait for the host's work for cohorts: then the next pass joins all of them, however fast the host is."""
    if engine._deferred is not None:
        engine._deferred.wait()


def content(tokens: Sequence[int]) -> list[int]:
    """Of the row of each token."""
    found, state = [], 1
    for token in tokens:
        state = (state * 1_000_003 + token) % (2**61 - 1)
        found.append(state)
    return found


class VirtualEngine:
    """A `Runner`. `memory`: by home, keys and values of every row; `states`: by home, of what requests have cached."""

    def __init__(self, limits: Limits) -> None:
        rows = {"gpu": limits.gpu_tokens, "cpu": limits.cpu_tokens, "passing": limits.gpu_tokens + limits.cpu_tokens}
        caches = {home: BlockCache(None, (LayerRows(1, _ROW),), count) for home, count in rows.items()}
        counts = {"gpu": limits.sequences + limits.snapshots, "cpu": limits.sequences}
        self.states = {home: np.zeros(count, np.int64) for home, count in counts.items()}
        slots = partial(StateSlots, limits.sequences, limits.snapshots, limits.sequences)
        store = SimpleNamespace(slots=slots) if limits.states else None
        self.homes = Homes(cast(Seating, SimpleNamespace(**caches, states=store)), limits.block, None)
        self.memory = {home: np.zeros((2, count), np.int64) for home, count in rows.items()}
        self.running: dict[int, ActiveRequest] = {}

    def check_options(self, options: RequestOptions) -> None:
        """All are taken."""

    def add(self, request: int, options: RequestOptions, hashes: Sequence[int] = ()) -> None:
        self.running[request] = ActiveRequest.of(request, options, hashes)

    def release(self, request: int) -> None:
        self.homes.free(self.running.pop(request))

    def reset(self) -> None:
        for request in list(self.running):
            self.release(request)
        self.homes.forget_prefixes()

    def check_integrity(self) -> None:
        self.homes.check_integrity(self.running.values())

    @property
    def free(self) -> tuple[int, ...]:
        """Blocks that can be had in either cache."""
        return tuple(total - used for used, total in self.homes.occupancy.values())

    def step(self, decision: SchedulingDecision) -> StepResult:
        self.homes.begin()
        batches = Batches(self.homes, self.running, None)
        batches.fill(decision)
        self._copy("gpu", "cpu", batches.swap_out)
        self._copy("cpu", "gpu", batches.swap_in)
        moves = StateMoves() if self.homes.states is None else self.homes.states.moves
        self._move("cpu", "gpu", moves.out)
        self._move("gpu", "cpu", moves.back)
        self._move("gpu", "gpu", moves.restored)
        for running, tokens in batches.advances:
            self._append(running, tokens)
        self._move("gpu", "gpu", moves.kept)
        batches.advance()
        tokens = {}
        for request in (*batches.rows[0].yields, *batches.rows[1].yields):
            running = self.running[request]
            tokens[request] = content(running.tokens)[-1] % VOCABULARY
            running.tokens.append(tokens[request])
        return StepResult(tokens, batches.on_cpu, NO_SECONDS)

    def _copy(self, source: Home, target: Home, pieces: Pieces) -> None:
        here, there = self.memory[source].reshape(-1), self.memory[target].reshape(-1)
        for to, begin, size in pieces:
            there[to // _ROW : (to + size) // _ROW] = here[begin // _ROW : (begin + size) // _ROW]

    def _move(self, target: Home, source: Home, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy states, all at once."""
        rows = np.array(pairs, np.int64).reshape(-1, 2)
        self.states[target][rows[:, 0]] = self.states[source][rows[:, 1]].copy()

    def _append(self, running: ActiveRequest, tokens: int) -> None:
        """What is cached is its own; what is not yet is written."""
        total = running.cached + tokens
        runs = self.homes.pools[running.home].runs(running.table, total)
        rows = np.concatenate([np.arange(row, row + count) for _, count, row in runs])
        memory, expected = self.memory[running.home], content(running.tokens[:total])
        assert (memory[:, rows[: running.cached]] == expected[: running.cached]).all(), "what it reads is its own"
        memory[:, rows[running.cached :]] = expected[running.cached :]
        if self.homes.states is not None:
            states, row = self.states["gpu"], self.homes.slot(running)
            assert not running.cached or states[row] == expected[running.cached - 1], "its state is its own"
            states[row] = expected[-1]
