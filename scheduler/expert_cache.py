"""ExpertCache: which experts of a layer are in slots of an accelerator's memory, pass after pass.

The executor keeps one for every layer with slots, and curves of hits are counted by the same rules: all experts that
the tokens of a pass choose are looked up when it begins, and are the most recently used after it, in ascending order.
So what slots hold after a pass does not depend on the order in which hits are computed and misses come."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple


class CachePass(NamedTuple):
    """Holds what slots do in a pass, all ascending: experts that are there (`hits`) and that are not (`misses`); those
    of the misses that have a slot after it (`entering`), and experts that have none any more (`leaving`).

    With the most popular experts pinned none enters and none leaves."""

    hits: tuple[int, ...]
    misses: tuple[int, ...]
    entering: tuple[int, ...]
    leaving: tuple[int, ...]


@dataclass
class ExpertCache:
    """The experts in `slots` slots, least recently used first; `pinned`: they stay whatever tokens choose.

    A cache without pinned experts begins empty."""

    slots: int
    pinned: bool = False
    experts: list[int] = field(default_factory=list)

    @classmethod
    def of_popular(cls, experts: Iterable[int]) -> "ExpertCache":
        """Return the cache that always holds these experts."""
        kept = sorted(experts)
        return cls(len(kept), True, kept)

    def use(self, chosen: Iterable[int]) -> CachePass:
        """Look up the experts of a pass and let those enter that stay after it. Modifies the cache."""
        wanted = sorted(set(chosen))
        here = set(self.experts)
        hits = tuple(expert for expert in wanted if expert in here)
        misses = tuple(expert for expert in wanted if expert not in here)
        if self.pinned:
            return CachePass(hits, misses, (), ())
        used = set(wanted)
        after = [*(expert for expert in self.experts if expert not in used), *wanted][-self.slots :]
        kept = set(after)
        self.experts = after
        entering = tuple(expert for expert in misses if expert in kept)
        return CachePass(hits, misses, entering, tuple(sorted(here - kept)))

    def check(self) -> None:
        """Raise AssertionError where the cache contradicts itself."""
        assert len(set(self.experts)) == len(self.experts) <= self.slots
