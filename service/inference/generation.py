"""The interface that the service needs of what generates tokens: submit, cancel, load, faults, a canary."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from helmsman.executor.text.sampling import GREEDY, Sampling

Ended = Literal["stop", "length", "cancelled", "refused", "failed"]
"""Why no more tokens come: an end-of-sequence token (which came, as the last), as many as were asked for, a
cancellation, no room for this one, or a fault of the engine."""
OnToken = Callable[[int], None]
OnEnd = Callable[[Ended], None]


@dataclass(frozen=True, slots=True)
class SubmittedJob:
    """A job that was taken; both may be called from any thread. `cancel`: ends it soon, as cancelled; what has ended
    already is left alone. `cached`: tokens of its prompt that were cached when it began, 0 until then."""

    cancel: Callable[[], None]
    cached: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Job:
    """One sequence to generate: at most `max_tokens` after `prompt`, up to and with one of `ends`.

    None of the first `min_tokens` is one of those `barred`, which those that end it are. Smaller `priority` first."""

    prompt: tuple[int, ...]
    max_tokens: int
    sampling: Sampling = GREEDY
    seed: int = 0
    min_tokens: int = 0
    ends: frozenset[int] = frozenset()
    barred: frozenset[int] = frozenset()
    priority: int = 0

    @property
    def most_tokens(self) -> int:
        """Return tokens that its keys and values may grow to."""
        return len(self.prompt) + self.max_tokens


@dataclass(frozen=True, slots=True)
class EngineCapacity:
    """The room of an engine: tokens of one sequence (`context`), of keys and values by home (`homes`: gpu, cpu;
    a sequence is in one of them) in blocks of `block`, and `sequences` that run at once."""

    context: int
    homes: Mapping[str, int]
    block: int
    sequences: int

    @property
    def home_tokens(self) -> int:
        """Return tokens of the largest home."""
        return max(self.homes.values())

    @property
    def kv_tokens(self) -> int:
        """Return tokens of all homes."""
        return sum(self.homes.values())

    def blocks(self, tokens: int) -> int:
        """Return tokens that so many take up, in whole blocks."""
        return -(-tokens // self.block) * self.block


@dataclass(frozen=True, slots=True)
class Load:
    """An engine now: requests that run and that wait, the share of keys and values in use, preemptions so far; tokens
    of prompts that were looked for in the cache so far, and those of them that were there. `passes`: by part of a pass,
    seconds of all passes so far as they are priced, and as they took. `experts`: what slots for experts did so far:
    hits, misses, bytes fetched, evictions; nothing where there are none."""

    running: int
    waiting: int
    kv_share: float
    preemptions: int
    looked_up: int
    reused: int
    passes: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    experts: Mapping[str, int] = field(default_factory=dict)


class Generator(Protocol):
    """Generates tokens for many requests at once, on threads of its own.

    `on_token` and `on_end` are called from those threads and return at once; after `on_end` neither is called again."""

    @property
    def capacity(self) -> EngineCapacity:
        """Return what it can hold."""
        ...

    @property
    def fault(self) -> str | None:
        """Return what is wrong with a device; None while nothing is."""
        ...

    def submit(self, job: Job, on_token: OnToken, on_end: OnEnd) -> SubmittedJob:
        """Queue a job. Raises HelmError where it cannot be taken, HardwareUnavailableError for a fault."""
        ...

    def load(self) -> Load:
        """Return what it is doing."""
        ...

    def check(self) -> None:
        """Generate something known, a canary, and compare: a fault is over where that passes.

        Raises HelmError where it does not. Called while no job is running; it may take seconds."""
        ...

    def close(self) -> None:
        """End all jobs and release the devices."""
        ...
