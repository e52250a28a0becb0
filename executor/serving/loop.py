"""The loop: a thread that owns an engine and a scheduler, and serves what other threads submit."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from threading import Condition, Thread

from helmsman.executor.routing.slots import NO_EXPERTS, PassCounts
from helmsman.executor.serving.canary import Canary
from helmsman.executor.serving.request import Handle, OnEnd, OnToken, Reason, RequestOptions
from helmsman.executor.serving.runner import PassSums, Runner, Schedules, StepResult
from helmsman.scheduler.decision import SchedulingDecision
from helmsman.schemas.errors import HardwareUnavailableError

Command = Callable[[], None]
Hashes = Callable[[Sequence[int]], Sequence[int]]
"""Of a prompt's full blocks, from its tokens."""


@dataclass(frozen=True, slots=True)
class State:
    """Of a moment: requests that have been scheduled or not, passes so far, requests that lost their blocks so far;
    tokens of the prompts that have begun and were looked for in the cache, and of those the ones that were there;
    seconds of all passes as they are priced, and as they took, in the order of `PARTS`; what slots for experts did so
    far."""

    healthy: bool
    running: int
    waiting: int
    iterations: int
    preemptions: int
    looked_up: int
    reused: int
    priced: PassSums
    took: PassSums
    experts: PassCounts


class ServingLoop:
    """Requests in, tokens out. All methods may be called from any thread, callbacks come from the loop's own.

    After a pass that failed nothing is served until `check` has seen the canary give the tokens it gave when the loop
    was made. `hashes`: with it, prompts that begin alike share their first blocks. `clock`: seconds, of all stamps and
    of what the scheduler is told that passes take."""

    def __init__(
        self,
        engine: Runner,
        scheduler: Schedules,
        canary: Canary | None = None,
        hashes: Hashes | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Runs the canary once. Raises what its pass raises."""
        self._engine, self._scheduler = engine, scheduler
        self._hashes, self._clock = hashes, clock
        self._canary = canary or Canary()
        self._expected = self._canary.run(engine)
        self._commands: deque[Command] = deque()
        self._wake = Condition()
        self._ids = count()
        self._requests: dict[int, Handle] = {}
        self._fault: str | None = None
        self._closing = False
        self._iterations = self._preemptions = self._looked_up = self._reused = 0
        self._pass_sums, self._experts = scheduler.pass_sums, NO_EXPERTS
        self._thread = Thread(target=self._work, name="helm-serving", daemon=True)
        self._thread.start()

    def submit(self, options: RequestOptions, on_token: OnToken, on_end: OnEnd) -> Handle:
        """A request that waits its turn. Raises UsageError or BadInputError for one that can never run,
        HardwareUnavailableError when the device is at fault or the loop closed."""
        self._engine.check_options(options)
        self._expect_open()
        hashes = () if self._hashes is None else self._hashes(options.prompt)
        handle = Handle(next(self._ids), options, on_token, on_end, self._clock(), hashes)
        if not self._post(partial(self._add, handle)):
            self._expect_open()
        return handle

    def cancel(self, handle: Handle) -> None:
        """End a request after the pass under way; nothing happens if it has ended."""
        self._post(partial(self._end_early, handle, "cancelled"))

    def check(self) -> bool:
        """Whether requests are served; after a fault the canary is run first."""
        done: Future[bool] = Future()
        return self._post(partial(self._check, done)) and done.result()

    @property
    def state(self) -> State:
        """Return the state it is in now."""
        handles = list(self._requests.values())
        running = sum(handle.started_s is not None for handle in handles)
        waiting = len(handles) - running
        counts = self._iterations, self._preemptions, self._looked_up, self._reused
        return State(self._fault is None, running, waiting, *counts, *self._pass_sums, self._experts)

    def close(self) -> None:
        """Cancel everything and end the thread after the pass under way."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join()

    def _expect_open(self) -> None:
        reason = "the server is closing" if self._closing else self._fault
        if reason is not None:
            remedy = "try again once the server says that it is healthy"
            raise HardwareUnavailableError(f"nothing is served: {reason}", field="request", remedy=remedy)

    def _post(self, command: Command) -> bool:
        """Whether the loop will do it: one that closes takes no more."""
        with self._wake:
            if not self._closing:
                self._commands.append(command)
            self._wake.notify()
            return not self._closing

    def _work(self) -> None:
        worked = True
        while self._take_commands(wait=not worked):
            worked = self._fault is None and self._iterate()
        for handle in list(self._requests.values()):
            self._end_early(handle, "cancelled")

    def _take_commands(self, *, wait: bool) -> bool:
        """Do what was posted; False when the loop closes."""
        with self._wake:
            if wait:
                self._wake.wait_for(lambda: self._closing or self._commands)
            commands, self._commands, closing = self._commands, deque(), self._closing
        for command in commands:
            command()
        return not closing

    def _add(self, handle: Handle) -> None:
        if self._fault is not None:
            self._tell(handle, "failed", self._fault)
            return
        options = handle.options
        try:
            self._engine.add(handle.id, options, handle.hashes)
        except Exception as error:  # no memory for what it asks, say: this request alone
            self._tell(handle, "refused", _words(error))
            return
        try:
            self._scheduler.add(handle.id, len(options.prompt), options.max_tokens, options.priority, handle.hashes)
        except Exception as error:  # refused
            self._engine.release(handle.id)
            self._tell(handle, "refused", _words(error))
            return
        self._requests[handle.id] = handle

    def _iterate(self) -> bool:
        """One iteration; False when there is nothing to do."""
        start = self._clock()
        try:
            decision = self._scheduler.decide()
            if decision is None:
                return False
            self._note(decision, start)
            stepped = self._engine.step(decision)
            ended = {
                request: reason for request in stepped.tokens if (reason := self._deliver(request, stepped)) is not None
            }
            seconds = stepped.seconds
            self._scheduler.observe(seconds.accelerator, seconds.cpu_attention, seconds.link)
            self._scheduler.commit(self._clock() - start, list(ended), list(stepped.tokens))
            self._pass_sums = self._scheduler.pass_sums
            self._experts = self._experts.plus(stepped.experts)
        except Exception as error:
            self._fail(_words(error))
            return True
        self._iterations += 1
        for request, reason in ended.items():
            self._forget(self._requests[request], reason)
        return True

    def _note(self, decision: SchedulingDecision, now: float) -> None:
        """Who begins, and who begins again."""
        for chunk in decision.prefill:
            handle = self._requests[chunk.id]
            if handle.started_s is None:
                handle.started_s, handle.reused_tokens = now, chunk.past
                self._looked_up += 0 if self._hashes is None else len(handle.options.prompt)
                self._reused += chunk.past
        for request in decision.preempted:
            self._requests[request].preemptions += 1
        self._preemptions += len(decision.preempted)

    def _deliver(self, request: int, stepped: StepResult) -> Reason | None:
        """Hand on a request's token; why it ends with it, if it does."""
        handle, token = self._requests[request], stepped.tokens[request]
        if not handle.tokens:
            handle.first_token_s = self._clock()
        handle.tokens.append(token)
        handle.cpu_tokens += request in stepped.on_cpu
        try:
            handle.on_token(token)
        except (
            Exception
        ):  # a callback is its caller's: whatever it raises ends that request, and is no fault of the device
            return "cancelled"
        return (
            "stop"
            if token in handle.options.ends
            else "length"
            if len(handle.tokens) >= handle.options.max_tokens
            else None
        )

    def _end_early(self, handle: Handle, reason: Reason) -> None:
        if handle.id in self._requests:
            self._scheduler.cancel(handle.id)
            self._forget(handle, reason)

    def _forget(self, handle: Handle, reason: Reason) -> None:
        del self._requests[handle.id]
        self._engine.release(handle.id)
        self._tell(handle, reason)

    def _fail(self, fault: str) -> None:
        """A pass failed: every request has, and nothing is served until the canary has passed."""
        self._fault = fault
        self._engine.reset()
        self._scheduler.reset()
        failed, self._requests = self._requests, {}
        for handle in failed.values():
            self._tell(handle, "failed", fault)

    def _check(self, done: "Future[bool]") -> None:
        if self._fault is not None:
            try:
                passed = self._canary.run(self._engine) == self._expected
                self._fault = None if passed else "the canary's tokens are not those it had"
            except Exception as error:
                self._engine.reset()
                self._fault = _words(error)
        done.set_result(self._fault is None)

    def _tell(self, handle: Handle, reason: Reason, error: str | None = None) -> None:
        with suppress(Exception):  # a callback is its caller's, and nobody is left to tell
            handle.on_end(handle.ended(reason, self._clock(), error))


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
