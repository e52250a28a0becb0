"""Caches of which a device holds a window: how their pages move, and in which passes prompts go through."""

from dataclasses import dataclass

from helmsman.lowering.buffers import chunk_of
from helmsman.lowering.placement import Placed, batches_together
from helmsman.lowering.rules import Rules, kv_rule
from helmsman.scheduler.iteration import Iteration, decode, prompt_passes, single_stream
from helmsman.scheduler.pages import Paging
from helmsman.schemas.page_cache import PageCache
from helmsman.schemas.workload import Workload


def window_of(rules: Rules, layer: int) -> PageCache | None:
    """Return the window of a block's cache; None where all of it is in one place. Only whole caches have one."""
    return kv_rule(rules, layer).cache


def windows(placed: Placed) -> tuple[PageCache, ...]:
    """Return every different window of a placement."""
    result = dict.fromkeys(rule.cache for rule in placed.kv if rule.cache is not None)
    return tuple(result)


def paging_of(cache: PageCache) -> Paging:
    """How the pages of a window move."""
    return Paging(cache.page_tokens, cache.window_tokens, cache.high)


def home_tokens(cache: PageCache | None, context: int) -> int:
    """Return positions of a sequence for which there is room where a cache lives: whole pages of what has a window."""
    return context if cache is None else -(-context // cache.page_tokens) * cache.page_tokens


def most_tokens(placed: Placed) -> int | None:
    """Return tokens of each sequence that one pass over a prompt may take; None: all, as nothing has to leave meanwhile
    and the plan takes them together."""
    stated = placed.schedule.pass_tokens
    limits = [] if stated is None or stated >= placed.workload.new_tokens else [stated]
    rooms = [paging_of(cache).most_new for cache in windows(placed)]
    limits += [chunk_of(placed), *rooms] if rooms else []
    return min(limits, default=None)


@dataclass(frozen=True)
class Passes:
    """The passes of a request under a plan: those over its prompt, then decode steps 1, 2, ..."""

    workload: Workload
    batches: int
    most: int | None
    prompt: tuple[Iteration, ...]

    @property
    def all(self) -> tuple[Iteration, ...]:
        """Return every pass, in order; `index` counts them."""
        return tuple(single_stream(self.workload, self.batches, self.most))

    def step(self, number: int) -> Iteration:
        """Decode step `number`."""
        return decode(self.workload, number, self.batches, len(self.prompt))

    def at(self, index: int) -> Iteration:
        """Return the pass that is `index` in order."""
        return self.prompt[index] if index < len(self.prompt) else self.step(index - len(self.prompt) + 1)


def passes_of(placed: Placed, workload: Workload | None = None) -> Passes:
    """Return the passes of `workload`, by default the plan's own."""
    workload, batches, most = workload or placed.workload, batches_together(placed), most_tokens(placed)
    return Passes(workload, batches, most, prompt_passes(workload, batches, most))
