"""Key and value caches: at home, and where blocks pass by that are used away from it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from helmsman.executor._kernels import Buffer
from helmsman.executor.devices.memory import BoundedMemory
from helmsman.executor.devices.opening import STORAGE
from helmsman.executor.formats import computing_format
from helmsman.executor.passes import Pass
from helmsman.lowering.placement import batches_together
from helmsman.lowering.rules import kv_homes
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import Format, size_of
from helmsman.schemas.plan import Plan

CACHED = ("append", "attention", "scores", "wv")
"""Operations that read or write a cache."""


@dataclass(frozen=True, slots=True)
class Cache:
    """Keys and values of one block: (batch, kv_heads, capacity, head_dim) each, keys transposed for divided attention.

    `passing`: which buffers of a memory they share with other blocks; None at home."""

    memory: str
    keys: Buffer
    values: Buffer
    passing: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Home:
    """Where a block's cache lives, and in which format."""

    memory: str
    format: Format


class Caches:
    """The caches of every block and batch. `transposed`: keys are (batch, kv_heads, head_dim, capacity)."""

    def __init__(
        self,
        home: dict[tuple[int, int], Cache],
        passing: Mapping[str, Sequence[Cache]],
        batches: int,
        transposed: bool,
    ) -> None:
        self.transposed = transposed
        self._home = home
        self._passing = passing
        self._batches = batches

    def home(self, layer: int, batch: int) -> Cache:
        """Where a batch's keys and values of a block live."""
        return self._home[layer, batch]

    def used_in(self, memory: str, layer: int, batch: int) -> bool:
        """Whether `memory` has a place for them."""
        return memory == self._home[layer, batch].memory or memory in self._passing

    def at(self, memory: str, layer: int, batch: int) -> Cache:
        """Where they are used in `memory`."""
        home = self._home[layer, batch]
        if home.memory == memory:
            return home
        passing = self._passing[memory]
        return passing[(layer * self._batches + batch) % len(passing)]


def allocate_caches(plan: Plan, passes: Sequence[Pass], memories: dict[str, BoundedMemory], transposed: bool) -> Caches:
    """All caches of a plan. Raises UsageError for caches in pieces that no kernel reads."""
    batches = batches_together(plan)
    home = {}
    for layer in range(plan.model.layers):
        place = cache_home(plan, layer)
        for batch in range(batches):
            home[layer, batch] = _allocate(plan, memories[place.memory], place, f"of block {layer}")
    passing = {}
    for memory, fmt in _away(plan, passes):
        place = Home(memory, fmt)
        sets = range(plan.schedule.prefetch + 1)
        passing[memory] = [_allocate(plan, memories[memory], place, "passing by", (memory, n)) for n in sets]
    return Caches(home, passing, batches, transposed)


def cache_home(plan: Plan, layer: int) -> Home:
    """Memory and format of a block's cache. Raises UsageError when its heads are kept apart or in 4-bit groups."""
    model = plan.model
    rules = {
        (piece.rule.memory, computing_format(piece.rule.format, "the cache"))
        for what in ("keys", "values")
        for piece in kv_homes(plan, what, layer, model.kv_heads)
    }
    if len(rules) > 1:
        raise UsageError(
            f"keys and values of block {layer} live in several memories or formats",
            field="kv",
            value=sorted(rules),
            remedy="keep the cache of a block in one memory and one format",
        )
    memory, fmt = rules.pop()
    if plan.hardware.memory(memory).kind == STORAGE:
        raise UsageError(
            f"keys and values of block {layer} live on storage, and only weights do",
            field="kv",
            value=memory,
            remedy="keep the cache in host memory or on a device",
        )
    return Home(memory, fmt)


def kv_format(plan: Plan, layers: Sequence[int]) -> Format:
    """The format of the caches of `layers`. Raises UsageError when they differ."""
    formats = {cache_home(plan, layer).format for layer in layers}
    if len(formats) > 1:
        raise UsageError(
            "the caches of one device must share a format",
            field="kv",
            value=sorted(formats),
            remedy="give every block of a device the same KV format",
        )
    return next(iter(formats), "f32")


def _away(plan: Plan, passes: Sequence[Pass]) -> Iterator[tuple[str, Format]]:
    """Memories in which caches are used that live elsewhere, each once."""
    found: dict[str, Format] = {}
    for task in (task for each in passes for task in each.tasks if task.op in CACHED and task.kind != "transfer"):
        home = cache_home(plan, task.layer or 0)
        memory = plan.hardware.device(task.resource).memory
        if memory != home.memory:
            found[memory] = home.format
    yield from found.items()


def _allocate(
    plan: Plan, memory: BoundedMemory, home: Home, what: str, passing: tuple[str, int] | None = None
) -> Cache:
    model, workload = plan.model, plan.workload
    size = size_of(workload.batch * model.kv_heads * workload.context * model.head_dim, home.format)
    return Cache(memory.name, memory.alloc(size, f"keys {what}"), memory.alloc(size, f"values {what}"), passing)
