"""lower(plan, iteration): the one place where a plan's rules become tasks and dependencies."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from helmsman.lowering.emit import Emitter
from helmsman.lowering.graph import Task, TaskGraph
from helmsman.lowering.ops import Operation
from helmsman.lowering.placement import Placed
from helmsman.lowering.rules import Cached, Slice, kv_homes, kv_rule, places
from helmsman.lowering.streams import Resident, hops, weights_of
from helmsman.lowering.turns import turns
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.formats import StoredFormat, size_of
from helmsman.schemas.hardware import Link, activation_lane
from helmsman.schemas.plan import ComputeRule

TOKEN_BYTES = 4

_INPUTS: dict[str, tuple[str, ...]] = {
    "norm1": ("input",),
    "q": ("norm1",),
    "k": ("norm1",),
    "v": ("norm1",),
    "append": ("q", "k", "v"),
    "attention": ("append", "new_kv"),
    "scores": ("append", "new_kv"),
    "softmax": ("scores",),
    "wv": ("softmax", "new_kv"),
    "o": ("attention", "input"),
    "norm2": ("o",),
    "gate": ("norm2",),
    "up": ("norm2", "gate"),
    "down": ("up", "o"),
    "final_norm": ("input",),
    "head": ("final_norm",),
    "embedding": (),
}

_ALSO = {"wv": "attention", "embedding": "input", "down": "input"}
"""By which other name an output is read: what comes out of attention, and what goes into the next unit."""

_CACHED: dict[str, tuple[Cached, ...]] = {"attention": ("keys", "values"), "scores": ("keys",), "wv": ("values",)}


def lower(plan: Placed, iteration: Iteration) -> TaskGraph:
    """The task graph of one iteration: operations where the rules put them, and the transfers this implies.

    Raises BadInputError when a rule is missing or two memories that must exchange data have no link."""
    return TaskGraph(iteration, tuple(lower_tasks(plan, iteration)))


def lower_tasks(plan: Placed, iteration: Iteration) -> Iterator[Task]:
    """The tasks of `lower`, turn after turn, without keeping what has been handed out."""
    builder = _Builder(plan, iteration, Emitter(iteration))
    for ops in turns(plan, iteration):
        yield from builder.turn(ops)
    yield from builder.return_tokens()


@dataclass
class _Value:
    """An activation: its bytes, the tasks that make it and where, and the tasks that brought it to each memory."""

    size: int
    made: list[tuple[str, int, float]]
    at: dict[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass
class _Builder:
    """Hands out tasks turn by turn; `values` maps (batch, operation) to its latest output.

    `consumers`: by unit, the tasks that used data streamed for it; `brought`: streamed weights by unit, what and where;
    `worked`: by unit, batch and device, its tasks; `latest`: by link, the last streamed transfer; `gate`: what the unit
    waits for where there are barriers; `opened`: its first task."""

    plan: Placed
    iteration: Iteration
    out: Emitter
    values: dict[tuple[int, str], _Value] = field(default_factory=dict)
    consumers: dict[int, list[int]] = field(default_factory=dict)
    brought: dict[tuple[int, str, str, int, int], list[int]] = field(default_factory=dict)
    worked: dict[tuple[int, int, str], list[int]] = field(default_factory=dict)
    latest: dict[str, int] = field(default_factory=dict)
    gate: list[int] = field(default_factory=list)
    opened: int = 0
    last_compute: int | None = None
    now: int = 0
    memory_of: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.memory_of = {device.name: device.memory for device in self.plan.hardware.devices}

    def turn(self, ops: tuple[Operation, ...]) -> Iterator[Task]:
        """The tasks of some operations for every batch of the pass."""
        self._forget(ops[0].unit)
        self._close_gate(ops)
        for batch in range(self.iteration.batches):
            self.out.batch = batch
            for op in ops:
                self._add_op(op)
        yield from self.out.take()

    def _forget(self, unit: int) -> None:
        """Drop what units before `unit` will not be asked for."""
        self.brought = {key: tasks for key, tasks in self.brought.items() if key[0] >= unit}
        self.worked = {key: tasks for key, tasks in self.worked.items() if key[0] >= unit}
        oldest = unit - self.plan.schedule.prefetch - 1
        self.consumers = {key: tasks for key, tasks in self.consumers.items() if key >= oldest}

    def _close_gate(self, ops: tuple[Operation, ...]) -> None:
        """With barriers: what the first operations of this unit wait for, all of the unit before and all weights."""
        if not self.plan.schedule.barrier:
            return
        self.gate = list(range(self.opened, self.out.count))
        self.opened, self.out.batch = self.out.count, 0
        for op in ops:
            self.now = op.unit
            for piece in self._places(op):
                weights = self._weights(op, piece.start, piece.stop)
                self.gate += self._stream_weights(op, piece.rule.device, weights, piece.start, piece.stop)

    def return_tokens(self) -> Iterator[Task]:
        """The chosen tokens go back to where the next step's embedding is looked up."""
        home = self.memory_of[self._device("embedding")]
        for batch in range(self.iteration.batches):
            self.out.batch = batch
            head = self.values[batch, "head"]
            memory, made, _ = head.made[-1]
            if home != memory:
                size = TOKEN_BYTES * self.iteration.batch
                (hop,) = hops(self.plan, memory, home, size, "pinned")
                self.out.transfer("token", None, hop, "f32", (made,), lane=self._activation_lane(hop.link))
        yield from self.out.take()

    def _device(self, op: str) -> str:
        return places(self.plan, op, None, self.iteration.phase, 1, "rows")[0].rule.device

    def _add_op(self, op: Operation) -> None:
        self.now = op.unit
        made: list[tuple[str, int, float]] = []
        for piece in self._places(op):
            device = piece.rule.device
            if device not in self.memory_of:
                raise BadInputError("no such device in the plan's hardware", field="compute", value=device)
            index = self._piece(op, device, piece.start, piece.stop)
            made.append((self.memory_of[device], index, (piece.stop - piece.start) / op.extent))
        self.values[self.out.batch, op.name] = _Value(op.out_bytes, made)
        if op.name in _ALSO:
            self.values[self.out.batch, _ALSO[op.name]] = self.values[self.out.batch, op.name]
        if op.kind == "append":
            self._written(op, made)

    def _places(self, op: Operation) -> tuple[Slice[ComputeRule], ...]:
        return places(self.plan, op.name, op.layer, self.iteration.phase, op.extent, op.axis)

    def _piece(self, op: Operation, device: str, start: int, stop: int) -> int:
        """The part start <= i < stop of an operation on `device`, after everything it reads has come there."""
        memory = self.memory_of[device]
        weights = self._weights(op, start, stop)
        deps = self.gate if op.name in ("embedding", "norm1", "final_norm") else []
        deps = deps + [task for name in self._inputs(op) for task in self._bring(name, memory, op.layer)]
        streams = self._stream_weights(op, device, weights, start, stop)
        streams = streams + self._stream_kv(op, device, start, stop)
        deps += [*streams, *self._reshaped(op, device)]
        index = self._compute(op, device, weights, deps, start, stop)
        if streams:
            self.consumers.setdefault(self.now, []).append(index)
        return index

    def _weights(self, op: Operation, start: int, stop: int) -> list[Resident]:
        rows = op.tokens if op.kind == "lookup" else 0
        first, last = (0, 1 << 62) if op.extent == 1 else (start, stop)
        return weights_of(self.plan, op.tensors, first, last, rows)

    def _inputs(self, op: Operation) -> Iterable[str]:
        return (name for name in _INPUTS[op.name] if (self.out.batch, name) in self.values)

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
        self.last_compute = index
        self.worked.setdefault((self.now, self.out.batch, device), []).append(index)
        return index

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
            (hop,) = hops(self.plan, origin, memory, round(value.size * part), "pinned")
            what = label if len(value.made) == 1 else f"{label}:{number}"
            lane = self._activation_lane(hop.link)
            yield self.out.transfer(what, layer, hop, self.plan.activations, (made,), label, lane)

    def _stream_weights(self, op: Operation, device: str, weights: list[Resident], start: int, stop: int) -> list[int]:
        """Transfers of the weights that do not live where the operation runs; one for all batches of a pass."""
        memory = self.memory_of[device]
        key = (op.unit, op.name, device, start, stop)
        if key not in self.brought:
            suffix = "" if stop - start == op.extent else f":{start}-{stop}"
            away = [weight for weight in weights if not weight.lives_in(memory)]
            found = [
                self._stream(f"{op.name}.weights", suffix, op, device, each, self._may_start())
                for each in _grouped(away)
            ]
            found += [self._expanded(op, device, each) for each in weights if each not in away and each.format == "q4"]
            self.brought[key] = [task for tasks in found for task in tasks]
        return self.brought[key]

    def _expanded(self, op: Operation, device: str, here: Resident) -> list[int]:
        return [self._decompress(f"{op.name}.weights", op, device, here, self._may_start())]

    def _stream_kv(self, op: Operation, device: str, start: int, stop: int) -> list[int]:
        """Transfers of a block's past keys and values when they are used away from their home."""
        if op.name not in _CACHED or op.layer is None or self.iteration.past == 0:
            return []
        memory, found = self.memory_of[device], list[int]()
        away = [each for each in self._cached(op, start, stop) if not each.lives_in(memory)]
        what = {"attention": "kv", "scores": "keys", "wv": "values"}[op.name]
        suffix = "" if stop - start == op.extent else f":{start}-{stop}"
        for each in _grouped(away):
            found += self._stream(what, suffix, op, device, each, self._cache_may_start(device))
        return found

    def _cached(self, op: Operation, start: int, stop: int) -> list[Resident]:
        """The past keys or values that heads start <= h < stop read (all heads of undivided attention)."""
        heads = self.plan.model.kv_heads
        first, last = (0, heads) if op.name == "attention" else (start, stop)
        per_head = self.iteration.batch * self.iteration.past * self.plan.model.head_dim
        found = []
        for what in _CACHED[op.name]:
            for piece in kv_homes(self.plan, what, op.layer or 0, heads):
                count = min(last, piece.stop) - max(first, piece.start)
                if count > 0:
                    rule = piece.rule
                    expanded = rule.expanded if rule.format == "q4" else rule.format
                    copies = ((rule.memory, 1.0),)
                    found.append(Resident(copies, (), rule.format, rule.path, count * per_head, expanded))
        return found

    def _written(self, op: Operation, made: list[tuple[str, int, float]]) -> None:
        """New keys and values: where they were made, and on their way to the cache's home."""
        value = _Value(op.kv_write, made)
        self.values[self.out.batch, "new_kv"] = value
        memory, index, _ = made[0]
        rule = kv_rule(self.plan, op.layer or 0)
        if rule.memory != memory:
            elements = 2 * op.tokens * self.plan.model.kv_width
            (hop,) = hops(self.plan, memory, rule.memory, size_of(elements, rule.format), "pinned")
            value.at[rule.memory] = (self.out.transfer("kv", op.layer, hop, rule.format, (index,)),)

    def _reshaped(self, op: Operation, device: str) -> list[int]:
        """Caches that are kept (batch, tokens, hidden) are turned before they are used (PARK-14, 15)."""
        if not self.plan.schedule.reshape or op.name not in _CACHED or self.iteration.past == 0:
            return []
        memory = self.memory_of[device]
        index = self.out.append(
            f"{op.name}.reshape",
            op.layer,
            "reshape",
            f"{op.name}.reshape",
            device,
            size=2 * op.kv_read,
            fmt=self._format(op, []),
            memories=(memory, memory),
            deps=self.values[self.out.batch, "new_kv"].at.get(memory, ()),
        )
        return [index]

    def _stream(
        self, what: str, suffix: str, op: Operation, device: str, resident: Resident, deps: tuple[int, ...]
    ) -> list[int]:
        """The tasks that bring resident data to `device` and expand it; the last of them in each chain."""
        memory, arrived = self.memory_of[device], list[int]()
        for home, share in resident.copies:
            number = "" if len(resident.copies) == 1 else f".{home}"
            after, size = deps, round(resident.size * share)
            if resident.path == "pin-on-transfer":
                after = (self._pin(f"{what}{suffix}{number}", op, home, size, resident.format),)
            for hop in hops(self.plan, home, memory, size, resident.path):
                after += self._behind(hop.link)
                name = f"{what}{suffix}{number}"
                self.latest[hop.link.name] = self.out.transfer(name, op.layer, hop, resident.format, after, what)
                after = (self.latest[hop.link.name],)
            arrived += after
        if resident.format == "q4":
            return [self._decompress(f"{what}{suffix}", op, device, resident, tuple(arrived))]
        return arrived

    def _behind(self, link: Link) -> tuple[int, ...]:
        """What is streamed ahead leaves in order: one process issues the copies of a link (PARK-52)."""
        ahead = self.plan.schedule.overlap == "next-layer" and link.name in self.latest
        return (self.latest[link.name],) if ahead else ()

    def _pin(self, what: str, op: Operation, home: str, size: int, fmt: StoredFormat) -> int:
        """A copy to page-locked memory by the processor of that memory (PARK-07).

        The thread that launches work makes it, so it does not run ahead: it follows the operation before."""
        lane = next(device.name for device in self.plan.hardware.devices if device.memory == home)
        name = f"{what}.pin"
        deps = () if self.last_compute is None else (self.last_compute,)
        return self.out.append(name, op.layer, "pin", name, lane, size=2 * size, fmt=fmt, memories=(home,), deps=deps)

    def _decompress(self, what: str, op: Operation, device: str, resident: Resident, deps: tuple[int, ...]) -> int:
        ahead = self.plan.schedule.expand == "on-arrival"
        lane = self.plan.hardware.device(device).decompression_lane if ahead else device
        name = f"{what}.decompress"
        size = resident.size + resident.used
        return self.out.append(
            name, op.layer, "decompress", name, lane, size=size, fmt="q4", memories=(self.memory_of[device],), deps=deps
        )

    def _may_start(self) -> tuple[int, ...]:
        """When resident data of this unit may leave its home.

        overlap none: after the operation before; next-layer: when the buffers of the unit `prefetch` + 1 places
        back are free, that is after the operations that used them."""
        if self.plan.schedule.overlap == "next-layer":
            return tuple(self.consumers.get(self.now - self.plan.schedule.prefetch - 1, ()))
        return () if self.last_compute is None else (self.last_compute,)

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
        if op.name in _CACHED:
            rule = kv_rule(self.plan, op.layer or 0)
            return rule.expanded if rule.format == "q4" else rule.format
        return max(weights, key=lambda weight: weight.used).expanded if weights else self.plan.activations


def _grouped(residents: list[Resident]) -> list[Resident]:
    """Data of one home, format and path travel together."""
    groups: dict[tuple[object, ...], Resident] = {}
    for each in residents:
        key = (each.copies, each.format, each.path, each.expanded)
        before = groups[key].elements if key in groups else 0
        groups[key] = Resident(
            each.copies, each.replicas, each.format, each.path, before + each.elements, each.expanded
        )
    return list(groups.values())
