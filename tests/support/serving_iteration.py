"""A ServingIteration: what each sub-batch of an online pass advances, where its keys and values are, what is swapped.

A value that policies decide on, and that simulator and executor carry out; it knows no request by name."""

from dataclasses import dataclass
from typing import Literal

from helmsman.scheduler.iteration import Phase

Home = Literal["gpu", "cpu"]
"""In which of the two caches a request's keys and values are, all of them (NEO-02)."""

Overlap = Literal["none", "two-sub-batches", "deferred"]
"""none: one batch; attention on the host is waited for (NEO-03). two-sub-batches: linear stages of one beside host
attention of the other (NEO-05). deferred: host attention of one layer beside the whole pass (APEX-13)."""

SUB_BATCHES: dict[Overlap, int] = {"none": 1, "two-sub-batches": 2, "deferred": 1}


@dataclass(frozen=True, slots=True)
class PromptChunk:
    """`tokens` of a prompt on top of `past`; their keys and values stay in the accelerator's cache, or leave for the
    host's layer by layer (NEO-07). `ends`: the prompt ends here, so the pass yields its first token."""

    tokens: int
    past: int = 0
    home: Home = "gpu"
    ends: bool = True

    @property
    def pairs(self) -> int:
        """Return positions that its tokens attend to, added up."""
        return self.tokens * self.past + self.tokens * (self.tokens + 1) // 2

    @property
    def context(self) -> int:
        """Return tokens in the cache after the pass."""
        return self.past + self.tokens


@dataclass(frozen=True, slots=True)
class SubBatch:
    """Sequences that go through the linear stages together: prompt chunks, and by cache the contexts of decodes, KV
    tokens that each reads, its own new one included."""

    prompts: tuple[PromptChunk, ...] = ()
    gpu: tuple[int, ...] = ()
    cpu: tuple[int, ...] = ()

    @property
    def phase(self) -> Phase:
        """`prefill` where any prompt takes part."""
        return "prefill" if self.prompts else "decode"

    @property
    def tokens(self) -> int:
        """Return rows of its linear stages."""
        return sum(chunk.tokens for chunk in self.prompts) + len(self.gpu) + len(self.cpu)

    @property
    def outputs(self) -> int:
        """Sequences that yield a token."""
        return sum(chunk.ends for chunk in self.prompts) + len(self.gpu) + len(self.cpu)

    @property
    def leaving(self) -> int:
        """Prompt tokens whose keys and values leave for the host's cache."""
        return sum(chunk.tokens for chunk in self.prompts if chunk.home == "cpu")

    @property
    def returning(self) -> int:
        """Return tokens before them, which left with earlier chunks: they come to be attended to, and stay at the
        host."""
        return sum(chunk.past for chunk in self.prompts if chunk.home == "cpu")


@dataclass(frozen=True, slots=True)
class Cohort:
    """Requests whose attention the host does a layer at a time, and how far they are (APEX-18, E-APEX-11).

    In a deferred pass they take part in one linear stage: post-projection and FFN of block `layer` - 1, whose attention
    the host finished before, and pre-projection of block `layer`, whose attention it then starts. So 0 begins a token,
    and as many as there are blocks ends it. In a pass of two sub-batches they go through that stage and all that follow
    with the second one, which ends their token (APEX-26). `contexts` as in SubBatch."""

    layer: int
    contexts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ServingIteration:
    """One online pass. Prompts and decodes with attention on the accelerator are in the first sub-batch (NEO-05, 08).

    `swap_out`, `swap_in`: KV tokens of whole requests that change cache (NEO-45). `cohorts`: who joins on the way, each
    at a layer of its own, if the host is ready: the accelerator does not wait (APEX-17, APEX-40).
    Raises ValueError for what no pass can be."""

    index: int
    overlap: Overlap
    batches: tuple[SubBatch, ...]
    swap_out: int = 0
    swap_in: int = 0
    cohorts: tuple[Cohort, ...] = ()

    def __post_init__(self) -> None:
        if len(self.batches) != SUB_BATCHES[self.overlap]:
            raise ValueError(f"{self.overlap}: {SUB_BATCHES[self.overlap]} sub-batches, not {len(self.batches)}")
        if not all(batch.tokens for batch in self.batches[: 1 if self.cohorts else 2]):
            raise ValueError("a sub-batch without tokens")
        if any(batch.prompts or batch.gpu for batch in self.batches[1:]):
            raise ValueError("the second sub-batch has its attention on the host")
        if self.overlap == "deferred" and self.batches[0].cpu:
            raise ValueError("deferred: requests of the host's cache are cohorts")
        if self.cohorts and (self.overlap == "none" or not all(cohort.contexts for cohort in self.cohorts)):
            raise ValueError("a cohort of at least one request joins a deferred pass or the second sub-batch")
        if len({cohort.layer for cohort in self.cohorts}) < len(self.cohorts):
            raise ValueError("two cohorts at one layer")

    @property
    def phase(self) -> Phase:
        """`prefill` where any prompt takes part."""
        return self.batches[0].phase

    @property
    def context(self) -> int:
        """KV tokens of the longest sequence."""
        decodes = [size for batch in self.batches for size in (*batch.gpu, *batch.cpu)]
        joined = [size for cohort in self.cohorts for size in cohort.contexts]
        return max((*decodes, *joined, *(chunk.context for chunk in self.batches[0].prompts)))

    def joining(self, stage: int) -> tuple[int, ...]:
        """Return the contexts of those who take part in linear stage `stage` beside the sub-batches."""
        stays = self.overlap == "two-sub-batches"
        here = [cohort for cohort in self.cohorts if cohort.layer == stage or (stays and cohort.layer < stage)]
        return tuple(size for cohort in here for size in cohort.contexts)

    @property
    def outputs(self) -> int:
        """Sequences of the sub-batches that yield a token."""
        return sum(batch.outputs for batch in self.batches)
