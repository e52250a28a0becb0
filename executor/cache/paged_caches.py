"""Rooms for pages of keys and values: at home, in a window, and where pages arrive, all laid out alike."""

from collections.abc import Mapping
from dataclasses import dataclass

from helmsman.executor._kernels import Event
from helmsman.executor.devices.base import DeviceMemory
from helmsman.executor.devices.parts import Buffer, CopyEngine, KvSpan
from helmsman.lowering.layer_cache import cache_of
from helmsman.lowering.paging import home_tokens, window_of
from helmsman.lowering.rules import kv_rule
from helmsman.scheduler.pages import Run
from helmsman.schemas.formats import rows_size
from helmsman.schemas.page_cache import PageCache
from helmsman.schemas.plan import Plan


@dataclass(frozen=True, slots=True)
class PagedBuffers:
    """Keys, then values, (batch, KV heads, `tokens`, head dimension) each; a head's token is a row of `row` bytes."""

    buffer: Buffer
    batch: int
    heads: int
    tokens: int
    row: int

    @property
    def keys(self) -> Buffer:
        """The first half."""
        return self.buffer.part(0, self.buffer.size // 2)

    @property
    def values(self) -> Buffer:
        """The second half."""
        half = self.buffer.size // 2
        return self.buffer.part(half, half)

    @property
    def strides(self) -> tuple[int, int]:
        """Bytes from sequence to sequence, over keys and values alike, and from head to head."""
        return self.heads * self.tokens * self.row, self.tokens * self.row

    def span(self, row: int, position: int, count: int) -> KvSpan:
        """Return the span that attention reads: positions from `position` on, in rows from `row` on."""
        half, at = self.buffer.size // 2, row * self.row
        return (self.buffer, at, self.buffer, half + at, *self.strides, position, count)


@dataclass(frozen=True, slots=True)
class PagedBlock:
    """The cache of a block with a window: `ring` in it, `home` elsewhere."""

    ring: PagedBuffers
    home: PagedBuffers


@dataclass(frozen=True)
class PagedCaches:
    """The caches with a window in one memory. `arriving`: where pages come, in turns."""

    cache: PageCache
    home: str
    blocks: Mapping[int, PagedBlock]
    arriving: tuple[PagedBuffers, ...]


def allocate_paged(plan: Plan, memories: Mapping[str, DeviceMemory]) -> dict[str, PagedCaches]:
    """By memory of a window, the caches that have one there."""
    layers: dict[str, list[int]] = {}
    for layer in range(plan.model.layers):
        cache = window_of(plan, layer)
        if cache is not None:
            layers.setdefault(cache.memory, []).append(layer)
    return {memory: _allocated(plan, memories, layer) for memory, layer in layers.items()}


def _allocated(plan: Plan, memories: Mapping[str, DeviceMemory], layers: list[int]) -> PagedCaches:
    cache, rule = window_of(plan, layers[0]), kv_rule(plan, layers[0])
    assert cache is not None
    shape, here, away = cache_of(plan.model, layers[0]), memories[cache.memory], memories[rule.memory]
    assert shape is not None, "a layer with a window has a cache"

    def room(memory: DeviceMemory, tokens: int, what: str) -> PagedBuffers:
        row = rows_size(1, shape.key_dim, rule.format)
        size = 2 * plan.workload.batch * shape.heads * tokens * row
        return PagedBuffers(memory.alloc(size, what), plan.workload.batch, shape.heads, tokens, row)

    whole = home_tokens(cache, plan.workload.context)
    blocks = {
        layer: PagedBlock(
            room(here, cache.window_tokens, f"window of the cache of block {layer}"),
            room(away, whole, f"cache of block {layer}"),
        )
        for layer in layers
    }
    arriving = tuple(room(here, cache.page_tokens, "pages that arrive") for _ in range(cache.staged_pages))
    return PagedCaches(cache, rule.memory, blocks, arriving)


def move_page(
    engine: CopyEngine,
    page: Run,
    source: tuple[PagedBuffers, int],
    target: tuple[PagedBuffers, int],
    times: memoryview,
    wait: list[Event],
    done: Event,
) -> None:
    """Copy a page's keys and values of every sequence and head; either side is a room and the row where they begin."""
    (one, from_row), (other, to_row) = source, target
    counts, size = (2 * one.batch, one.heads), page.count * one.row
    places = (other.buffer, to_row * other.row, other.strides, one.buffer, from_row * one.row, one.strides)
    engine.submit_strided(*places, counts, size, wait, done, times)
