"""lower(plan, iteration): the one place where a plan's rules become tasks and dependencies."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self, TypeVar

from helmsman.lowering.activations import ActivationTransfers, Value
from helmsman.lowering.arrivals import FetchedData, Fetches
from helmsman.lowering.bodies.attention import NEW_KV
from helmsman.lowering.bodies.experts import ROUTER
from helmsman.lowering.caches import CACHED
from helmsman.lowering.cargo import cargo, rows_word
from helmsman.lowering.emit import Emitter, repeated
from helmsman.lowering.expert_parts import slot_device
from helmsman.lowering.graph import RepeatingGraph, Task, TaskGraph, TaskRun
from helmsman.lowering.layer_cache import cache_of
from helmsman.lowering.outlook import Outlook, RememberedValue
from helmsman.lowering.page_moves import PageMoves
from helmsman.lowering.parts import DividedOperation, OperationPart
from helmsman.lowering.placement import KnownPlan, Placed, known
from helmsman.lowering.prefix import stored_sizes
from helmsman.lowering.repeats import task_runs
from helmsman.lowering.rules import PREFIX, places, prefix_rule, slots_of
from helmsman.lowering.streams import MemoryRoutes, tokens_home
from helmsman.lowering.turns import TurnPart, turns
from helmsman.lowering.variants import attending
from helmsman.scheduler.iteration import Iteration

_KeyT = TypeVar("_KeyT")
_Streamed = tuple[int, str, str, int]
"""Weights that are streamed: stage and operation, device, first row."""


def lower(plan: Placed, iteration: Iteration) -> TaskGraph:
    """Return the task graph of one iteration: operations where the rules put them, and the transfers this implies.

    Raises BadInputError when a rule is missing or two memories that must exchange data have no link."""
    return TaskGraph(iteration, tuple(lower_tasks(plan, iteration)))


def lower_tasks(plan: Placed, iteration: Iteration) -> Iterator[Task]:
    """Yield the tasks of `lower`, without keeping what has been handed out."""
    for run in lower_runs(plan, iteration).runs:
        yield from repeated(run)


def lower_turns(plan: Placed, iteration: Iteration) -> Iterator[tuple[Task, ...]]:
    """Yield the tasks of `lower` by turn (`turns`), all made one by one; the last ones return the chosen tokens of all
    batches."""
    builder = TaskBuilder.of(known(plan), iteration)
    for parts in turns(builder.plan, iteration):
        yield builder.turn(parts)
    yield builder.return_tokens()


def lower_runs(plan: Placed, iteration: Iteration) -> RepeatingGraph:
    """Return the tasks of `lower`, those of turns that repeat each other once."""
    builder = TaskBuilder.of(known(plan), iteration)
    runs = tuple(task_runs(builder, tuple(turns(builder.plan, iteration))))
    return RepeatingGraph(iteration, (*runs, TaskRun(builder.return_tokens())))


class Step(NamedTuple):
    """An operation of block `layer` (None: of an end of the model) in stage `unit` of a pass."""

    work: DividedOperation
    layer: int | None
    unit: int


def _streamed(step: Step, part: OperationPart) -> _Streamed:
    return step.unit, step.work.op.name, part.device, part.start


def _pairs(lists: dict[_KeyT, list[int]]) -> tuple[tuple[_KeyT, tuple[int, ...]], ...]:
    return tuple([(key, tuple(numbers)) for key, numbers in lists.items()])


def _lists(pairs: tuple[tuple[_KeyT, tuple[int, ...]], ...]) -> dict[_KeyT, list[int]]:
    return {key: list(numbers) for key, numbers in pairs}


@dataclass
class TaskBuilder:
    """Hands out tasks turn by turn; `values` maps (batch, operation) to its latest output.

    `consumers`: by memory and unit, the tasks that used data streamed there for it; `brought`: streamed weights by
    unit, what and where; `worked`: by unit, batch and device, its tasks; `gate`: what the turn waits for where there
    are barriers; `opened`: its first task, `opening`: its first operation; `closed`: by unit, its last operation;
    `kept`: new keys and values that have not left yet; `stored`: by batch, what brought the block's known tokens from
    their store."""

    plan: KnownPlan
    iteration: Iteration
    out: Emitter
    values: dict[tuple[int, str], Value] = field(default_factory=dict)
    consumers: dict[str, dict[int, list[int]]] = field(default_factory=dict)
    brought: dict[_Streamed, list[int]] = field(default_factory=dict)
    worked: dict[tuple[int, int, str], list[int]] = field(default_factory=dict)
    gate: list[int] = field(default_factory=list)
    kept: tuple[Step, Value] | None = None
    stored: dict[int, tuple[int, ...]] = field(default_factory=dict)
    opened: int = 0
    opening: str = ""
    closed: dict[int, int] = field(default_factory=dict)
    now: int = 0
    ways: MemoryRoutes = field(init=False)
    memory_of: dict[str, str] = field(init=False)
    arrivals: Fetches = field(init=False)
    activations: ActivationTransfers = field(init=False)
    pages: PageMoves = field(init=False)

    @classmethod
    def of(cls, plan: KnownPlan, iteration: Iteration) -> Self:
        """Return the builder of a pass of a plan."""
        return cls(plan, attending(plan.schedule.cache, iteration), Emitter(iteration))

    def __post_init__(self) -> None:
        self.ways = MemoryRoutes(self.plan.hardware)
        self.memory_of = {device.name: device.memory for device in self.plan.hardware.devices}
        self.arrivals = Fetches(self.plan, self.out, self.ways, self.memory_of)
        ahead = self.plan.schedule.overlap == "next-layer" or bool(self.plan.expert_slots)
        self.activations = ActivationTransfers(self.plan.activations, self.out, self.ways, own_lane=ahead)
        self.pages = PageMoves(self.plan, self.out, self.ways)

    def turn(self, parts: tuple[TurnPart, ...]) -> tuple[Task, ...]:
        """Return the tasks of some operations for every batch of the pass."""
        steps = [Step(work, part.layer, part.unit) for part in parts for work in part.works]
        self._forget(steps[0].unit)
        self._close_gate(steps)
        for batch in range(self.iteration.batches):
            self.out.batch = batch
            for step in steps:
                self._add_op(step)
            self._send_kept()
        return self.out.take()

    def outlook(self, turn: tuple[TurnPart, ...], live: frozenset[str]) -> Outlook:
        """Return all that tasks from a turn on may wait for, by how far it lies back; `live`: the outputs that this
        turn or a later one reads."""
        unit, values, names = turn[0].unit, list[Value](), list[tuple[tuple[int, str], int]]()
        self._forget(unit)
        places: dict[int, int] = {}
        for key, value in self.values.items():
            if key[1] in live:
                names.append((key, places.setdefault(id(value), len(places))))
                if len(places) > len(values):
                    values.append(value)
        return Outlook(
            values=tuple([RememberedValue.of(value) for value in values]),
            names=tuple(names),
            consumers=tuple((memory, _pairs(by_unit)) for memory, by_unit in self.consumers.items()),
            worked=_pairs(self.worked),
            closed=tuple(self.closed.items()),
            opened=self.opened if self.plan.schedule.barrier else self.out.count,
            stored=tuple(self.stored.items()),
            launched=self.arrivals.launched,
            latest=tuple(self.arrivals.latest.items()),
            readers=_pairs(self.pages.readers),
        ).moved(-self.out.count, -unit)

    def skip(self, outlook: Outlook, tasks: int, unit: int) -> None:
        """Go on as if so many more tasks had been made and stage `unit` came next, before which all looks as in
        `outlook`."""
        self.out.count += tasks
        before = outlook.moved(self.out.count, unit)
        values = [remembered.value() for remembered in before.values]
        self.values = {key: values[place] for key, place in before.names}
        self.consumers = {memory: _lists(by_unit) for memory, by_unit in before.consumers}
        self.brought, self.worked = {}, _lists(before.worked)
        self.closed, self.stored = dict(before.closed), dict(before.stored)
        self.opened = before.opened
        self.arrivals.launched, self.arrivals.latest = before.launched, dict(before.latest)
        self.pages.readers = _lists(before.readers)

    def _forget(self, unit: int) -> None:
        """Drop what units before `unit` will not be asked for."""
        self.brought = {key: tasks for key, tasks in self.brought.items() if key[0] >= unit}
        self.worked = {key: tasks for key, tasks in self.worked.items() if key[0] >= unit}
        depth = self.plan.schedule.prefetch + 1
        for memory, consumer in self.consumers.items():
            before = sorted(key for key in consumer if key < unit)[-depth:]
            self.consumers[memory] = {key: tasks for key, tasks in consumer.items() if key >= unit or key in before}
        oldest = unit - depth
        self.closed = {key: task for key, task in self.closed.items() if key >= oldest}

    def _close_gate(self, steps: Sequence[Step]) -> None:
        """With barriers: what the first operations of this unit wait for, all of the unit before and all weights."""
        if not self.plan.schedule.barrier:
            return
        if self.arrivals.launched is not None:
            self.closed[steps[0].unit - 1] = self.arrivals.launched
        self.opening = steps[0].work.op.name
        self.gate = list(range(self.opened, self.out.count))
        self.opened, self.out.batch = self.out.count, 0
        coming: dict[_Streamed, list[FetchedData]] = {}
        for step in steps:
            self.now = step.unit
            for part in step.work.parts:
                if part.weights:
                    coming[_streamed(step, part)] = self._bring_weights(step, part)
        self._expand_all(coming)

    def _expand_all(self, coming: dict[_Streamed, list[FetchedData]]) -> None:
        """With barriers 4-bit groups are expanded on arrival, or once all that the unit needs has come."""
        self.gate += [task for arrived in coming.values() for data in arrived for task in data.deps]
        ahead = self.plan.schedule.expand == "on-arrival"
        after = () if ahead else tuple(sorted(set(self.gate)))
        self.brought |= {key: self.arrivals.expand(arrived, after) for key, arrived in coming.items()}
        self.gate += [task for key in coming for task in self.brought[key]]

    def return_tokens(self) -> tuple[Task, ...]:
        """The chosen tokens go back to where the next step's embedding is looked up, whatever this pass is."""
        home = tokens_home(self.plan, "decode")
        for batch in range(self.iteration.batches):
            self.out.batch = batch
            self.activations.return_tokens(self.values[batch, "head"], home, self.iteration.chosen)
        return self.out.take()

    def _add_op(self, step: Step) -> None:
        self.now, work = step.unit, step.work
        whole = work.op.adds_up
        made = [(part.memory, self._part(step, part), 1.0 if whole else part.share) for part in work.parts]
        value = Value(work.op.out_bytes, made)
        for name in work.names:
            self.values[self.out.batch, name] = value
        if work.op.kind == "experts":
            self._keep_parts(work, made)
        if work.op.kind == "append":
            self._written(step, made)

    def _keep_parts(self, work: DividedOperation, made: list[tuple[str, int, float]]) -> None:
        """Remember what the experts of each device have made: others do not read it."""
        for part, own in zip(work.parts, made, strict=True):
            if part.rows is not None:
                self.values[self.out.batch, part.word] = Value(round(own[2] * work.op.out_bytes), [own])

    def _value(self, name: str, part: OperationPart) -> Value | None:
        """Return an output that a part reads: of experts those of its own device, where they are divided alike."""
        own = self.values.get((self.out.batch, rows_word(name, part.rows))) if part.rows is not None else None
        if own is not None and own.made[0][0] == part.memory:
            return own
        return self.values.get((self.out.batch, name))

    def _part(self, step: Step, part: OperationPart) -> int:
        """Return a part of an operation, after everything it reads has come to its device."""
        deps = set(self.gate if step.work.op.name == self.opening else ())
        for name in step.work.inputs:
            value = self._value(name, part)
            if value is not None:
                deps.update(self.activations.reaching(name, value, step.layer, part))
        streams = self._stream_weights(step, part) if part.weights else []
        cached = self._stream_kv(step, part) if part.cached else []
        known_tokens = self._known(step)
        deps.update(streams, cached, known_tokens)
        if part.turned is not None:
            deps.add(self._reshaped(step, part, part.turned, (*cached, *known_tokens)))
        if part.window is not None:
            part = self.pages.attend(step.work.op, step.layer or 0, part, part.window, deps)
        index = self._compute(step, part, tuple(sorted(deps)))
        if part.entering:
            self._enter(step, part, index)
        if part.window is not None:
            self.pages.evict(step.layer or 0, part.window)
        if streams or cached:
            self.consumers.setdefault(part.memory, {}).setdefault(self.now, []).append(index)
        return index

    def _compute(self, step: Step, part: OperationPart, deps: tuple[int, ...]) -> int:
        index = self.out.operation(step.work.op, part, step.layer, deps)
        self.arrivals.launched = index
        self.worked.setdefault((self.now, self.out.batch, part.device), []).append(index)
        return index

    def _stream_weights(self, step: Step, part: OperationPart) -> list[int]:
        """Transfers of the weights that do not live where the operation runs; one for all batches of a pass."""
        key = _streamed(step, part)
        if key not in self.brought:
            self.brought[key] = self.arrivals.expand(self._bring_weights(step, part))
        return self.brought[key]

    def _bring_weights(self, step: Step, part: OperationPart) -> list[FetchedData]:
        deps = self._chosen(step, part) if part.on_demand else self._may_start(part.memory)
        return self.arrivals.bring(step.layer, part.device, part.weights, deps, deps)

    def _chosen(self, step: Step, part: OperationPart) -> tuple[int, ...]:
        """Return the tasks after which it is known where experts wait which of them come."""
        home = part.weights[0].resident.copies[0][0]
        return self.activations.reaching(
            ROUTER, self.values[self.out.batch, ROUTER], step.layer, part._replace(memory=home)
        )

    def _enter(self, step: Step, part: OperationPart, computed: int) -> None:
        """Transfers of experts that missed to slots, once they have been computed where they wait: the next pass may
        find them there, and nothing of this one waits for them."""
        rule = slots_of(self.plan.expert_slots, step.layer or 0)
        assert rule is not None
        device = slot_device(self.plan, rule)
        self.arrivals.bring(step.layer, device, part.entering, (computed,), (computed,))

    def _stream_kv(self, step: Step, part: OperationPart) -> list[int]:
        """Transfers of a block's past keys and values when they are used away from their home."""
        known_tokens = self._known(step)
        deps = (*self._cache_may_start(part), *known_tokens)
        expanding = (*self._may_start(part.memory), *known_tokens)
        return self.arrivals.expand(self.arrivals.bring(step.layer, part.device, part.cached, deps, expanding))

    def _known(self, step: Step) -> tuple[int, ...]:
        """Return what brought the keys and values of known tokens that an operation reads."""
        return self.stored.get(self.out.batch, ()) if step.work.op.name in CACHED else ()

    def _bring_known(self, layer: int) -> None:
        """Transfers of known tokens from their store to the cache's homes; they leave as soon as the pass begins, block
        after block, since their place in the caches is kept for them."""
        transfers = list[int]()
        rule = prefix_rule(self.plan, layer)
        sizes = stored_sizes(self.plan, layer, self.iteration.batch) if self.iteration.phase == "prefill" else {}
        for number, ((home, fmt), size) in enumerate(sizes.items()):
            assert rule is not None
            prefix, deps = cargo(PREFIX, "prefix", piece=number or None), tuple[int, ...]()
            for hop in self.ways.hops(rule.memory, home, size, rule.path):
                deps = (self.out.transfer(prefix, layer, hop, fmt, deps),)
            transfers += deps
        self.stored[self.out.batch] = tuple(transfers)

    def _written(self, step: Step, made: list[tuple[str, int, float]]) -> None:
        """New keys and values: where they were made, and on their way to the cache's homes, as they are kept there."""
        self._bring_known(step.layer or 0)
        value = Value(step.work.op.kv_write, made)
        self.values[self.out.batch, NEW_KV] = value
        if self.plan.schedule.barrier and not self._read_elsewhere(step.layer, made[0][0]):
            self.kept = step, value
        else:
            self._send_new(step, value, (made[0][1],))

    def _read_elsewhere(self, layer: int | None, memory: str) -> bool:
        """Whether attention reads new keys and values in another memory than that in which they are made."""
        cache, phase = cache_of(self.plan.model, layer or 0), self.iteration.phase
        heads = 1 if cache is None else cache.heads
        pieces = (place for name in ("scores", "wv") for place in places(self.plan, name, layer, phase, heads, "heads"))
        return any(self.memory_of[place.rule.device] != memory for place in pieces)

    def _send_kept(self) -> None:
        """With barriers new keys and values leave once their batch is done with the layer, and the next one waits for
        them: FlexGen stores caches synchronously (PARK-71)."""
        if self.kept is not None:
            (step, value), self.kept = self.kept, None
            before = self.out.count
            self._send_new(step, value, tuple(sorted({value.made[0][1], self.arrivals.launched or 0})))
            self.gate = [*self.gate, *range(before, self.out.count)]

    def _send_new(self, step: Step, value: Value, after: tuple[int, ...]) -> None:
        memory = value.made[0][0]
        for new, home, fmt, size in step.work.appended:
            if home != memory:
                deps = after
                for hop in self.ways.hops(memory, home, size, "pinned"):
                    deps = (self.out.transfer(new, step.layer, hop, fmt, deps),)
                value.parts[home] = (*value.parts.get(home, ()), *deps)

    def _reshaped(self, step: Step, part: OperationPart, size: int, arrived: tuple[int, ...]) -> int:
        """Caches that are kept (batch, tokens, hidden) are turned once they are here (PARK-14, 15)."""
        cached, memories = cargo(step.work.op.name, "cache", part.rows), (part.memory, part.memory)
        return self.out.preparation("reshape", cached, step.layer, part.device, size, part.format, memories, arrived)

    def _may_start(self, memory: str) -> tuple[int, ...]:
        """When resident data of this unit may leave its home for `memory`.

        overlap none: after the operation before; next-layer: when its buffers are free, that is after the operations
        for which the unit `prefetch` + 1 places back among those that bring something there brought it; with barriers,
        when the unit `prefetch` + 1 places back is done."""
        if self.plan.schedule.overlap == "none":
            return self.arrivals.after_launched()
        depth = self.plan.schedule.prefetch + 1
        if self.plan.schedule.barrier:
            back = self.now - depth
            return tuple(self.closed[unit] for unit in (back,) if unit in self.closed)
        consumer = self.consumers.get(memory, {})
        used = sorted(unit for unit in consumer if unit < self.now)[-depth:]
        return tuple(consumer[used[0]]) if len(used) == depth else ()

    def _cache_may_start(self, part: OperationPart) -> tuple[int, ...]:
        """A device holds the cache of one batch at a time: the next one comes after the work on it (E-PARK-04)."""
        if self.out.batch and self.plan.schedule.overlap == "next-layer":
            return tuple(self.worked.get((self.now, self.out.batch - 1, part.device), ()))
        return self._may_start(part.memory)
