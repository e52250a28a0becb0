"""The executor's serving loop as the service's generator."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from helmsman.executor.serving.loop import ServingLoop
from helmsman.executor.serving.request import Asked
from helmsman.executor.serving.request import Ended as LoopEnd
from helmsman.schemas.errors import HardwareUnavailableError
from helmsman.service.generation import Capacity, Job, Load, OnEnd, OnToken, Submitted


@dataclass(slots=True)
class _Following:
    """A job's tokens as they come: hands each on, and says where it ends.

    The loop would end it at its model's end-of-sequence tokens; which end this job, and from which token on, is the
    job's own (`stop_token_ids`, `min_tokens`)."""

    job: Job
    on_token: OnToken
    made: int = 0

    def __call__(self, token: int) -> bool:
        self.made += 1
        self.on_token(token)
        return token in self.job.ends and self.made > self.job.min_tokens


@dataclass
class LoopGenerator:
    """A `Generator` over a `ServingLoop`. `kv_share`: asks for the share of keys and values in use; `release`: frees
    what the loop has used, once it has ended."""

    loop: ServingLoop
    capacity: Capacity
    kv_share: Callable[[], float]
    release: Callable[[], None] = lambda: None

    @property
    def fault(self) -> str | None:
        """What is wrong with a device; None while nothing is."""
        return None if self.loop.state.healthy else "a pass failed"

    def submit(self, job: Job, on_token: OnToken, on_end: OnEnd) -> Submitted:
        """Queue a job. Raises UsageError, BadInputError or HardwareUnavailableError where it cannot be taken."""
        asked = Asked(job.prompt, job.max_tokens, job.sampling, job.seed, job.priority, ignore_eos=True)

        def ended(end: LoopEnd) -> None:
            on_end(end.reason)

        handle = self.loop.submit(asked, _Following(job, on_token), ended)
        return Submitted(partial(self.loop.cancel, handle), lambda: handle.reused_tokens)

    def load(self) -> Load:
        """What the loop is doing."""
        state = self.loop.state
        counts = state.preemptions, state.looked_up, state.reused
        return Load(state.running, state.waiting, self.kv_share(), *counts)

    def check(self) -> None:
        """Let the canary fly. Raises HardwareUnavailableError where it does not return."""
        if not self.loop.check():
            raise HardwareUnavailableError("the canary did not pass")

    def close(self) -> None:
        """End all jobs and the loop's thread, and release what it used."""
        self.loop.close()
        self.release()
