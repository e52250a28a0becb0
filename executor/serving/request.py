"""A request as the loop serves it: its options, the tokens it has, and how it ended."""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from typing import Literal

from helmsman.executor.text.sampling import GREEDY, Sampling

OnToken = Callable[[int], None]
"""Given every token in order, by the loop's thread. It must not block."""
Status = Literal["finished", "cancelled", "failed"]
Reason = Literal["stop", "length", "cancelled", "refused", "failed"]
"""Refused: this request alone, for which there is no room, say; failed: with all others, by a fault of a device."""


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """`seed`: of sampling; `priority`: smaller first; `ends`: tokens that end it; `barred`: those that are none of the
    first `min_tokens`, however likely they are."""

    prompt: Sequence[int]
    max_tokens: int
    sampling: Sampling = GREEDY
    seed: int = 0
    priority: int = 0
    ends: Set[int] = frozenset()
    min_tokens: int = 0
    barred: Set[int] = frozenset()


@dataclass(frozen=True, slots=True)
class RequestEnd:
    """The end of a request: how, and when it arrived, started, had its first token and finished, in seconds of
    CLOCK_MONOTONIC; None for what it never reached.

    `produced`: tokens that came; `cpu_tokens`: those whose attention ran on the host; `reused_tokens`: of the prompt,
    those that were cached when it began; `error`: of one that failed or was refused."""

    status: Status
    reason: Reason
    arrival_s: float
    started_s: float | None
    first_token_s: float | None
    finish_s: float
    prompt_tokens: int
    produced: int
    cpu_tokens: int
    preemptions: int
    reused_tokens: int
    error: str | None = None


OnEnd = Callable[[RequestEnd], None]
"""Told once, by the loop's thread, after the last token. It must not block."""


@dataclass(eq=False, slots=True)
class Handle:
    """A request that was submitted; compares by identity. What changes is the loop's. `hashes`: of its prompt's full
    blocks, if these are shared."""

    id: int
    options: RequestOptions
    on_token: OnToken
    on_end: OnEnd
    arrival_s: float
    hashes: Sequence[int] = ()
    started_s: float | None = None
    first_token_s: float | None = None
    tokens: list[int] = field(default_factory=list)
    cpu_tokens: int = 0
    preemptions: int = 0
    reused_tokens: int = 0

    def ended(self, reason: Reason, finish_s: float, error: str | None = None) -> RequestEnd:
        """Its end."""
        status: Status = (
            "finished" if reason in ("stop", "length") else "cancelled" if reason == "cancelled" else "failed"
        )
        times = (self.arrival_s, self.started_s, self.first_token_s, finish_s)
        counts = (len(self.options.prompt), len(self.tokens), self.cpu_tokens, self.preemptions, self.reused_tokens)
        return RequestEnd(status, reason, *times, *counts, error)
