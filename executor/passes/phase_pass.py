"""The passes of a plan as task graphs, and what their tasks compute and move."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from helmsman.lowering.bodies.attention import NEW_KV
from helmsman.lowering.bodies.experts import EXPERT_PRODUCTS, UP
from helmsman.lowering.bodies.experts_apart import ROUTER
from helmsman.lowering.bodies.per_layer_input import LAYER_INPUTS, LAYER_TABLE
from helmsman.lowering.dataflow import HIDDEN, TOKEN, reads_value
from helmsman.lowering.graph import CACHED, Task
from helmsman.lowering.layer_cache import keeps_states
from helmsman.lowering.lower import lower
from helmsman.lowering.operation import DIVIDED
from helmsman.lowering.ops import op_extent
from helmsman.lowering.paging import windows
from helmsman.lowering.placement import batches_together
from helmsman.lowering.rings import ring_rows
from helmsman.lowering.rules import homes, slots_of
from helmsman.lowering.tensors import tensors
from helmsman.scheduler.iteration import Phase, decode, prefill
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.hardware import NATIVE_KINDS
from helmsman.schemas.plan import ExpertSlots, Plan

LAYER_ROWS = (LAYER_TABLE, LAYER_INPUTS)
"""Values of tokens that layers read beside hidden states, as transfers call them."""

MOVES = ("transfer", "pin", "decompress", "reshape")
"""Kinds of tasks that compute nothing."""


SlotMode = Literal["host", "fetched", "divided"]
"""Where a pass computes experts that are not in slots: on another device; where slots are, once they have come; some
here and some there."""


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """Rows or heads start <= i < stop of an operation on a device."""

    op: str
    layer: int | None
    device: str
    start: int
    stop: int


@dataclass(frozen=True)
class PhasePass:
    """The tasks of every pass of a phase; sizes apart they do not depend on how many tokens there are.

    `drafts`: how many drafted tokens a decode step verifies beside the one before them; where there are any, hidden
    states behind the last block stay for all tokens of a pass."""

    plan: Plan
    phase: Phase
    tasks: tuple[Task, ...]
    drafts: int = 0

    @property
    def step_tokens(self) -> int:
        """Return the most tokens of a sequence in a decode step, each of which the head chooses a next one for; 1 of a
        prompt."""
        return 1 + self.drafts if self.phase == "decode" else 1

    @cached_property
    def uses(self) -> dict[int, DeviceUse]:
        """By task that computes: what of an operation."""
        result = {}
        for index, task in enumerate(self.tasks):
            if task.kind not in MOVES:
                whole = 0, op_extent(self.plan.model, task.operation, task.layer)[1]
                start, stop = whole if task.rows is None or self._slotted(task) else task.rows
                result[index] = DeviceUse(task.operation, task.layer, task.resource, start, stop)
        return result

    @cached_property
    def slotted(self) -> Mapping[int, SlotMode]:
        """Return the blocks whose experts are cached in slots, and what happens to those that are not."""
        devices: dict[int, list[bool]] = {}
        for task in self.tasks:
            rule = self._slots(task) if task.kind == "experts" and task.batch == 0 else None
            if rule is not None and task.layer is not None and task.operation == UP:
                devices.setdefault(task.layer, []).append(task.memories[0] == rule.memory)
        return {layer: "fetched" if all(here) else _beside(here) for layer, here in devices.items()}

    def comes_to_slots(self, index: int) -> bool:
        """Whether a task brings experts to slots: which ones is known when their router has chosen."""
        task = self.tasks[index]
        rule = self._slots(task) if task.kind == "transfer" and task.payload == "weights" else None
        return rule is not None and self._slotted(task) and task.memories[1] == rule.memory

    def tells_choice(self, index: int) -> bool:
        """Whether a task brings a router's choice to the home of experts alone, from which they come to slots."""
        task = self.tasks[index]
        return task.kind == "transfer" and task.operation == ROUTER and index not in self.readers

    def _slotted(self, task: Task) -> bool:
        return task.operation in EXPERT_PRODUCTS and self._slots(task) is not None

    def _slots(self, task: Task) -> ExpertSlots | None:
        return None if task.layer is None else slots_of(self.plan.expert_slots, task.layer)

    @cached_property
    def readers(self) -> dict[int, tuple[int, ...]]:
        """By task that brings or expands something: the tasks that compute with it, in order; where none does, the last
        move of it."""
        result: dict[int, tuple[int, ...]] = {}
        for index in range(len(self.tasks) - 1, -1, -1):
            for dep in self.tasks[index].deps:
                if self.tasks[dep].kind not in MOVES:
                    continue
                if index not in self.uses:
                    if carry_alike(self.tasks[index], self.tasks[dep]):
                        result[dep] = result.get(index, (index,))
                elif self._computes_with(index, dep):
                    result[dep] = (index, *result.get(dep, ()))
        return result

    @cached_property
    def user(self) -> dict[int, int]:
        """By task that brings or expands something: the first task that computes with it."""
        return {move: readers[0] for move, readers in self.readers.items()}

    def _computes_with(self, index: int, move: int) -> bool:
        """Whether a task reads what a move brings; it may also just come after it, as at barriers everything does."""
        task, moved = self.tasks[index], self.tasks[move]
        if moved.payload == "weights":
            return moved.operation == task.operation
        return moved.payload in CACHED or (
            task.layer == moved.layer and reads_value(self.plan.model, task.layer, task.operation, moved.operation)
        )

    @cached_property
    def _routers(self) -> frozenset[tuple[int | None, str]]:
        """Return (block, device) of every router."""
        return frozenset((use.layer, use.device) for use in self.uses.values() if use.op == ROUTER)

    def routed_elsewhere(self, index: int) -> bool:
        """Whether a task computes experts, and another device their router: it adds nothing to hidden states."""
        use = self.uses[index]
        return self.tasks[index].kind == "experts" and (use.layer, use.device) not in self._routers

    @cached_property
    def devices(self) -> tuple[str, ...]:
        """Every device that computes, in order of first use."""
        return tuple(dict.fromkeys(use.device for use in self.uses.values()))

    def device_of(self, op: str) -> str:
        """The device of an operation outside blocks."""
        return next(use.device for use in self.uses.values() if use.op == op)

    @property
    def lanes(self) -> tuple[str, ...]:
        """Every lane that has a task, in order of first use."""
        return tuple(dict.fromkeys(task.resource for task in self.tasks))


def _beside(here: Sequence[bool]) -> SlotMode:
    """Return what happens to misses, some of which another device computes; `here`: of parts, whether slots are."""
    return "divided" if sum(here) > 1 else "host"


def passes_of(plan: Plan, drafts: int = 0) -> tuple[PhasePass, PhasePass]:
    """Prefill and decode, before any page of a cache with a window has left; `drafts`: that a step verifies. Raises
    BadInputError when the plan cannot be lowered."""
    work = plan.workload
    if windows(plan):
        work = work.model_copy(update={"prompt_tokens": 1})
    together = batches_together(plan)
    iterations = prefill(work, together), decode(work, 1, together)
    first, step = (PhasePass(plan, it.phase, lower(plan, it).tasks, drafts) for it in iterations)
    return first, step


def fetching_layers(passes: Sequence[PhasePass]) -> set[int]:
    """Return the blocks to whose slots experts come before they are computed, in any pass."""
    return {layer for one_pass in passes for layer, mode in one_pass.slotted.items() if mode == "fetched"}


def caches_stay(passes: Sequence[PhasePass]) -> bool:
    """Whether all keys and values are kept where they are used, in every phase: then a prompt may follow any part of
    what is cached. Plans of which something moves but weights, tokens and hidden states are not looked at closer; rings
    forget."""
    moves = (task for one_pass in passes for task in one_pass.tasks if task.kind in MOVES)
    own = all(move.payload == "weights" or move.operation in (TOKEN, HIDDEN, *LAYER_ROWS) for move in moves)
    return own and not forgets(passes[0].plan)


def forgets(plan: Plan) -> bool:
    """Whether a cache drops the keys and values of old tokens: one that is a ring, or has a window."""
    return bool(page_links(plan)) or any(ring_rows(plan, layer) is not None for layer in range(plan.model.layers))


def drops_drafts(passes: Sequence[PhasePass]) -> bool:
    """Whether decode steps may write over what an earlier one has cached of tokens that were not taken: all keys and
    values are used where they are kept, by operations that attend in one piece."""
    plan, tasks = passes[0].plan, [task for one_pass in passes for task in one_pass.tasks]
    moved = any(carries_cache(task) for task in tasks if task.kind in MOVES)
    return not (moved or any(task.kind in DIVIDED for task in tasks) or forgets(plan))


def rewinds(passes: Sequence[PhasePass]) -> bool:
    """Whether a prompt may follow any part of what is cached: caches stay, and no layer keeps a state, which is that
    of the last token alone."""
    return caches_stay(passes) and not keeps_states(passes[0].plan.model)


def goes_on(passes: Sequence[PhasePass]) -> bool:
    """Whether a prompt may follow all that is cached: windows of caches and states only go on."""
    plan = passes[0].plan
    return bool(page_links(plan)) or (caches_stay(passes) and keeps_states(plan.model))


def caches_native(passes: Sequence[PhasePass]) -> bool:
    """Whether native devices alone compute, whose caches can be taken for filled."""
    kinds = {device.name: device.kind for device in passes[0].plan.hardware.devices}
    return all(kinds[name] in NATIVE_KINDS for one_pass in passes for name in one_pass.devices)


def page_links(plan: Plan) -> dict[str, tuple[str, str]]:
    """By memory of windows, the links over which pages come there and leave."""
    links = {}
    for rule in plan.kv:
        if rule.cache is not None:
            come = plan.hardware.link(rule.memory, rule.cache.memory)
            leave = plan.hardware.link(rule.cache.memory, rule.memory)
            assert come is not None and leave is not None, "checked when the plan was accepted"
            links[rule.cache.memory] = come.name, leave.name
    return links


def slot_links(plan: Plan) -> tuple[str, ...]:
    """Return the links over which experts come to slots. Raises BadInputError where there is none."""
    links = dict[str, None]()
    for tensor in tensors(plan.model) if plan.expert_slots else ():
        rule = slots_of(plan.expert_slots, tensor.layer) if tensor.stacked and tensor.layer is not None else None
        if rule is not None:
            home = homes(plan, tensor)[0].rule.memory
            link = plan.hardware.link(home, rule.memory)
            if link is None:
                message, remedy = f"no link from memory {home} to memory {rule.memory}", "add a link"
                raise BadInputError(message, field="hardware.links", remedy=remedy)
            links[link.name] = None
    return tuple(links)


def carry_alike(one: Task, other: Task) -> bool:
    """Whether two moves carry the same, parts apart: one takes further, or expands, what the other has brought."""
    return (one.operation, one.payload) == (other.operation, other.payload)


def carries_cache(task: Task) -> bool:
    """Whether a move carries keys and values: cached ones, or those that a pass adds."""
    return task.payload in CACHED or task.operation == NEW_KV


def computing(phase_pass: PhasePass) -> Iterator[tuple[int, Task, DeviceUse]]:
    """(index, task, use) of every task that computes."""
    for index, use in phase_pass.uses.items():
        yield index, phase_pass.tasks[index], use
