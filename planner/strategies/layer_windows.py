"""Windows of the accelerator's caches in layer splits: how large they may be, and what a pass with them costs."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil

from helmsman.lowering.paging import window_of
from helmsman.lowering.placement import Placement
from helmsman.planner.cache_bytes import page_bytes
from helmsman.planner.memory import memory_use, shortages
from helmsman.schemas.page_cache import PageCache
from helmsman.schemas.plan import Schedule

_PRICED = (2, 4)
"""Blocks on the accelerator with which a pass is priced; each further one adds what those of their difference add."""


@dataclass(frozen=True, slots=True)
class Window:
    """What is asked for: a window of `tokens`, None: as large as the accelerator's memory allows."""

    tokens: int | None = None
    page_tokens: int = 512
    watermark: float = 0.8

    @property
    def least(self) -> int:
        """Tokens of the smallest window with these pages: room for one below the watermark, and for one more."""
        return self.page_tokens * max(2, ceil(1 / self.watermark - 1e-9))

    def most(self, context: int) -> int:
        """Tokens of the smallest window that no page of `context` tokens ever leaves."""
        return max(self.least, self.page_tokens * ceil(context / self.watermark / self.page_tokens))


def with_window(placement: Placement, memory: str, window: Window) -> Placement:
    """`placement`, whose last rule keeps the accelerator's caches elsewhere, with a window of them in `memory`."""
    if window.tokens is not None:
        return _windowed(placement, memory, window, window.tokens)
    tokens = _largest(placement, memory, window)
    found = _windowed(placement, memory, window, tokens)
    while tokens > window.least and memory in shortages(memory_use(found)):
        tokens -= window.page_tokens  # longer passes over prompts took the room of a page
        found = _windowed(placement, memory, window, tokens)
    return found


def extrapolated(blocks: int, seconds: Callable[[int], float]) -> float:
    """Seconds of a pass with so many blocks on the accelerator, from those of a few: pages come alike for each."""
    few, more = _PRICED
    if blocks <= more:
        return seconds(blocks)
    least = seconds(few)
    return least + (blocks - few) * (seconds(more) - least) / (more - few)


def _largest(placement: Placement, memory: str, window: Window) -> int:
    least = _windowed(placement, memory, window, window.least)
    use = next(use for use in memory_use(least) if use.memory == memory)
    layers = [layer for layer in range(placement.model.layers) if _has_window(least, layer)]
    page = sum(page_bytes(least, layer, window.page_tokens) for layer in layers)
    pages = max(0, use.available - use.used) // page if page else 0
    return min(window.least + pages * window.page_tokens, window.most(placement.workload.context))


def _windowed(placement: Placement, memory: str, window: Window, tokens: int) -> Placement:
    cache = PageCache(memory=memory, page_tokens=window.page_tokens, window_tokens=tokens, watermark=window.watermark)
    *others, last = placement.kv
    rules = (*others, last.model_copy(update={"cache": cache}))
    return replace(placement, kv=rules, schedule=Schedule(overlap="next-layer", prefetch=1))


def _has_window(placement: Placement, layer: int) -> bool:
    return window_of(placement, layer) is not None
