"""Counts of what slots for experts did in a run, layer by layer and pass by pass."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from helmsman.schemas.base import Bytes, Frozen, Index, mistake

MAX_PASSES = 1_000_000
"""Passes of a run that are counted at most: a Trace has fewer."""

Counts = Annotated[tuple[Index, ...], Field(max_length=MAX_PASSES)]
"""A number for every pass."""


class ExpertCacheCounts(Frozen):
    """Counts the experts that tokens of a pass chose in block `layer` of run `run`, pass by pass of `iterations`.

    `hits`: distinct experts that were in slots when the pass began; `misses`: the others; `fetched`: bytes of experts
    that came into slots; `evictions`: experts that left slots for them."""

    run: Index
    layer: Index
    iterations: Counts
    hits: Counts
    misses: Counts
    fetched: Annotated[tuple[Bytes, ...], Field(max_length=MAX_PASSES)]
    evictions: Counts

    @model_validator(mode="after")
    def _alike(self) -> Self:
        for name in ("hits", "misses", "fetched", "evictions"):
            if len(getattr(self, name)) != len(self.iterations):
                raise mistake("not one number for every pass", f"write {len(self.iterations)}", name)
        return self

    @property
    def hit_rate(self) -> float:
        """Return the share of chosen experts that were in slots; 0 where none was chosen."""
        chosen = sum(self.hits) + sum(self.misses)
        return sum(self.hits) / chosen if chosen else 0.0
