"""The tasks of attention over a cache of which the device holds a window (HELM-58..65).

Pages at home are brought one after the other and attended to as they come, each while the next ones are on their way;
then comes what is in the window. New tokens stay there. Pages that leave are copied home beside all of it."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from helmsman.lowering.cargo import Cargo, cargo
from helmsman.lowering.emit import Emitter
from helmsman.lowering.layer_cache import cache_of
from helmsman.lowering.operation import Operation
from helmsman.lowering.ops import sum_of_contexts
from helmsman.lowering.paging import paging_of
from helmsman.lowering.parts import OperationPart
from helmsman.lowering.placement import Placed
from helmsman.lowering.rules import kv_rule
from helmsman.lowering.streams import Hop, MemoryRoutes
from helmsman.schemas.page_cache import PageCache


@dataclass
class PageMoves:
    """Makes the tasks of pages in one pass; `readers`: by memory, what read its page buffers
    last, in order."""

    plan: Placed
    out: Emitter
    ways: MemoryRoutes
    readers: dict[str, list[int]] = field(default_factory=dict)

    def attend(
        self, op: Operation, layer: int, part: OperationPart, window: PageCache, deps: set[int]
    ) -> OperationPart:
        """Return what is left of attention once its pages at home have been read, after `deps`, which follow them."""
        iteration = self.out.iteration
        page, streamed = window.page_tokens, paging_of(window).advance(iteration.past, iteration.tokens).streamed
        positions = sum_of_contexts(iteration)
        flops, size = part.flops * iteration.tokens * page // positions, self._page_bytes(layer, window)
        one = part._replace(flops=flops, size=size)
        for number in streamed:
            arrived = self._bring(layer, window, number)
            deps.add(self._read(op, layer, one, number, tuple(sorted({*deps, arrived}))))
            del self.readers[one.memory][: -window.staged_pages]
        count = len(streamed)
        return part._replace(flops=part.flops - count * flops, size=part.size - count * size)

    def evict(self, layer: int, window: PageCache) -> None:
        """Pages that leave in this pass: all of them were there before it, so nothing holds them back."""
        iteration, rule = self.out.iteration, kv_rule(self.plan, layer)
        for number, _ in paging_of(window).advance(iteration.past, iteration.tokens).evicted:
            for hop in self._hops(layer, window, window.memory, rule.memory):
                self.out.transfer(page_cargo(number), layer, hop, rule.format, ())

    def _bring(self, layer: int, window: PageCache, number: int) -> int:
        """A page comes when the page that was in its buffer has been read."""
        rule, before = kv_rule(self.plan, layer), self.readers.get(window.memory, [])[-window.staged_pages :]
        free = tuple(before[:1]) if len(before) == window.staged_pages else ()
        for hop in self._hops(layer, window, rule.memory, window.memory):
            free = (self.out.transfer(page_cargo(number), layer, hop, rule.format, free),)
        return free[0]

    def _read(self, op: Operation, layer: int, page: OperationPart, number: int, deps: tuple[int, ...]) -> int:
        index = self.out.operation(op, page, layer, deps, page=number)
        self.readers.setdefault(page.memory, []).append(index)
        return index

    def _hops(self, layer: int, window: PageCache, source: str, target: str) -> Iterator[Hop]:
        yield from self.ways.hops(source, target, self._page_bytes(layer, window), kv_rule(self.plan, layer).path)

    def _page_bytes(self, layer: int, window: PageCache) -> int:
        """Keys and values of a page of every sequence."""
        cache, rule = cache_of(self.plan.model, layer), kv_rule(self.plan, layer)
        if cache is None:
            return 0
        return cache.size(self.out.iteration.batch * window.page_tokens * cache.heads, rule.format)


def page_cargo(number: int) -> Cargo:
    """What brings a page of keys and values, or takes it home, carries."""
    return cargo("attention", "cache page", piece=number)
