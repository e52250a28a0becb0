"""An Iteration: which sequences advance by how many tokens; a value that both runners execute."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from helmsman.schemas.workload import Workload

Phase = Literal["prefill", "decode"]
PHASES: tuple[Phase, ...] = ("prefill", "decode")


@dataclass(frozen=True, slots=True)
class Iteration:
    """One pass over the model: `batch` sequences advance by `tokens` each; afterwards they hold `context`.

    `batches`: as many batches go through the pass together, layer by layer (zig-zag)."""

    index: int
    phase: Phase
    batch: int
    tokens: int
    context: int
    batches: int = 1

    @property
    def past(self) -> int:
        """Tokens already in the cache before this pass."""
        return self.context - self.tokens


def prefill(workload: Workload, batches: int = 1) -> Iteration:
    """The pass over the prompt, but for what is known of it, which also yields the first token (HELM-57)."""
    return Iteration(0, "prefill", workload.batch, workload.new_tokens, workload.prompt_tokens, batches)


def decode(workload: Workload, step: int, batches: int = 1) -> Iteration:
    """Decode step `step` (1 is the first after prefill)."""
    return Iteration(step, "decode", workload.batch, 1, workload.prompt_tokens + step, batches)


def single_stream(workload: Workload, batches: int = 1) -> Iterator[Iteration]:
    """Prefill and every decode step of `batches` batches together, in order (HELM-56: strictly sequential)."""
    yield prefill(workload, batches)
    for step in range(1, workload.decode_steps + 1):
        yield decode(workload, step, batches)
