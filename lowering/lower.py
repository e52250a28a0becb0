"""lower(plan, iteration): the one place where a plan's rules become tasks and dependencies."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from helmsman.lowering.arrivals import Arrivals, Arrived
from helmsman.lowering.caches import CACHE_OF, CACHED, appended_sizes
from helmsman.lowering.dataflow import inputs_of, names_of
from helmsman.lowering.emit import Emitter
from helmsman.lowering.graph import Task, TaskGraph
from helmsman.lowering.ops import Operation
from helmsman.lowering.placement import Placed
from helmsman.lowering.prefix import stored_sizes
from helmsman.lowering.rules import PREFIX, Slice, kv_rule, places, prefix_rule
from helmsman.lowering.streams import Resident, cached_of, hops, tokens_home, weights_of
from helmsman.lowering.turns import turns
from helmsman.lowering.variants import attending, reorders
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.hardware import Link, activation_lane
from helmsman.schemas.plan import ComputeRule

TOKEN_BYTES = 4


def lower(plan: Placed, iteration: Iteration) -> TaskGraph:
    """The task graph of one iteration: operations where the rules put them, and the transfers this implies.

    Raises BadInputError when a rule is missing or two memories that must exchange data have no link."""
    return TaskGraph(iteration, tuple(lower_tasks(plan, iteration)))


def lower_tasks(plan: Placed, iteration: Iteration) -> Iterator[Task]:
    """The tasks of `lower`, turn after turn, without keeping what has been handed out."""
    builder = _Builder(plan, attending(plan.schedule.cache, iteration), Emitter(iteration))
    for ops in turns(plan, iteration):
        yield from builder.turn(ops)
    yield from builder.return_tokens()


@dataclass
class _Value:
    """An activation: its bytes, the tasks that make it and where, and the tasks that brought it to each memory.

    `parts`: new keys and values only, the tasks that brought to a memory what lives there."""

    size: int
    made: list[tuple[str, int, float]]
    at: dict[str, tuple[int, ...]] = field(default_factory=dict)
    parts: dict[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass
class _Builder:
    """Hands out tasks turn by turn; `values` maps (batch, operation) to its latest output.

    `consumers`: by unit, the tasks that used data streamed for it; `brought`: streamed weights by unit, what and where;
    `worked`: by unit, batch and device, its tasks; `gate`: what the turn waits for where there are barriers;
    `opened`: its first task, `opening`: its first operation; `closed`: by unit, its last operation; `kept`: new keys
    and values that have not left yet; `stored`: by batch, what brought the block's known tokens from their store."""

    plan: Placed
    iteration: Iteration
    out: Emitter
    values: dict[tuple[int, str], _Value] = field(default_factory=dict)
    consumers: dict[int, list[int]] = field(default_factory=dict)
    brought: dict[tuple[int, str, str, int, int], list[int]] = field(default_factory=dict)
    worked: dict[tuple[int, int, str], list[int]] = field(default_factory=dict)
    gate: list[int] = field(default_factory=list)
    kept: tuple[Operation, _Value] | None = None
    stored: dict[int, tuple[int, ...]] = field(default_factory=dict)
    opened: int = 0
    opening: str = ""
    closed: dict[int, int] = field(default_factory=dict)
    now: int = 0
    memory_of: dict[str, str] = field(init=False)
    arrivals: Arrivals = field(init=False)

    def __post_init__(self) -> None:
        self.memory_of = {device.name: device.memory for device in self.plan.hardware.devices}
        self.arrivals = Arrivals(self.plan, self.out, self.memory_of)

    def turn(self, ops: tuple[Operation, ...]) -> Iterator[Task]:
        """The tasks of some operations for every batch of the pass."""
        self._forget(ops[0].unit)
        self._close_gate(ops)
        for batch in range(self.iteration.batches):
            self.out.batch = batch
            for op in ops:
                self._add_op(op)
            self._send_kept()
        yield from self.out.take()

    def _forget(self, unit: int) -> None:
        """Drop what units before `unit` will not be asked for."""
        self.brought = {key: tasks for key, tasks in self.brought.items() if key[0] >= unit}
        self.worked = {key: tasks for key, tasks in self.worked.items() if key[0] >= unit}
        depth = self.plan.schedule.prefetch + 1
        latest = {key % depth: key for key in sorted(self.consumers) if key < unit}
        self.consumers = {k: tasks for k, tasks in self.consumers.items() if k >= unit or k == latest[k % depth]}
        oldest = unit - depth
        self.closed = {key: task for key, task in self.closed.items() if key >= oldest}

    def _close_gate(self, ops: tuple[Operation, ...]) -> None:
        """With barriers: what the first operations of this unit wait for, all of the unit before and all weights."""
        if not self.plan.schedule.barrier:
            return
        if self.arrivals.launched is not None:
            self.closed[ops[0].unit - 1] = self.arrivals.launched
        self.opening = ops[0].name
        self.gate = list(range(self.opened, self.out.count))
        self.opened, self.out.batch = self.out.count, 0
        coming: dict[tuple[int, str, str, int, int], list[Arrived]] = {}
        for op in ops:
            self.now = op.unit
            for piece in self._places(op):
                weights = self._weights(op, piece.start, piece.stop)
                key = (op.unit, op.name, piece.rule.device, piece.start, piece.stop)
                coming[key] = self._bring_weights(op, piece.rule.device, weights, piece.start, piece.stop)
        self._expand_all(coming)

    def _expand_all(self, coming: dict[tuple[int, str, str, int, int], list[Arrived]]) -> None:
        """With barriers 4-bit groups are expanded on arrival, or once all that the unit needs has come."""
        self.gate += [task for arrived in coming.values() for each in arrived for task in each.deps]
        ahead = self.plan.schedule.expand == "on-arrival"
        after = () if ahead else tuple(sorted(set(self.gate)))
        self.brought |= {key: self.arrivals.expand(arrived, after) for key, arrived in coming.items()}
        self.gate += [task for key in coming for task in self.brought[key]]

    def return_tokens(self) -> Iterator[Task]:
        """The chosen tokens go back to where the next step's embedding is looked up."""
        home = tokens_home(self.plan, self.iteration.phase)
        for batch in range(self.iteration.batches):
            self.out.batch = batch
            head = self.values[batch, "head"]
            memory, made, _ = head.made[-1]
            if home != memory:
                size = TOKEN_BYTES * self.iteration.batch
                self._send("token", None, (memory, home), size, "f32", (made,))
        yield from self.out.take()

    def _add_op(self, op: Operation) -> None:
        self.now = op.unit
        made: list[tuple[str, int, float]] = []
        for piece in self._places(op):
            device = piece.rule.device
            if device not in self.memory_of:
                raise BadInputError("no such device in the plan's hardware", field="compute", value=device)
            index = self._piece(op, device, piece.start, piece.stop)
            made.append((self.memory_of[device], index, (piece.stop - piece.start) / op.extent))
        value = _Value(op.out_bytes, made)
        self.values |= {(self.out.batch, name): value for name in names_of(op.name)}
        if op.kind == "append":
            self._written(op, made)

    def _places(self, op: Operation) -> tuple[Slice[ComputeRule], ...]:
        return places(self.plan, op.name, op.layer, self.iteration.phase, op.extent, op.axis)

    def _piece(self, op: Operation, device: str, start: int, stop: int) -> int:
        """The part start <= i < stop of an operation on `device`, after everything it reads has come there."""
        memory = self.memory_of[device]
        weights = self._weights(op, start, stop)
        deps = self.gate if op.name == self.opening else []
        deps = deps + [task for name in self._inputs(op) for task in self._input(name, op, memory, start, stop)]
        streams = self._stream_weights(op, device, weights, start, stop)
        cached = self._stream_kv(op, device, start, stop)
        known = self._known(op)
        streams = streams + cached
        deps += [*streams, *known, *self._reshaped(op, device, start, stop, [*cached, *known])]
        index = self._compute(op, device, weights, deps, start, stop)
        if streams:
            self.consumers.setdefault(self.now, []).append(index)
        return index

    def _weights(self, op: Operation, start: int, stop: int) -> list[Resident]:
        rows = op.tokens if op.kind == "lookup" else 0
        first, last = (0, 1 << 62) if op.extent == 1 else (start, stop)
        return weights_of(self.plan, op.tensors, first, last, rows)

    def _inputs(self, op: Operation) -> Iterable[str]:
        reordered = op.layer is not None and reorders(self.plan.schedule.cache, self.iteration)
        return (name for name in inputs_of(op.name, reordered) if (self.out.batch, name) in self.values)

    def _compute(
        self, op: Operation, device: str, weights: list[Resident], deps: list[int], start: int, stop: int
    ) -> int:
        part = (stop - start) / op.extent
        index = self.out.append(
            op.name if part == 1.0 else f"{op.name}:{start}-{stop}",
            op.layer,
            op.kind,
            op.name,
            device,
            size=sum(weight.used for weight in weights) + round(op.kv_read * part),
            fmt=self._format(op, weights),
            memories=(self.memory_of[device],),
            deps=tuple(sorted(set(deps))),
            tokens=op.tokens,
            activation_bytes=round(op.activation_bytes * part),
            flops=round(op.flops * part),
        )
        self.arrivals.launched = index
        self.worked.setdefault((self.now, self.out.batch, device), []).append(index)
        return index

    def _input(self, name: str, op: Operation, memory: str, start: int, stop: int) -> tuple[int, ...]:
        """The tasks after which an input of an operation's part is in `memory`.

        New keys and values that live there as they are used have been sent there; others come all together."""
        value = self.values[self.out.batch, name]
        if memory in value.parts and self._ready_at_home(op, memory, start, stop):
            return value.parts[memory]
        return self._bring(name, memory, op.layer)

    def _ready_at_home(self, op: Operation, memory: str, start: int, stop: int) -> bool:
        """Whether all that heads start <= h < stop read is kept in `memory`, as it is used."""
        if self.plan.schedule.reshape:
            return False
        return all(each.lives_in(memory) and each.format != "q4" for each in self._cached(op, start, stop))

    def _bring(self, name: str, memory: str, layer: int | None) -> tuple[int, ...]:
        """The tasks after which value `name` is in `memory`; adds transfers the first time it is not."""
        value = self.values[self.out.batch, name]
        if memory not in value.at:
            value.at[memory] = tuple(self._carried(name, value, memory, layer))
        return value.at[memory]

    def _carried(self, name: str, value: _Value, memory: str, layer: int | None) -> Iterator[int]:
        label = "hidden" if name == "input" else name
        for number, (origin, made, part) in enumerate(value.made):
            if origin == memory:
                yield made
                continue
            what = label if len(value.made) == 1 else f"{label}:{number}"
            size, deps = round(value.size * part), (made, *value.parts.get(memory, ()))
            yield self._send(what, layer, (origin, memory), size, self.plan.activations, deps, label)

    def _send(
        self,
        what: str,
        layer: int | None,
        ends: tuple[str, str],
        size: int,
        fmt: StoredFormat,
        deps: tuple[int, ...],
        op: str | None = None,
    ) -> int:
        """The last transfer of an activation from memory to memory: the only one, or the second through the host."""
        for hop in hops(self.plan, *ends, size, "pinned"):
            deps = (self.out.transfer(what, layer, hop, fmt, deps, op, self._activation_lane(hop.link)),)
        return deps[0]

    def _stream_weights(self, op: Operation, device: str, weights: list[Resident], start: int, stop: int) -> list[int]:
        """Transfers of the weights that do not live where the operation runs; one for all batches of a pass."""
        key = (op.unit, op.name, device, start, stop)
        if key not in self.brought:
            self.brought[key] = self.arrivals.expand(self._bring_weights(op, device, weights, start, stop))
        return self.brought[key]

    def _bring_weights(
        self, op: Operation, device: str, weights: list[Resident], start: int, stop: int
    ) -> list[Arrived]:
        """Of a table come the rows of all batches, whose tokens are known when the pass begins."""
        suffix, deps = "" if stop - start == op.extent else f":{start}-{stop}", self._may_start()
        if op.kind == "lookup":
            weights = [replace(each, elements=self.iteration.batches * each.elements) for each in weights]
        return self.arrivals.bring(f"{op.name}.weights", suffix, op, device, weights, deps, deps)

    def _stream_kv(self, op: Operation, device: str, start: int, stop: int) -> list[int]:
        """Transfers of a block's past keys and values when they are used away from their home."""
        if op.name not in CACHED or op.layer is None or self.iteration.past == 0:
            return []
        suffix = "" if stop - start == op.extent else f":{start}-{stop}"
        cached = self._cached(op, start, stop)
        deps, expanding = (*self._cache_may_start(device), *self._known(op)), (*self._may_start(), *self._known(op))
        return self.arrivals.expand(self.arrivals.bring(CACHE_OF[op.name], suffix, op, device, cached, deps, expanding))

    def _known(self, op: Operation) -> tuple[int, ...]:
        """What brought the keys and values of known tokens that an operation reads."""
        return self.stored.get(self.out.batch, ()) if op.name in CACHED else ()

    def _bring_known(self, op: Operation) -> None:
        """Transfers of known tokens from their store to the cache's homes; they leave as soon as the pass begins, block
        after block, since their place in the caches is kept for them."""
        layer, found = op.layer or 0, list[int]()
        rule = prefix_rule(self.plan, layer)
        sizes = stored_sizes(self.plan, layer, self.iteration.batch) if self.iteration.phase == "prefill" else {}
        for number, ((home, fmt), size) in enumerate(sizes.items()):
            assert rule is not None
            name, deps = f"{PREFIX}.{number}" if number else PREFIX, tuple[int, ...]()
            for hop in hops(self.plan, rule.memory, home, size, rule.path):
                deps = (self.out.transfer(name, layer, hop, fmt, deps, PREFIX),)
            found += deps
        self.stored[self.out.batch] = tuple(found)

    def _cached(self, op: Operation, start: int, stop: int) -> list[Resident]:
        """The past keys or values that heads start <= h < stop read (all heads of undivided attention)."""
        part = (0, self.plan.model.kv_heads) if op.name == "attention" else (start, stop)
        return cached_of(self.plan, self.iteration, CACHED[op.name], op.layer or 0, *part)

    def _written(self, op: Operation, made: list[tuple[str, int, float]]) -> None:
        """New keys and values: where they were made, and on their way to the cache's homes, as they are kept there."""
        self._bring_known(op)
        value = _Value(op.kv_write, made)
        self.values[self.out.batch, "new_kv"] = value
        if self.plan.schedule.barrier and not self._read_elsewhere(op, made[0][0]):
            self.kept = op, value
        else:
            self._send_new(op, value, (made[0][1],))

    def _read_elsewhere(self, op: Operation, memory: str) -> bool:
        """Whether attention reads new keys and values in another memory than that in which they are made."""
        heads, phase = self.plan.model.kv_heads, self.iteration.phase
        found = (
            place for name in ("scores", "wv") for place in places(self.plan, name, op.layer, phase, heads, "heads")
        )
        return any(self.memory_of[place.rule.device] != memory for place in found)

    def _send_kept(self) -> None:
        """With barriers new keys and values leave once their batch is done with the layer, and the next one waits for
        them: FlexGen stores caches synchronously (PARK-71)."""
        if self.kept is not None:
            (op, value), self.kept = self.kept, None
            before = self.out.count
            self._send_new(op, value, tuple(sorted({value.made[0][1], self.arrivals.launched or 0})))
            self.gate = [*self.gate, *range(before, self.out.count)]

    def _send_new(self, op: Operation, value: _Value, after: tuple[int, ...]) -> None:
        memory = value.made[0][0]
        sizes = appended_sizes(self.plan, op.layer or 0, op.tokens)
        for number, ((home, fmt), size) in enumerate(sizes.items()):
            if home != memory:
                name, deps = f"kv.new.{number}" if number else "kv.new", after
                for hop in hops(self.plan, memory, home, size, "pinned"):
                    deps = (self.out.transfer(name, op.layer, hop, fmt, deps, "kv"),)
                value.parts[home] = (*value.parts.get(home, ()), *deps)

    def _reshaped(self, op: Operation, device: str, start: int, stop: int, arrived: list[int]) -> list[int]:
        """Caches that are kept (batch, tokens, hidden) are turned once they are here (PARK-14, 15)."""
        if not self.plan.schedule.reshape or op.name not in CACHED or self.iteration.past == 0:
            return []
        memory = self.memory_of[device]
        suffix = "" if stop - start == op.extent else f":{start}-{stop}"
        index = self.out.append(
            f"{op.name}{suffix}.reshape",
            op.layer,
            "reshape",
            f"{op.name}.reshape",
            device,
            size=2 * sum(each.used for each in self._cached(op, start, stop)),
            fmt=self._format(op, []),
            memories=(memory, memory),
            deps=tuple(arrived),
        )
        return [index]

    def _may_start(self) -> tuple[int, ...]:
        """When resident data of this unit may leave its home.

        overlap none: after the operation before; next-layer: when its buffers are free, that is after the operations
        of the last unit that used them: `prefetch` + 1 places back, or as many times that where those between bring
        nothing; with barriers, when the unit `prefetch` + 1 places back is done."""
        if self.plan.schedule.overlap == "none":
            return self.arrivals.after_launched()
        depth = self.plan.schedule.prefetch + 1
        if self.plan.schedule.barrier:
            back = self.now - depth
            return tuple(self.closed[unit] for unit in (back,) if unit in self.closed)
        used = (unit for unit in self.consumers if unit < self.now and (self.now - unit) % depth == 0)
        return tuple(self.consumers.get(max(used, default=-1), ()))

    def _cache_may_start(self, device: str) -> tuple[int, ...]:
        """A device holds the cache of one batch at a time: the next one comes after the work on it (E-PARK-04)."""
        if self.out.batch and self.plan.schedule.overlap == "next-layer":
            return tuple(self.worked.get((self.now, self.out.batch - 1, device), ()))
        return self._may_start()

    def _activation_lane(self, link: Link) -> str:
        """Activations do not queue behind weights that come ahead: they have a lane of the same link."""
        return activation_lane(link.name) if self.plan.schedule.overlap == "next-layer" else link.name

    def _format(self, op: Operation, weights: list[Resident]) -> StoredFormat:
        """The format of most bytes that the operation reads."""
        if op.name in CACHED:
            rule = kv_rule(self.plan, op.layer or 0)
            return rule.expanded if rule.format == "q4" else rule.format
        return max(weights, key=lambda weight: weight.used).expanded if weights else self.plan.activations
