"""An engine that computes nothing: tokens follow from the prompt, at a given speed, with faults on demand."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from threading import Condition, Thread

from helmsman.schemas.errors import HardwareUnavailableError
from helmsman.service.inference.generation import Ended, EngineCapacity, Job, Load, OnEnd, OnToken, SubmittedJob

ROOM = EngineCapacity(context=4096, homes={"gpu": 4096, "cpu": 4096}, block=16, sequences=8)


def tokens_of(job: Job, vocab: int) -> list[int]:
    """What an engine makes of a job that nothing ends early."""
    state, found = sum(job.prompt) + job.seed % 997, []
    for _ in range(job.max_tokens):
        state = (state * 1103515245 + 12345) % 2**31
        found.append(state // 65536 % vocab)
    return found


@dataclass
class Task:
    """A job under way."""

    job: Job
    on_token: OnToken
    on_end: OnEnd
    left: deque[int]
    made: int = 0
    tokens: list[int] = field(default_factory=list)


class VirtualEngine:
    """`step_s`: seconds of an iteration, in which every running job gets a token; `script`: the tokens of a job;
    `sleep`: what passes those seconds. Of every prompt all whole blocks are said to be cached."""

    def __init__(
        self,
        capacity: EngineCapacity = ROOM,
        step_s: float = 0.001,
        vocab: int = 256,
        script: Callable[[Job], list[int]] | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.capacity = capacity
        self._sleep, self._step_s, self._script = sleep, step_s, script or (lambda job: tokens_of(job, vocab))
        self._wake, self._closing, self._broken = Condition(), False, False
        self._waiting: dict[int, Task] = {}
        self._running: dict[int, Task] = {}
        self._ids = count()
        self._fault: str | None = None
        self._looked_up = self._reused = 0
        self.cancelled: list[int] = []
        self.checks = 0
        self._thread = Thread(target=self._work)
        self._thread.start()

    @property
    def fault(self) -> str | None:
        return self._fault

    def submit(self, job: Job, on_token: OnToken, on_end: OnEnd) -> SubmittedJob:
        with self._wake:
            if self._fault is not None:
                raise HardwareUnavailableError(f"nothing is served: {self._fault}")
            handle = next(self._ids)
            self._waiting[handle] = Task(job, on_token, on_end, deque(self._script(job)))
            self._wake.notify()
        cached = len(job.prompt) // self.capacity.block * self.capacity.block
        self._looked_up, self._reused = self._looked_up + len(job.prompt), self._reused + cached
        return SubmittedJob(partial(self._cancel, handle), lambda: cached)

    def _cancel(self, handle: int) -> None:
        with self._wake:
            task = self._waiting.pop(handle, None) or self._running.pop(handle, None)
        if task is not None:
            self.cancelled.append(handle)
            task.on_end("cancelled")

    def load(self) -> Load:
        with self._wake:
            held = sum(len(task.job.prompt) + task.made for task in self._running.values())
            share, counts = held / self.capacity.kv_tokens, (0, self._looked_up, self._reused)
            return Load(len(self._running), len(self._waiting), share, *counts)

    def break_down(self) -> None:
        """The next iteration fails, and canaries do until `repair`."""
        with self._wake:
            self._broken = True
            self._wake.notify()

    def repair(self) -> None:
        self._broken = False

    def check(self) -> None:
        self.checks += 1
        if self._broken:
            raise HardwareUnavailableError("the canary's tokens are not those it had")
        self._fault = None

    def close(self) -> None:
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._closing or self._running or self._waiting or self._unseen)
                if self._closing:
                    return
                while self._waiting and len(self._running) < self.capacity.sequences:
                    handle = next(iter(self._waiting))
                    self._running[handle] = self._waiting.pop(handle)
                tasks = dict(self._running)
            self._sleep(self._step_s)
            if self._unseen:
                self._fail()
                continue
            for handle, task in tasks.items():
                self._advance(handle, task)

    @property
    def _unseen(self) -> bool:
        return self._broken and self._fault is None

    def _advance(self, handle: int, task: Task) -> None:
        early = task.made < task.job.min_tokens
        while (token := task.left.popleft()) in task.job.barred and early:
            continue
        task.made += 1
        ends = token in task.job.ends
        with self._wake:
            if handle not in self._running:
                return
            ended: Ended | None = "stop" if ends else None if task.left else "length"
            if ended:
                del self._running[handle]
        task.on_token(token)
        if ended:
            task.on_end(ended)

    def _fail(self) -> None:
        with self._wake:
            self._fault = "a pass failed"
            tasks = [*self._running.values(), *self._waiting.values()]
            self._running, self._waiting = {}, {}
        for task in tasks:
            task.on_end("failed")
