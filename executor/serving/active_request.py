"""A request on the engine: its tokens, what of them is cached, and in which blocks."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from helmsman.executor.serving.blocks import BlockTable
from helmsman.executor.serving.request import RequestOptions
from helmsman.executor.text.sampling import Logits, Sampler
from helmsman.scheduler.decision import Home


@dataclass(eq=False, slots=True)
class ActiveRequest:
    """`tokens`: the prompt and what has been made, of which the first `cached` are in `table`, at `home`; `hashes`: of
    the prompt's full blocks, where these may be shared; `slot`: of its states, where mixers keep some."""

    id: int
    options: RequestOptions
    tokens: list[int]
    sampler: Sampler
    hashes: Sequence[int] = ()
    home: Home = "gpu"
    cached: int = 0
    table: BlockTable = field(default_factory=BlockTable)
    slot: int | None = None

    @classmethod
    def of(cls, request: int, options: RequestOptions, hashes: Sequence[int]) -> "ActiveRequest":
        """One that has not begun."""
        sampler = Sampler(options.sampling, (options.seed,), options.prompt)
        return cls(request, options, list(options.prompt), sampler, hashes)

    @property
    def native(self) -> bool:
        """Whether the stage chooses its tokens."""
        return self.options.sampling.native

    def take(self, likeliest: int, logits: Logits) -> int:
        """Its next token; `logits` are looked at only if it is drawn, or the likeliest comes too early."""
        early = len(self.tokens) < len(self.options.prompt) + self.options.min_tokens
        barred = self.options.barred if early else frozenset[int]()
        token = likeliest if self.native and likeliest not in barred else self.sampler.choose(logits, barred)
        self.tokens.append(token)
        return token
