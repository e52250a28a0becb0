"""The past tokens that attention keeps and reads: workload variants of decode steps (PARK-66, 70)."""

from typing import Annotated, Literal

from pydantic import Field

from helmsman.schemas.base import Fraction, Frozen

Share = Annotated[float, Field(ge=0.0, le=1.0)]


class CacheUse(Frozen):
    """How much of a cache decode steps read, and what it holds. Plain: keys and values of every past token.

    `keep`: share of the past tokens that is brought and attended to; all stay stored. `select`: share of the head
    dimension (of the keys) that is read for all of them to choose those (InfiniGen); 0: they are known, such as recent
    tokens and heavy hitters (H2O). `holds` activations: a layer's normed input instead of keys and values, read by
    reordered operations: K projects the query before attention, V projects what comes out of it (ASC)."""

    keep: Fraction = 1.0
    select: Share = 0.0
    holds: Literal["kv", "activations"] = "kv"

    @property
    def plain(self) -> bool:
        """Whether attention reads keys and values of every past token."""
        return self == PLAIN

    @property
    def label(self) -> str:
        """Return one word for people and for names of sources: `kv 0.2 by 0.3`, `activations`."""
        kept = f" {self.keep:.4g}" if self.keep < 1 else ""
        chosen = f" by {self.select:.4g}" if self.select > 0 else ""
        return f"{self.holds}{kept}{chosen}"


PLAIN = CacheUse()

PARTIAL = 0.3
"""Share of the head dimension that chooses tokens when nothing else is said: of the order of InfiniGen's partial
weights (assumed; the paper that combines it does not name one)."""
