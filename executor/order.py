"""In which pieces, and after what, the tasks of a pass are done."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from helmsman.executor.chains import Stop
from helmsman.executor.kv import CACHED, Caches
from helmsman.executor.passes import WEIGHTS, Pass, carried, stores
from helmsman.executor.seats import Seats
from helmsman.executor.staging import Staging
from helmsman.executor.submissions import Submission, hazards, steps_of, submissions
from helmsman.lowering.graph import Task
from helmsman.schemas.errors import UsageError

PIN_LANE = ":pin"
"""Ends the lane of copies to page-locked memory, which take turns with a device's operations."""

BEGINS = ("embedding", "norm1", "norm2", "final_norm", "head")
ENDS = ("embedding", "o", "down", "final_norm", "head")
"""Operations before and after which hidden states, or those of the last tokens, are all there is: where prompts may be
cut that pass in chunks."""

Access = tuple[object, object]


@dataclass(frozen=True)
class Ordered:
    """The submissions of a pass. `chunked`: whether its tokens may pass chunk by chunk."""

    submissions: list[Submission]
    chunked: bool


def order(
    found: Pass, staging: Staging, caches: Caches, seats: Seats, stops: Mapping[int, Stop], chunked: bool
) -> Ordered:
    """The submissions of `found`. Raises UsageError where prompts that pass in chunks are divided within a block."""
    accesses = [list(_accesses(found, index, staging, caches, stops)) for index in range(len(found.tasks))]
    overtaken = hazards(accesses)
    deps = [set(task.deps) | more for task, more in zip(found.tasks, overtaken, strict=True)]
    _take_turns(found, deps)
    together = list(_halves(found)) if chunked else []
    if chunked:
        _start_before(found, deps, together)
    steps = steps_of(_lanes(found), deps, together)
    # A buffer that one block leaves to the next must not meet the next chunk of the first.
    apart = {members[0] for members in together if any(overtaken[member] for member in members)}
    return Ordered(
        submissions(steps, lambda one, other: other not in apart and _joins(found, seats, one, other)), chunked
    )


def _lanes(found: Pass) -> list[str]:
    return [task.resource + PIN_LANE if task.kind == "pin" else task.resource for task in found.tasks]


def _joins(found: Pass, seats: Seats, one: int, other: int) -> bool:
    """Whether an operation follows another in the same stage."""
    if one not in found.uses or other not in found.uses:
        return False
    first, second = found.tasks[one], found.tasks[other]
    if first.batch != second.batch:
        return False
    seat = seats[found.uses[one].device, first.batch]
    return seat.ops(first.layer, first.op)[1] == seat.ops(second.layer, second.op)[0]


def _accesses(found: Pass, index: int, staging: Staging, caches: Caches, stops: Mapping[int, Stop]) -> Iterator[Access]:
    """What a task reads or writes that is used for one thing after another."""
    task = found.tasks[index]
    if index in stops:
        yield stops[index].buffer, stops[index].owner
    if index in found.uses:
        yield from ((slot.set, slot.owner) for _, slot in staging.of(found.uses[index]))
        if task.op in CACHED:
            yield from _passing(caches, task.memories[0], task.layer or 0, task.batch)
    elif carried(task).endswith(WEIGHTS):
        use = found.uses[found.user[index]]
        yield from ((slot.set, slot.owner) for _, slot in staging.of(use))
    elif carried(task) in ("keys", "values", "kv", "new_kv") or task.kind == "reshape":
        for memory in _touched(task):
            yield from _passing(caches, memory, task.layer or 0, task.batch)


def _touched(task: Task) -> tuple[str, ...]:
    """The memories in which a move reads or writes what passes by: not where past keys and values come from."""
    if task.kind != "transfer":
        return () if task.kind == "pin" else task.memories[:1]
    if carried(task) == "new_kv":
        return task.memories
    return task.memories[:1] if stores(task) else task.memories[1:]


def _passing(caches: Caches, memory: str, layer: int, batch: int) -> Iterator[Access]:
    cache = caches.at(memory, layer, batch) if caches.used_in(memory, layer, batch) else None
    if cache is not None and cache.passing is not None:
        yield ("cache", *cache.passing), (layer, batch)


def _take_turns(found: Pass, deps: list[set[int]]) -> None:
    """The processor that computes also copies to page-locked memory: one thing after the other."""
    last: dict[str, int] = {}
    for index, task in enumerate(found.tasks):
        if index in found.uses or task.kind == "pin":
            before = last.get(task.resource)
            if before is not None and (task.kind == "pin") != (found.tasks[before].kind == "pin"):
                deps[index].add(before)
            last[task.resource] = index


def _halves(found: Pass) -> Iterator[list[int]]:
    """The operations of a device between two cuts, batch by batch."""
    open_ones: dict[tuple[str, int], list[int]] = {}
    for index, use in found.uses.items():
        key = use.device, found.tasks[index].batch
        current = open_ones.setdefault(key, [])
        if not current and use.op not in BEGINS:
            raise _cut_within(found, index)
        current.append(index)
        if use.op in ENDS:
            yield open_ones.pop(key)
    for rest in open_ones.values():
        raise _cut_within(found, rest[-1])


def _cut_within(found: Pass, index: int) -> UsageError:
    place = found.tasks[index]
    return UsageError(
        f"prompts this long pass chunk by chunk, and block {place.layer} is divided at {place.op} for them",
        field="compute",
        value=place.resource,
        remedy="run whole blocks on one device in prefill, or give shorter prompts",
    )


def _start_before(found: Pass, deps: list[set[int]], together: list[list[int]]) -> None:
    """What comes for operations that run in one piece cannot wait for one of them: it waits for what they do."""
    group = {task: number for number, members in enumerate(together) for task in members}
    for index, task in enumerate(found.tasks):
        user = found.user.get(index)
        number = group.get(user) if user is not None else None
        if task.kind in ("transfer", "pin", "decompress") and number is not None:
            inside = {dep for dep in deps[index] if group.get(dep) == number}
            if inside:
                first = together[number][0]
                deps[index] = (deps[index] - inside) | {dep for dep in found.tasks[first].deps if dep < index}
