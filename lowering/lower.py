"""lower(plan, iteration): the one place where a plan's rules become tasks and dependencies."""

from dataclasses import dataclass, field

from helmsman.lowering.graph import Task, TaskGraph
from helmsman.lowering.ops import Formats, Operation, block_ops, embedding_ops, output_ops
from helmsman.lowering.placement import Placed
from helmsman.lowering.rules import device_of, kv_rule, residence
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.formats import Format, size_of

TOKEN_BYTES = 4

_INPUTS: dict[str, tuple[str, ...]] = {
    "norm1": ("input",),
    "q": ("norm1",),
    "k": ("norm1",),
    "v": ("norm1",),
    "append": ("q", "k", "v"),
    "attention": ("append",),
    "o": ("attention", "input"),
    "norm2": ("o",),
    "gate": ("norm2",),
    "up": ("norm2",),
    "down": ("gate", "up", "o"),
    "final_norm": ("input",),
    "head": ("final_norm",),
    "embedding": (),
}


def lower(plan: Placed, iteration: Iteration) -> TaskGraph:
    """The task graph of one iteration: operations where the rules put them, and the transfers this implies.

    Raises BadInputError when a rule is missing or two memories that must exchange data have no link."""
    builder = _Builder(plan, iteration)
    model = plan.model
    builder.add_ops(embedding_ops(model, iteration, Formats(activations=plan.activations)))
    for layer in range(model.layers):
        formats = Formats(kv=kv_rule(plan, layer).format, activations=plan.activations)
        builder.add_ops(block_ops(model, layer, iteration, formats))
    builder.add_ops(output_ops(model, iteration, Formats(activations=plan.activations)))
    builder.return_token()
    return TaskGraph(iteration, tuple(builder.tasks))


@dataclass(frozen=True, slots=True)
class _Weight:
    """A tensor that an operation reads: where it lives, how it is stored, and the bytes read of it."""

    home: str
    format: Format
    size: int


def _weights_read(plan: Placed, op: Operation) -> list[_Weight]:
    """All of every tensor; of a table, the rows of the pass's tokens (E-HELM-05)."""
    found = []
    for tensor in op.tensors:
        home, fmt = residence(plan, tensor)
        elements = op.tokens * tensor.shape[1] if op.kind == "lookup" else tensor.elements
        found.append(_Weight(home, fmt, size_of(elements, fmt)))
    return found


@dataclass
class _Value:
    """An activation: the task that makes it, its bytes, and the task that brought it to each memory."""

    size: int
    at: dict[str, int]


@dataclass
class _Builder:
    """Accumulates tasks; `values` maps an operation's name to its latest output."""

    plan: Placed
    iteration: Iteration
    tasks: list[Task] = field(default_factory=list)
    values: dict[str, _Value] = field(default_factory=dict)
    streamed: list[int] = field(default_factory=list)
    last_compute: int | None = None
    memory_of: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.memory_of = {device.name: device.memory for device in self.plan.hardware.devices}

    def add_ops(self, unit: tuple[Operation, ...]) -> None:
        for op in unit:
            self._add_op(op)
        self.values["input"] = self.values[unit[-1].name]

    def _add_op(self, op: Operation) -> None:
        device = device_of(self.plan, op.name, op.layer, self.iteration.phase)
        if device not in self.memory_of:
            raise BadInputError("no such device in the plan's hardware", field="compute", value=device)
        memory = self.memory_of[device]
        weights = _weights_read(self.plan, op)
        deps = [self._bring(name, memory, op.layer) for name in _INPUTS[op.name] if name in self.values]
        deps += self._stream_weights(op, memory, weights)
        deps += self._stream_kv(op, memory)
        index = self._compute(op, device, memory, weights, deps)
        self.values[op.name] = _Value(op.out_bytes, {memory: index})
        if op.kind == "append":
            self._write_back(op, memory, index)

    def return_token(self) -> None:
        """The chosen token goes back to where the next step's embedding is looked up."""
        home = self.memory_of[device_of(self.plan, "embedding", None, self.iteration.phase)]
        head = self.memory_of[device_of(self.plan, "head", None, self.iteration.phase)]
        if home != head:
            size = TOKEN_BYTES * self.iteration.batch
            self._transfer("token", None, head, home, size, "f32", (len(self.tasks) - 1,))

    def _compute(self, op: Operation, device: str, memory: str, weights: "list[_Weight]", deps: list[int]) -> int:
        self.last_compute = self._append(
            Task(
                id=self._id(op.name, op.layer),
                kind=op.kind,
                op=op.name,
                layer=op.layer,
                phase=self.iteration.phase,
                resource=device,
                tokens=op.tokens,
                bytes=sum(weight.size for weight in weights) + op.kv_read,
                activation_bytes=op.activation_bytes,
                flops=op.flops,
                format=self._format(op, weights),
                memories=(memory,),
                deps=tuple(sorted(set(deps))),
            )
        )
        return self.last_compute

    def _bring(self, name: str, memory: str, layer: int | None) -> int:
        """The task after which value `name` is in `memory`; adds a transfer the first time it is not."""
        value = self.values[name]
        if memory not in value.at:
            origin, made = next(iter(value.at.items()))
            label = "hidden" if name == "input" else name
            value.at[memory] = self._transfer(label, layer, origin, memory, value.size, self.plan.activations, (made,))
        return value.at[memory]

    def _stream_weights(self, op: Operation, memory: str, weights: "list[_Weight]") -> list[int]:
        """Transfers of the weights that do not live where the operation runs."""
        away: dict[tuple[str, Format], int] = {}
        for weight in weights:
            if weight.home != memory:
                key = (weight.home, weight.format)
                away[key] = away.get(key, 0) + weight.size
        return [
            self._stream(f"{op.name}.weights", op.layer, home, memory, size, fmt) for (home, fmt), size in away.items()
        ]

    def _stream_kv(self, op: Operation, memory: str) -> list[int]:
        """Transfer of a block's past keys and values when its attention runs away from the cache."""
        if op.kind != "attention" or op.layer is None:
            return []
        rule = kv_rule(self.plan, op.layer)
        past = self.iteration.past * op.kv_read // self.iteration.context
        if rule.memory == memory or past == 0:
            return []
        return [self._stream("kv", op.layer, rule.memory, memory, past, rule.format)]

    def _write_back(self, op: Operation, memory: str, index: int) -> None:
        """New keys and values go to the cache's home."""
        rule = kv_rule(self.plan, op.layer or 0)
        if rule.memory != memory:
            self._transfer("kv", op.layer, memory, rule.memory, op.kv_write, rule.format, (index,))

    def _stream(self, what: str, layer: int | None, source: str, target: str, size: int, fmt: Format) -> int:
        """A transfer of resident data to its operation: when it may start is the schedule's choice.

        overlap none: after the operation before; next-layer: as soon as one of `prefetch` + 1 buffers is
        free, that is after the transfer that many places back has been consumed."""
        deps: tuple[int, ...] = () if self.last_compute is None else (self.last_compute,)
        if self.plan.schedule.overlap == "next-layer":
            deps = self._buffer_free()
        index = self._transfer(what, layer, source, target, size, fmt, deps)
        self.streamed.append(index)
        return index

    def _buffer_free(self) -> tuple[int, ...]:
        depth = self.plan.schedule.prefetch + 1
        if len(self.streamed) < depth:
            return ()
        oldest = self.streamed[-depth]
        return tuple(i for i, task in enumerate(self.tasks) if oldest in task.deps)[:1]

    def _transfer(
        self,
        what: str,
        layer: int | None,
        source: str,
        target: str,
        size: int,
        fmt: Format,
        deps: tuple[int, ...],
    ) -> int:
        link = self.plan.hardware.link(source, target)
        if link is None:
            raise BadInputError(
                f"no link from memory {source} to memory {target}",
                field="hardware.links",
                remedy="add a link, or keep the data where it is used",
            )
        return self._append(
            Task(
                id=self._id(f"{what}@{link.name}", layer),
                kind="transfer",
                op=what,
                layer=layer,
                phase=self.iteration.phase,
                resource=link.name,
                tokens=0,
                bytes=size,
                activation_bytes=0,
                flops=0,
                format=fmt,
                memories=(source, target),
                deps=deps,
            )
        )

    def _format(self, op: Operation, weights: "list[_Weight]") -> Format:
        """The format of most bytes that the operation reads."""
        if op.kind == "attention":
            return kv_rule(self.plan, op.layer or 0).format
        return max(weights, key=lambda weight: weight.size).format if weights else self.plan.activations

    def _id(self, op: str, layer: int | None) -> str:
        place = op if layer is None else f"{layer}.{op}"
        return f"{self.iteration.index}/{place}"

    def _append(self, task: Task) -> int:
        self.tasks.append(task)
        return len(self.tasks) - 1
