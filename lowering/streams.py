"""Resident data on its way to an operation: which hops it takes, and what expands or pins it."""

from collections.abc import Iterable
from typing import NamedTuple

from helmsman.lowering.caches import pieces_of
from helmsman.lowering.layer_cache import owner, read_cache
from helmsman.lowering.placement import Placed
from helmsman.lowering.rules import Cached, homes, places, residence
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import embedding_tensors
from helmsman.lowering.variants import cached_elements
from helmsman.scheduler.iteration import Iteration, Phase
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.formats import StoredFormat, rows_size, size_of
from helmsman.schemas.hardware import Hardware, Link
from helmsman.schemas.plan import Path


class Resident(NamedTuple):
    """Bytes that an operation reads: where copies are, how they are stored and leave, what they become.

    `copies`: (memory, share of a transfer that it serves); `used_as`: the format in which they are used; `width`: of
    the rows of a cache, 0 for weights."""

    copies: tuple[tuple[str, float], ...]
    replicas: tuple[str, ...]
    format: StoredFormat
    path: Path
    elements: int
    used_as: StoredFormat
    width: int = 0

    @property
    def size(self) -> int:
        """Return bytes as stored."""
        return self._bytes(self.format)

    @property
    def used(self) -> int:
        """Return bytes as used."""
        return self._bytes(self.used_as)

    @property
    def expands(self) -> bool:
        """Whether it becomes something else before it is used."""
        return self.used_as != self.format

    def _bytes(self, fmt: StoredFormat) -> int:
        if self.width:
            return rows_size(self.elements // self.width, self.width, fmt)
        return size_of(self.elements, fmt)

    def lives_in(self, memory: str) -> bool:
        """Whether a copy is in `memory`."""
        return memory in [home for home, _ in self.copies] or memory in self.replicas

    def used_in(self, memory: str) -> bool:
        """Whether a copy is in `memory` in the format in which it is used there."""
        return not self.expands and self.lives_in(memory)


class Hop(NamedTuple):
    """One transfer of a path, and the bytes it moves."""

    link: Link
    size: int
    path: Path


def weights_of(
    plan: Placed, tensors: Iterable[Tensor], start: int, stop: int, lookup_rows: int = 0, share: float = 1.0
) -> list[Resident]:
    """Return what an operation's rows (or experts) start <= r < stop read, `share` of them; `lookup_rows`: so many rows
    of a table instead."""
    weights = []
    for tensor in tensors:
        columns = tensor.elements // tensor.shape[0]
        divided = tensor.shape[0] >= stop and not lookup_rows
        for piece in homes(plan, tensor):
            first, last = (max(start, piece.start), min(stop, piece.stop)) if divided else (piece.start, piece.stop)
            if first < last:
                rows, rule = lookup_rows or last - first, piece.rule
                shares = rule.stripes or (1.0,)
                copies = tuple(zip((rule.memory, *rule.replicas), shares, strict=False))
                weights.append(
                    Resident(copies, rule.replicas, rule.format, rule.path, round(share * rows * columns), rule.used)
                )
    return weights


def cached_of(
    plan: Placed, iteration: Iteration, cached: Iterable[Cached], layer: int, start: int, stop: int
) -> list[Resident]:
    """Return the past keys or values of heads start <= h < stop that a block reads, its own or an earlier one's."""
    cache, home = read_cache(plan.model, layer), owner(plan.model, layer)
    if cache is None:
        return []
    result = []
    for piece in pieces_of(plan, home):
        count = min(stop, piece.stop) - max(start, piece.start)
        if piece.what in cached and count > 0:
            width = cache.width(piece.what)
            past = iteration.past if cache.reach is None else min(iteration.past, cache.reach - 1)
            pooled = cache.pooled(iteration.past) if piece.what == "keys" else 0
            elements = count * iteration.batch * (past * width + pooled)
            elements, rule = cached_elements(plan.model, plan.schedule.cache, elements), piece.rule
            copies = ((rule.memory, 1.0),)
            result.append(Resident(copies, (), rule.format, rule.path, elements, piece.used, width))
    return result


def grouped(residents: Iterable[Resident]) -> list[Resident]:
    """Data of one home, format and path travel together."""
    groups: dict[tuple[object, ...], Resident] = {}
    for resident in residents:
        key = (resident.copies, resident.format, resident.path, resident.used_as)
        before = groups[key].elements if key in groups else 0
        groups[key] = resident._replace(elements=before + resident.elements)
    return list(groups.values())


class MemoryRoutes:
    """The ways between the memories of a machine; equal transfers are looked up once, as blocks repeat them."""

    def __init__(self, hardware: Hardware) -> None:
        self.hardware = hardware
        self._known: dict[tuple[str, str, int, Path], tuple[Hop, ...]] = {}

    def hops(self, source: str, target: str, size: int, path: Path) -> tuple[Hop, ...]:
        """Return the transfers that bring `size` bytes from memory `source` to `target`: one, or two through host
        memory, as between two GPUs without a link of their own.

        Raises BadInputError when no link joins them."""
        key = source, target, size, path
        if key not in self._known:
            links = _links(self.hardware, source, target, path)
            self._known[key] = tuple(Hop(link, size, path) for link in links)
        return self._known[key]


def hops(plan: Placed, source: str, target: str, size: int, path: Path) -> tuple[Hop, ...]:
    """Return the transfers of `MemoryRoutes`, asked once."""
    return MemoryRoutes(plan.hardware).hops(source, target, size, path)


def _links(hardware: Hardware, source: str, target: str, path: Path) -> tuple[Link, ...]:
    direct = hardware.link(source, target)
    if direct is not None and path != "bounce":
        return (direct,)
    host = hardware.devices[0].memory
    stops = [host] if path == "bounce" else dict.fromkeys(d.memory for d in hardware.devices if d.kind == "cpu")
    ways = [(hardware.link(source, stop), hardware.link(stop, target)) for stop in stops]
    pairs = [(first, second) for first, second in ways if first is not None and second is not None]
    if not pairs:
        missing = (source, host) if hardware.link(source, host) is None else (host, target)
        raise _no_way(missing if path == "bounce" else (source, target), host, path)
    return min(pairs, key=lambda way: sum(1 / link.bandwidth.value for link in way))


def tokens_home(plan: Placed, phase: Phase) -> str:
    """Return the memory in which the tokens of a pass are looked up: that of the device that reads the table, or the
    host's where the table is elsewhere, because the host gathers its rows."""
    memory = plan.hardware.device(places(plan, "embedding", None, phase, 1, "rows")[0].rule.device).memory
    table = residence(plan, embedding_tensors(plan.model)[0])
    return memory if memory in (table.memory, *table.replicas) else plan.hardware.devices[0].memory


def _no_way(leg: tuple[str, str], host: str, path: Path) -> BadInputError:
    """`leg` of a path has no link: there is none, or it begins where it ends."""
    source, target = leg
    if source == target:
        remedy = "write another path: bounce leads from storage through host memory to a device"
        return BadInputError(f"bounces off {host}, where it begins or ends", field="path", value=path, remedy=remedy)
    return BadInputError(
        f"no link from memory {source} to memory {target}",
        field="hardware.links",
        remedy="add a link, or keep the data where it is used",
    )
