"""The serving engine: executes decisions, pass by pass, over requests whose keys and values are in blocks."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from helmsman.executor.cache.depth import fill
from helmsman.executor.devices.iterations import Lanes, LayerCopies, ServingPass, SubBatch
from helmsman.executor.devices.opening import Devices
from helmsman.executor.homes.storage import open_storage
from helmsman.executor.passes.expert_check import check_slots_run
from helmsman.executor.passes.model_check import check_native
from helmsman.executor.passes.phase_pass import passes_of
from helmsman.executor.passes.plan_check import check_executed, check_passes
from helmsman.executor.programs.loading import open_store
from helmsman.executor.routing.slots import NO_EXPERTS
from helmsman.executor.serving.active_request import ActiveRequest
from helmsman.executor.serving.batches import Batches
from helmsman.executor.serving.cache import BlockCache, Pieces, as_array
from helmsman.executor.serving.homes import Homes
from helmsman.executor.serving.host_cohorts import HostCohorts
from helmsman.executor.serving.places import expert_engines, open_places, open_serving_lanes, places_of
from helmsman.executor.serving.request import RequestOptions
from helmsman.executor.serving.runner import IterationSeconds, StepResult
from helmsman.executor.serving.seating import Seating, seat
from helmsman.executor.serving.state_slots import StateMoves
from helmsman.executor.serving.state_store import StateSeconds
from helmsman.executor.system.machine import Machine
from helmsman.executor.text.prompt import check_context, check_request
from helmsman.planner.serving.served_rules import served_plan
from helmsman.scheduler.decision import Home, SchedulingDecision
from helmsman.scheduler.limits import HostOrder, Limits
from helmsman.schemas.errors import UsageError
from helmsman.schemas.expert_cache import ExpertCacheCounts
from helmsman.schemas.plan import Plan


class ServingEngine:
    """Runs decisions on one plan and one checkpoint. Made by `load`; a context manager that frees its memory.

    Everything is allocated when it is loaded. Not for several threads at a time."""

    def __init__(self, plan: Plan, devices: Devices, lanes: Lanes, seating: Seating, limits: Limits) -> None:
        self.plan, self.limits = plan, limits
        self.devices = devices
        self._lanes, self._seating = lanes, seating
        self._pinned = devices.accelerators.pin(seating.shared)
        self._deferred = HostCohorts(seating.cohorts) if seating.cohorts else None
        self._homes = Homes(seating, limits.block, self._deferred)
        self._running: dict[int, ActiveRequest] = {}

    @classmethod
    def load(cls, plan: Plan, checkpoint: Path, machine: Machine, limits: Limits, order: HostOrder = "last") -> Self:
        """Open the plan's device, and the host beside it if `limits` have a cache there. `order`: which cohorts it
        attends to first.

        Raises HardwareUnavailableError, InfeasibleError (a memory is too small), BadInputError (the checkpoint),
        UsageError (a plan that does not serve)."""
        plan = served_plan(plan)
        check_native(plan.model)
        check_executed(plan)
        check_slots_run(plan)
        check_context(plan)
        passes = passes_of(plan)
        check_passes(passes)
        places = places_of(plan, passes)
        devices = open_places(plan, places, machine)
        store = open_store(plan, devices, open_storage(plan, ()), checkpoint, lambda _: None)
        host = None if places.host is None else devices.by_name[places.host]
        engines = expert_engines(devices, places)
        seating = seat(plan, passes[1], devices.by_name[places.accelerator], host, store, limits, order, engines)
        return cls(plan, devices, open_serving_lanes(devices, places), seating, limits)

    @property
    def occupancy(self) -> dict[str, tuple[int, int]]:
        """By home, blocks in use and blocks there are."""
        return self._homes.occupancy

    @property
    def expert_cache(self) -> tuple[ExpertCacheCounts, ...]:
        """By layer with slots for experts, what these did in the latest passes."""
        return () if self._seating.slots is None else self._seating.slots.counts

    def check_options(self, options: RequestOptions) -> None:
        """Raise UsageError or BadInputError for a request that can never run."""
        check_request(options.prompt, options.max_tokens, self.plan)
        blocks = self.limits.blocks(len(options.prompt) + options.max_tokens)
        room = max(pool.total for pool in self._homes.pools.values())
        if blocks > room:
            remedy = f"ask for {room * self.limits.block} tokens at most, prompt and output"
            raise UsageError(
                "the request has room in no cache", field="max_tokens", value=options.max_tokens, remedy=remedy
            )

    def add(self, request: int, options: RequestOptions, hashes: Sequence[int] = ()) -> None:
        """A request that decisions may name from now on; `hashes`: of its prompt's full blocks, if these are shared."""
        assert request not in self._running, "requests have numbers of their own"
        states = self._seating.states
        shares = states is None or states.snapshots > 0  # a state is that of the last token, not of a prefix
        self._running[request] = ActiveRequest.of(request, options, hashes if shares else ())

    def assume(self, homes: Mapping[int, Home]) -> None:
        """From now on as if all but the last token of requests' prompts were cached, at these homes; keys and values of
        all requests are noise. For measuring at depths that prompts would take minutes to reach.

        Raises UsageError where the host does not write caches."""
        if self.devices.accelerators.devices:
            remedy = "measure with prompts of that length"
            raise UsageError("these caches need a prompt to fill them", field="homes", value=len(homes), remedy=remedy)
        fill(cache.buffer for cache in self._homes.caches.values())
        for request, home in homes.items():
            running = self._running[request]
            running.home = home
            self._homes.place(running, len(running.tokens) - 1)
            running.cached = len(running.tokens) - 1

    def release(self, request: int) -> None:
        """Forget a request, and free its blocks."""
        self._homes.free(self._running.pop(request))

    def step(self, decision: SchedulingDecision) -> StepResult:
        """Run one iteration. Raises what a device raised, or InfeasibleError for a decision that has no room; then only
        `reset` may follow."""
        start = time.monotonic()
        self._homes.begin()
        batches = Batches(self._homes, self._running, self._deferred)
        batches.fill(decision)
        if self._seating.slots is not None:
            self._seating.slots.begin()
        states, seconds = self._seating.states, StateSeconds()
        moves = StateMoves() if self._homes.states is None else self._homes.states.moves
        if states is not None:
            states.before(self._lanes, moves, seconds)
        done = self._seating.driver.begin(
            self._lanes,
            self.plan.model.layers,
            [batch for b in (0, 1) if (batch := self._batch(b, batches)) is not None],
            self._copies("gpu", "cpu", batches.swap_out),
            self._copies("cpu", "gpu", batches.swap_in),
            _copies(self._seating.cpu, self._seating.passing, batches.fetch),
            _copies(self._seating.passing, self._seating.cpu, batches.store),
            [joining.native for joining in batches.joining],
        )
        kept = None if states is None else states.behind(self._lanes, moves, seconds)
        done.wait()
        if kept is not None:
            kept.wait()
        return self._stepped(batches, done, start, seconds)

    def reset(self) -> None:
        """Forget all requests and what is cached, whatever happened to them."""
        for queue in self._lanes[:2]:
            with suppress(Exception):  # what failed is why this is called
                if queue is not None:
                    queue.synchronize()
        if self._deferred is not None:
            self._deferred.clear()
        if self._seating.slots is not None:
            self._seating.slots.reset()
        for request in list(self._running):
            self.release(request)
        self._homes.forget_prefixes()
        self._homes.begin()

    def check_integrity(self) -> None:
        """Raise AssertionError unless every block has one owner, or those who share it, and what is cached a place."""
        self._homes.check_integrity(self._running.values())

    def close(self) -> None:
        """Free the devices' threads and memory; the engine cannot be used afterwards."""
        if self._pinned is not None:
            self._pinned.release()
        del self._lanes, self._seating, self._homes, self._deferred, self._pinned, self.devices

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _batch(self, number: int, batches: Batches) -> SubBatch | None:
        """None for a second sub-batch without rows."""
        rows, apart = batches.rows[number], batches.apart[number]
        joins = [joining for joining in batches.joining if joining.batch == number]
        if number > 0 and not rows and not joins:
            return None
        tokens = joins[0].joint if joins else rows
        attends = bool(apart or (joins and number))
        assert not attends or self._seating.hosts, "a host that attends"
        host = self._seating.hosts[number] if attends else None
        stage = self._seating.stages[number]
        return stage, rows.ragged(), tokens.tokens(), host, apart.ragged() if apart else None

    def _copies(self, source: str, target: str, pieces: Pieces) -> LayerCopies | None:
        caches = {"gpu": self._seating.gpu, "cpu": self._seating.cpu}
        return _copies(caches[source], caches[target], pieces)

    def _stepped(self, batches: Batches, done: ServingPass, start: float, states: StateSeconds) -> StepResult:
        batches.advance()
        rows = list(batches.rows)
        for joining, joined in zip(batches.joining, done.joined, strict=True):
            ended = self._deferred.after(joining) if joined and self._deferred is not None else []
            rows[joining.batch] = joining.joint if ended else rows[joining.batch]
            for member in ended:
                member.cached += 1
                batches.on_cpu.add(member.id)
        made = self._tokens([*rows[0].yields, *rows[1].yields], done)
        slots, taken = self._seating.slots, done.seconds()
        counts = NO_EXPERTS
        if slots is not None:
            counts = slots.end()
            taken["weights"] += slots.seconds()
            crossed = slots.crossed()
            taken["to_host"] += crossed.to_host
            taken["to_device"] += crossed.to_device
        seconds = IterationSeconds(time.monotonic() - start, **taken).with_states(states.copied, *states.moved)
        return StepResult(made, batches.on_cpu, seconds, counts)

    def _tokens(self, requests: Sequence[int], done: ServingPass) -> dict[int, int]:
        """The next tokens of everybody whose logits the pass has made, in that order."""
        logits = np.asarray(self._seating.stages[0].logits())[: len(requests)]
        choices = zip(requests, done.chosen() if requests else (), logits, strict=True)
        return {request: self._running[request].take(token, row) for request, token, row in choices}


def _copies(source: BlockCache | None, target: BlockCache | None, pieces: Pieces) -> LayerCopies | None:
    if not pieces or source is None or target is None:
        return None
    return source.side, target.side, as_array(pieces)
