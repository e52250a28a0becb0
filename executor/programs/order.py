"""In which pieces, and after what, the tasks of a pass are done."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from helmsman.executor.cache.kv import CACHED, Caches
from helmsman.executor.homes.staging import Staging
from helmsman.executor.passes.chains import Stop
from helmsman.executor.passes.halves import Half, halves_of, served
from helmsman.executor.passes.phase_pass import PhasePass, carries_cache
from helmsman.executor.programs.expert_order import expert_groups, gather_experts, in_stage_order
from helmsman.executor.programs.submissions import JointTasks, Submission, hazards, returning, steps_of, submissions
from helmsman.executor.stages.seats import Seats
from helmsman.lowering.bodies.attention import NEW_KV
from helmsman.lowering.bodies.experts_apart import ROUTER
from helmsman.lowering.graph import Task
from helmsman.schemas.errors import UsageError

PIN_LANE = ":pin"
"""Ends the lane of copies to page-locked memory, which take turns with a device's operations."""

Access = tuple[object, object]


@dataclass(frozen=True)
class PassOrder:
    """The submissions of a pass. `divided`: the tasks that every chunk of a prompt goes through before the next."""

    submissions: list[Submission]
    divided: tuple[tuple[int, ...], ...]


def order(
    phase_pass: PhasePass, staging: Staging, caches: Caches, seats: Seats, stops: Mapping[int, Stop], chunks: int | None
) -> PassOrder:
    """The submissions of `phase_pass`, a prompt of so many `chunks`; None where all tokens pass at once.

    Raises UsageError where batches take turns on weights that cannot wait for the last of them."""
    _check_held(phase_pass, staging)
    accesses = [list(_accesses(phase_pass, index, staging, caches, stops)) for index in range(len(phase_pass.tasks))]
    overtaken = hazards(accesses)
    deps = [set(task.deps) | more for task, more in zip(phase_pass.tasks, overtaken, strict=True)]
    gather_experts(phase_pass, deps)
    _leave_out_slots(phase_pass, deps)
    halves = [] if chunks is None else halves_of(phase_pass)
    place = _start_before(phase_pass, deps, halves)
    _take_turns(phase_pass, deps, sorted(range(len(deps)), key=place.__getitem__))
    together = [JointTasks(in_stage_order(phase_pass, half.tasks), chunks if half.divided else None) for half in halves]
    if chunks is None:
        together += [JointTasks(group) for group in set(expert_groups(phase_pass).values())]
    steps = steps_of(_lanes(phase_pass), deps, together)
    # A buffer that one block leaves to the next must not meet the next chunk of the first.
    apart = {half.tasks[0] for half in halves if any(overtaken[member] for member in half.tasks)}
    divided = {task: half.tasks for half in halves if half.divided for task in half.tasks}

    def joins(one: int, other: int) -> bool:
        if phase_pass.tasks[one].layer in phase_pass.slotted and phase_pass.tasks[one].op == ROUTER:
            return False  # what it has chosen is looked up first
        if phase_pass.drafts and phase_pass.tasks[other].op == "final_norm":
            return False  # hidden states of all chunks stay for whoever drafts
        return other not in apart and divided.get(one) is divided.get(other) and _joins(phase_pass, seats, one, other)

    return PassOrder(submissions(steps, joins), tuple(half.tasks for half in halves if half.divided))


def _check_held(phase_pass: PhasePass, staging: Staging) -> None:
    """Weights come once for all batches, so nothing may take their place before the last has read them."""
    accesses = [list(_staged(phase_pass, index, staging)) for index in range(len(phase_pass.tasks))]
    for index in returning(accesses):
        task = phase_pass.tasks[index]
        raise UsageError(
            f"batches take turns, and the weights of {task.id} are gone when the next one reads them",
            field="schedule.prefetch",
            value=phase_pass.plan.schedule.prefetch,
            remedy="let schedule.prefetch be one more, or plan one batch",
        )


def _leave_out_slots(phase_pass: PhasePass, deps: list[set[int]]) -> None:
    """Change `deps` so that nothing waits for what comes to slots: the stage that reads it does."""
    comes = {index for index in range(len(deps)) if phase_pass.comes_to_slots(index)}
    for index, waits in enumerate(deps):
        deps[index] = waits - comes


def _lanes(phase_pass: PhasePass) -> list[str]:
    return [task.resource + PIN_LANE if task.kind == "pin" else task.resource for task in phase_pass.tasks]


def _joins(phase_pass: PhasePass, seats: Seats, one: int, other: int) -> bool:
    """Whether an operation follows another in the same stage."""
    if one not in phase_pass.uses or other not in phase_pass.uses:
        return False
    first, second = phase_pass.tasks[one], phase_pass.tasks[other]
    if first.batch != second.batch:
        return False
    seat = seats[phase_pass.uses[one].device, first.batch]
    return seat.ops_of(first)[1] == seat.ops_of(second)[0]


def _accesses(
    phase_pass: PhasePass, index: int, staging: Staging, caches: Caches, stops: Mapping[int, Stop]
) -> Iterator[Access]:
    """Yield the buffers of a task that are used for one thing after another."""
    task = phase_pass.tasks[index]
    if index in stops:
        yield stops[index].buffer, stops[index].owner
    yield from _staged(phase_pass, index, staging)
    if index in phase_pass.uses:
        if task.op in CACHED:
            yield from _passing(caches, task.memories[0], task.layer or 0, task.batch)
    elif carries_cache(task):
        for memory in _touched(task):
            yield from _passing(caches, memory, task.layer or 0, task.batch)


def _staged(phase_pass: PhasePass, index: int, staging: Staging) -> Iterator[Access]:
    """The buffers of streamed weights that a task writes or reads."""
    if phase_pass.comes_to_slots(index):
        return
    if index in phase_pass.uses or phase_pass.tasks[index].payload == "weights":
        yield from (
            (slot.set, slot.owner) for _, slot in staging.of(phase_pass.uses[phase_pass.user.get(index, index)])
        )


def _touched(task: Task) -> tuple[str, ...]:
    """The memories in which a move reads or writes what passes by: not where past keys and values come from."""
    if task.kind != "transfer":
        return () if task.kind == "pin" else task.memories[:1]
    if task.operation == NEW_KV:
        return task.memories
    return task.memories[:1] if task.payload == "new cache entries" else task.memories[1:]


def _passing(caches: Caches, memory: str, layer: int, batch: int) -> Iterator[Access]:
    cache = caches.at(memory, layer, batch) if caches.used_in(memory, layer, batch) else None
    if cache is not None and cache.passing is not None:
        yield ("cache", *cache.passing), (layer, batch)


def _start_before(phase_pass: PhasePass, deps: list[set[int]], halves: Sequence[Half]) -> list[tuple[int, int, int]]:
    """Change `deps` so that moves for halves wait for none of their tasks, but for what the first of these waits for.

    Return the order of all tasks, by which halves are in one piece, after all that comes for them."""
    half_of = {task: half for half in halves for task in half.tasks}
    place = [(half_of[task].tasks[0], 1, task) if task in half_of else (task, 0, task) for task in range(len(deps))]
    for index, waiting in served(phase_pass, half_of).items():
        inside = {dep for dep in deps[index] if half_of.get(dep) in waiting}
        firsts = {half_of[dep].tasks[0] for dep in inside}
        instead = {dep for first in firsts for dep in phase_pass.tasks[first].deps if dep < index}
        deps[index] = (deps[index] - inside) | {dep for dep in instead if half_of.get(dep) not in waiting}
        place[index] = (min([index, *(half.tasks[0] for half in waiting)]), 0, index)
    return place


def _take_turns(phase_pass: PhasePass, deps: list[set[int]], sequence: Sequence[int]) -> None:
    """The processor that computes also copies to page-locked memory: one thing after the other."""
    last: dict[str, int] = {}
    for index in sequence:
        task = phase_pass.tasks[index]
        if index in phase_pass.uses or task.kind == "pin":
            before = last.get(task.resource)
            if before is not None and (task.kind == "pin") != (phase_pass.tasks[before].kind == "pin"):
                deps[index].add(before)
            last[task.resource] = index
