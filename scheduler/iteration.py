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

    `batches`: as many batches go through the pass together, layer by layer (zig-zag); `outputs`: of how many of its
    last tokens every sequence has logits."""

    index: int
    phase: Phase
    batch: int
    tokens: int
    context: int
    batches: int = 1
    outputs: int = 1

    @property
    def past(self) -> int:
        """Return tokens already in the cache before this pass."""
        return self.context - self.tokens

    @property
    def chosen(self) -> int:
        """Return for how many tokens of a batch there are logits, and a choice of what follows."""
        return self.batch * self.outputs


def prefill(workload: Workload, batches: int = 1) -> Iteration:
    """Return the pass over the prompt, but for what is known of it, which also yields the first token (HELM-57)."""
    return Iteration(0, "prefill", workload.batch, workload.new_tokens, workload.prompt_tokens, batches)


def prompt_passes(workload: Workload, batches: int = 1, most: int | None = None) -> tuple[Iteration, ...]:
    """Return the passes over the prompt: one, or as many as `most` tokens at a time take, each on top of those
    before."""
    if most is None:
        return (prefill(workload, batches),)
    known, prompt = workload.prefix_tokens, workload.prompt_tokens
    ends = [*range(known + most, prompt, most), prompt]
    starts = [known, *ends]
    return tuple(
        Iteration(number, "prefill", workload.batch, end - start, end, batches)
        for number, (start, end) in enumerate(zip(starts, ends, strict=False))
    )


def decode(workload: Workload, step: int, batches: int = 1, prompt: int = 1) -> Iteration:
    """Decode step `step` (1 is the first after the `prompt` passes over the prompt)."""
    context = workload.prompt_tokens + step
    return Iteration(prompt - 1 + step, "decode", workload.batch, 1, context, batches)


def verification(batch: int, drafts: int, context: int) -> Iteration:
    """Return the decode step that verifies `drafts` tokens of every sequence after the one before, all with logits;
    `context`: what a step without them would leave cached."""
    rows = 1 + drafts
    return Iteration(1, "decode", batch, rows, context + drafts, outputs=rows)


def single_stream(workload: Workload, batches: int = 1, most: int | None = None) -> Iterator[Iteration]:
    """Prompt passes and every decode step of `batches` batches together, in order (HELM-56: strictly sequential)."""
    passes = prompt_passes(workload, batches, most)
    yield from passes
    for step in range(1, workload.decode_steps + 1):
        yield decode(workload, step, batches, len(passes))
