"""Windows of the accelerator's caches in layer splits: how large they may be, and what a pass with them costs."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil

from helmsman.lowering.graph import Task, TaskGraph
from helmsman.lowering.layer_cache import cache_of
from helmsman.lowering.paging import window_of
from helmsman.lowering.placement import Placement
from helmsman.planner.memory.cache_bytes import page_bytes
from helmsman.planner.memory.usage import memory_use, shortages
from helmsman.schemas.blocks.attention import LatentAttention
from helmsman.schemas.blocks.block import Block
from helmsman.schemas.model import Model
from helmsman.schemas.page_cache import PageCache
from helmsman.schemas.plan import Schedule

LEAST_STAGED = 2
"""Pages that arrive at once, at least: one comes while the other is read."""

_PRICED = (4, 8)
"""Blocks on the accelerator with which a pass is priced; each further one adds what those of their difference add."""


def suits_windows(model: Model) -> bool:
    """Whether layers all attend to every token before, through caches of keys and values that are alike, and are of one
    kind but for the first few: pages then come alike for each."""
    caches = {cache_of(model, layer) for layer in range(model.layers)}
    alike = len(caches) == 1 and all(cache is not None and cache.reach is None and not cache.pools for cache in caches)
    return alike and len(set(model.pattern[_PRICED[0] :])) <= 1 and not any(map(_selects, model.layouts))


def _selects(layout: Block) -> bool:
    """Whether attention of a block reads some of the tokens alone."""
    return any(isinstance(body.op, LatentAttention) and body.op.indexer is not None for body in layout.bodies)


@dataclass(frozen=True, slots=True)
class Window:
    """The window that is asked for: one of `tokens`, None: as large as the accelerator's memory allows.

    `staged`: buffers in which pages arrive, None: as many as keep the link busy."""

    tokens: int | None = None
    page_tokens: int = 512
    watermark: float = 0.8
    staged: int | None = None

    @property
    def least(self) -> int:
        """Tokens of the smallest window with these pages: room for one below the watermark, and for one more."""
        return self.page_tokens * max(2, ceil(1 / self.watermark - 1e-9))

    def most(self, context: int) -> int:
        """Tokens of the smallest window that no page of `context` tokens ever leaves."""
        return max(self.least, self.page_tokens * ceil(context / self.watermark / self.page_tokens))


def with_window(placement: Placement, memory: str, window: Window) -> Placement:
    """`placement`, whose last rule keeps the accelerator's caches elsewhere, with a window of them in `memory`; fewer
    pages arrive at once where there is no room for more."""
    staged = window.staged or LEAST_STAGED

    def sized(tokens: int) -> Placement:
        return _windowed(placement, memory, replace(window, staged=staged), tokens)

    tokens = window.tokens or window.least
    while staged > LEAST_STAGED and memory in shortages(memory_use(sized(tokens))):
        staged -= 1
    if window.tokens is None:
        tokens = _largest(sized(tokens), memory, window)
        while tokens > window.least and memory in shortages(memory_use(sized(tokens))):
            tokens -= window.page_tokens  # longer passes over prompts took the room of a page
    return sized(tokens)


def extrapolated(blocks: int, seconds: Callable[[int], float]) -> float:
    """Seconds of a pass with so many blocks on the accelerator, from those of a few: pages come alike for each."""
    few, more = _PRICED
    if blocks <= more:
        return seconds(blocks)
    least = seconds(few)
    return least + (blocks - few) * (seconds(more) - least) / (more - few)


def staged_pages(graph: TaskGraph, seconds: Callable[[Task], float]) -> int:
    """Buffers for pages that keep the link busy while a block does all but attend: as many pages as come meanwhile, and
    two. `graph`: a pass of two blocks or more."""
    inside = [task for task in graph.tasks if task.layer == 1]
    pages = [task for task in inside if task.kind == "transfer" and task.payload == "cache page"]
    if not pages:
        return LEAST_STAGED
    busy = sum(seconds(task) for task in inside if task.kind != "transfer" and task.op != "attention")
    return LEAST_STAGED + min(len(pages), ceil(busy / max(seconds(pages[0]), 1e-9)))


def _largest(least: Placement, memory: str, window: Window) -> int:
    """Tokens of the largest window, at most as many as are of use, given a placement with the `least`."""
    use = next(use for use in memory_use(least) if use.memory == memory)
    layers = [layer for layer in range(least.model.layers) if window_of(least, layer) is not None]
    page = sum(page_bytes(least, layer, window.page_tokens) for layer in layers)
    pages = max(0, use.available - use.used) // page if page else 0
    return min(window.least + pages * window.page_tokens, window.most(least.workload.context))


def _windowed(placement: Placement, memory: str, window: Window, tokens: int) -> Placement:
    cache = PageCache(
        memory=memory,
        page_tokens=window.page_tokens,
        window_tokens=tokens,
        watermark=window.watermark,
        staged_pages=window.staged or LEAST_STAGED,
    )
    *others, last = placement.kv
    rules = (*others, last.model_copy(update={"cache": cache}))
    return replace(placement, kv=rules, schedule=Schedule(overlap="next-layer", prefetch=1))
