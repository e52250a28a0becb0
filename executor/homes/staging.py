"""Where streamed weights arrive: prefetch + 1 sets of buffers per memory, reused stage after stage."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from helmsman.executor._kernels import packed_size
from helmsman.executor.devices.base import DeviceMemory
from helmsman.executor.devices.parts import Buffer
from helmsman.executor.devices.value_sizes import F32_BYTES
from helmsman.executor.homes.store import WeightLoader, place_of, rows_per_index
from helmsman.executor.passes.phase_pass import DeviceUse, PhasePass, computing
from helmsman.lowering.buffers import chunk_of, held_together
from helmsman.lowering.graph import Task
from helmsman.lowering.placement import batches_together
from helmsman.lowering.rules import Slice, homes
from helmsman.lowering.stages import stage_of
from helmsman.lowering.tensor import POSITIONS, Tensor
from helmsman.lowering.tensors import LOOKUPS
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import StoredFormat, size_of
from helmsman.schemas.plan import Plan, Residence
from helmsman.schemas.storage import STORAGE

ALIGNMENT = 64

Owner = tuple[object, ...]
"""The user of a set at the moment: a stage, or an operation of one where nothing comes ahead."""


@dataclass(frozen=True, slots=True)
class Region:
    """Bytes of a buffer."""

    buffer: Buffer
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Slot:
    """Where rows of a weight are used (`ready`, in `format`) and, where they are expanded first, arrive (`arrival`).

    `set`: which set of which memory; `owner`: what the set is held for; `rows`: of the tensor, those that come."""

    set: tuple[str, int]
    owner: Owner
    format: StoredFormat
    ready: Region
    arrival: Region | None
    rows: range


@dataclass(frozen=True, slots=True)
class _Need:
    """A slot before it has a place."""

    key: tuple[DeviceUse, Tensor]
    set: tuple[str, int]
    owner: Owner
    rows: range
    format: StoredFormat
    ready: int
    arrival: int


class Staging:
    """The slots of one phase's passes; the sets are as large as the phase that needs more of them."""

    def __init__(self, slots: dict[tuple[DeviceUse, Tensor], Slot]) -> None:
        self._slots = slots

    def slot(self, use: DeviceUse, tensor: Tensor) -> Slot | None:
        """Where rows of `tensor` are for `use`; None when they live there."""
        return self._slots.get((use, tensor))

    def of(self, use: DeviceUse) -> list[tuple[Tensor, Slot]]:
        """Every streamed tensor of a use."""
        return [(tensor, slot) for (owner, tensor), slot in self._slots.items() if owner == use]


def stage_weights(
    plan: Plan,
    passes: Sequence[PhasePass],
    memories: dict[str, DeviceMemory],
    store: WeightLoader,
    max_tokens: int,
    *,
    tables: bool = True,
) -> list[Staging]:
    """Slots for everything that is streamed in `passes`, allocated; prompts have up to `max_tokens`.

    `tables`: for rows of tables too, which are looked up."""
    needs = [
        [need for need in _needs(plan, one_pass, store, max_tokens) if tables or need.key[0].op not in LOOKUPS]
        for one_pass in passes
    ]
    places = [_places(pass_needs) for pass_needs in needs]
    sizes: dict[tuple[str, int], int] = {}
    for place in places:
        for (which, _), end in place[1].items():
            sizes[which] = max(sizes.get(which, 0), end)
    buffers = {
        which: memories[which[0]].alloc(size, f"streamed weights, set {which[1]}") for which, size in sizes.items()
    }
    return [
        Staging({need.key: _slot(need, buffers[need.set], at) for need, at in zip(pass_needs, place[0], strict=True)})
        for pass_needs, place in zip(needs, places, strict=True)
    ]


def _places(needs: Sequence[_Need]) -> tuple[list[int], dict[tuple[tuple[str, int], Owner], int]]:
    """Offset of every slot in its set, one after the other while the owner is the same; where each owner ends."""
    ends: dict[tuple[tuple[str, int], Owner], int] = {}
    offsets = []
    for need in needs:
        key = need.set, need.owner
        offsets.append(ends.get(key, 0))
        ends[key] = offsets[-1] + _aligned(need.ready) + _aligned(need.arrival)
    return offsets, ends


def _slot(need: _Need, buffer: Buffer, offset: int) -> Slot:
    ready = Region(buffer, offset, need.ready)
    arrival = Region(buffer, offset + _aligned(need.ready), need.arrival) if need.arrival else None
    return Slot(need.set, need.owner, need.format, ready, arrival, need.rows)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def longest(phase_pass: PhasePass, max_tokens: int) -> int:
    """Most tokens of a sequence that a pass advances."""
    return max_tokens if phase_pass.phase == "prefill" else phase_pass.step_tokens


def _needs(plan: Plan, phase_pass: PhasePass, store: WeightLoader, max_tokens: int) -> Iterator[_Need]:
    ahead = plan.schedule.overlap == "next-layer" or plan.schedule.barrier
    together = held_together(ahead, batches_together(plan), max_tokens, chunk_of(plan))
    tokens = longest(phase_pass, max_tokens)
    seen, turns = set[DeviceUse](), dict[str, dict[int, int]]()
    for _, task, use in computing(phase_pass):
        if use not in seen:
            seen.add(use)
            stage = stage_of(plan, task.op, task.layer)
            mine = turns.setdefault(plan.hardware.device(use.device).memory, {})
            turn = mine.get(stage, len(mine))
            for tensor in store.tensors(task.op, task.layer):
                if tensor.stacked and task.layer in phase_pass.slotted:
                    continue  # they come to slots of their own
                need = _need(plan, task, use, tensor, tokens, together, turn)
                if need is not None:
                    mine[stage] = turn
                    yield need


def _need(
    plan: Plan, task: Task, use: DeviceUse, tensor: Tensor, tokens: int, together: bool, turn: int
) -> _Need | None:
    memory = plan.hardware.device(use.device).memory
    rows = rows_of(use, tensor)
    pieces = [home for home in homes(plan, tensor) if home.start < rows.stop and rows.start < home.stop]
    if all(_used_in_place(piece.rule, memory) for piece in pieces):
        return None
    which, owner = _set(plan, task, together, turn)
    place = (use, tensor), (memory, which), owner
    if not tensor.packed:
        if tensor.stacked:
            rows = range(tensor.shape[0])  # biases of experts that live here come too: they lie one after the other
        return _Need(*place, rows, "f32", F32_BYTES * len(rows) * prod(tensor.shape[1:]), 0)
    if task.op in LOOKUPS:
        return _Need(*place, rows, *_looked_up(plan, tensor, pieces, tokens), 0)
    if tensor.stacked:
        rows, arriving = _arriving(rows, pieces, memory)
        pieces = list(arriving)
    _check_comes(tensor, pieces, memory)
    fmt = _only_format(tensor, pieces)
    expands = any(piece.rule.expands and not _lives_in(piece.rule, memory) for piece in pieces)
    count, columns = len(rows) * rows_per_index(tensor), tensor.shape[-1]
    arrival = packed_size("q4", count, columns) if expands else 0
    return _Need(*place, rows, fmt, packed_size(fmt, count, columns), arrival)


def _arriving(rows: range, pieces: Sequence[Slice[Residence]], memory: str) -> tuple[range, list[Slice[Residence]]]:
    """Return the experts that come, from the first that does not live in `memory` to the last, and their rules."""
    away = [piece for piece in pieces if not _used_in_place(piece.rule, memory)]
    start, stop = max(rows.start, away[0].start), min(rows.stop, away[-1].stop)
    return range(start, stop), [piece for piece in pieces if piece.start < stop and start < piece.stop]


def _looked_up(plan: Plan, tensor: Tensor, pieces: Sequence[Slice[Residence]], tokens: int) -> tuple[StoredFormat, int]:
    """Format and bytes of what comes of a table: the rows of all tokens of a pass, the positions of a whole context."""
    rule, work = pieces[0].rule, plan.workload
    if len(pieces) > 1 or rule.path == "pin-on-transfer" or plan.hardware.memory(rule.memory).kind == STORAGE:
        raise UsageError(
            f"rows of {tensor.name} are looked up in one memory of a device, and copied as they are",
            field="residence",
            value=f"{rule.memory}, {rule.path}",
            remedy="keep the whole table in a device's memory, with path pinned",
        )
    if tensor.name == POSITIONS:
        return "f32", size_of(work.context * tensor.shape[1], "f32")
    return rule.format, batches_together(plan) * work.batch * tokens * size_of(tensor.shape[1], rule.format)


def _set(plan: Plan, task: Task, together: bool, turn: int) -> tuple[int, Owner]:
    """A stage's weights have a set where they are held together, else one operation's take the place of another's.

    `turn`: how many stages before this one bring something there; sets go round among those that do."""
    stage, depth = stage_of(plan, task.op, task.layer), plan.schedule.prefetch + 1
    if together:
        return turn % depth, (stage,)
    if task.kind == "experts":
        return 0, (stage, task.kind)  # a stage multiplies by all of their matrices at once
    return 0, (stage, task.op, task.id)


def rows_of(use: DeviceUse, tensor: Tensor) -> range:
    """The rows of a tensor that a use reads: its own, or all of a vector that every part needs."""
    divided = tensor.shape[0] >= use.stop and use.stop > 1
    return range(use.start, use.stop) if divided else range(tensor.shape[0])


def _lives_in(rule: Residence, memory: str) -> bool:
    return memory in (rule.memory, *rule.replicas)


def _used_in_place(rule: Residence, memory: str) -> bool:
    return _lives_in(rule, memory) and not rule.expands


def _check_comes(tensor: Tensor, pieces: Sequence[Slice[Residence]], memory: str) -> None:
    here = [piece for piece in pieces if _used_in_place(piece.rule, memory)]
    if here:
        raise UsageError(
            f"rows {here[0].start} to {here[0].stop} of {place_of(tensor)} live where the others are streamed to",
            field="residence",
            value=memory,
            remedy="let an operation's weights on one device all live there, or all elsewhere",
        )


def _only_format(tensor: Tensor, pieces: Sequence[Slice[Residence]]) -> StoredFormat:
    formats = {piece.rule.used for piece in pieces}
    if len(formats) > 1:
        raise UsageError(
            f"the rows of {place_of(tensor)} that one operation reads must become one format",
            field="residence",
            value=sorted(formats),
            remedy="give them one format, or expand 4-bit groups to that of the other rows",
        )
    return formats.pop()
