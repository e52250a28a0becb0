"""The executor's serving loop as the service's generator."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from helmsman.executor.serving.loop import ServingLoop
from helmsman.executor.serving.request import RequestEnd as LoopEnd
from helmsman.executor.serving.request import RequestOptions
from helmsman.schemas.errors import HardwareUnavailableError
from helmsman.schemas.served_table import PASS_PARTS
from helmsman.service.inference.generation import EngineCapacity, Job, Load, OnEnd, OnToken, SubmittedJob


@dataclass
class LoopGenerator:
    """A `Generator` over a `ServingLoop`. `kv_share`: asks for the share of keys and values in use; `release`: frees
    what the loop has used, once it has ended."""

    loop: ServingLoop
    capacity: EngineCapacity
    kv_share: Callable[[], float]
    release: Callable[[], None] = lambda: None

    @property
    def fault(self) -> str | None:
        """Return what is wrong with a device; None while nothing is."""
        return None if self.loop.state.healthy else "a pass failed"

    def submit(self, job: Job, on_token: OnToken, on_end: OnEnd) -> SubmittedJob:
        """Queue a job. Raises UsageError, BadInputError or HardwareUnavailableError where it cannot be taken."""
        choosing = job.sampling, job.seed, job.priority, job.ends, job.min_tokens, job.barred

        def ended(end: LoopEnd) -> None:
            on_end(end.reason)

        handle = self.loop.submit(RequestOptions(job.prompt, job.max_tokens, *choosing), on_token, ended)
        return SubmittedJob(partial(self.loop.cancel, handle), lambda: handle.reused_tokens)

    def load(self) -> Load:
        """Return what the loop is doing."""
        state = self.loop.state
        counts = state.preemptions, state.looked_up, state.reused
        passes = dict(zip(PASS_PARTS, zip(state.priced, state.took, strict=True), strict=True))
        experts = state.experts._asdict() if state.experts.hits + state.experts.misses else {}
        return Load(state.running, state.waiting, self.kv_share(), *counts, passes, experts)

    def check(self) -> None:
        """Let the canary fly. Raises HardwareUnavailableError where it does not return."""
        if not self.loop.check():
            raise HardwareUnavailableError("the canary did not pass")

    def close(self) -> None:
        """End all jobs and the loop's thread, and release what it used."""
        self.loop.close()
        self.release()
