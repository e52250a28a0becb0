"""The tasks of an online pass: linear stages, attention on both sides, and what crosses the link for it.

Operations are placed and sized by the plan's rules, as in any pass; requests of the host's cache are attended to by the
host CPU, whatever the rules say about attention. Beside the names of operations there are `attention.prompt` (of prompt
chunks), `attention.host`, `attention.decode` (of decodes on the accelerator, whose tasks are named `attention`), and of
transfers `qkv` (TrQKV), `attention` (TrO), `kv.new` (of prompts, block by block),
`kv.out` and `kv.in` (whole requests that are swapped, and what chunks at the host read again). What requests wait for
has a lane of the link to itself, so that it does not queue behind caches."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from serving_iteration import PromptChunk

from helmsman.lowering.activations import ActivationTransfers, Value
from helmsman.lowering.bodies.attention import whole
from helmsman.lowering.bodies.block_pass import BlockPass
from helmsman.lowering.caches import appended_sizes
from helmsman.lowering.cargo import cargo
from helmsman.lowering.emit import Emitter, Words
from helmsman.lowering.graph import Payload
from helmsman.lowering.operation import Formats, Operation
from helmsman.lowering.ops import block_ops, embedding_ops, output_ops
from helmsman.lowering.parts import DividedOperation, OperationPart, divided_operations
from helmsman.lowering.placement import KnownPlan
from helmsman.lowering.rules import kv_rule
from helmsman.lowering.serving_names import DECODE_ATTENTION, HOST_ATTENTION
from helmsman.lowering.streams import MemoryRoutes, tokens_home
from helmsman.scheduler.iteration import Iteration, Phase
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.formats import size_of

PRE_PROJECTION = ("norm1", "q", "k", "v", "append")
"""The operations that a linear stage does of the block whose attention follows, after the rest of the block before
(NEO-09)."""

Amount = tuple[int, int, int, int]
"""Of attention: tokens, positions that they attend to, tokens whose keys and values are read, and sequences."""


@dataclass
class ServingTasks:
    """Makes the tasks of one online pass; `values` maps (sub-batch, operation) to its latest output.

    `left`, `came`: by block, what moved keys and values out of the accelerator's cache, and into its memory."""

    plan: KnownPlan
    index: int
    values: dict[tuple[int, str], Value] = field(default_factory=dict)
    left: dict[int, tuple[int, ...]] = field(default_factory=dict)
    came: dict[int, tuple[int, ...]] = field(default_factory=dict)
    linear: dict[tuple[int, int, Phase], tuple[DividedOperation, ...]] = field(default_factory=dict)
    out: Emitter = field(init=False)
    ways: MemoryRoutes = field(init=False)
    activations: ActivationTransfers = field(init=False)

    def __post_init__(self) -> None:
        self.out, self.ways = Emitter(Iteration(self.index, "decode", 1, 1, 2)), MemoryRoutes(self.plan.hardware)
        self.activations = ActivationTransfers(self.plan.activations, self.out, self.ways, own_lane=True)

    def made(self, batch: int, name: str) -> tuple[int, ...]:
        """Return the tasks that make a value."""
        return tuple(task for _, task, _ in self.values[batch, name].made)

    def swap(self, tokens_out: int, tokens_in: int) -> None:
        """Whole requests change cache, block after block (NEO-45), and what chunks at the host attend to comes."""
        for layer in range(self.plan.model.layers):
            if tokens_out:
                self.left[layer] = self._move("swapped out", layer, tokens_out)
            if tokens_in:
                self.came[layer] = self._move("swapped in", layer, tokens_in)

    def embed(self, tokens: int, phase: Phase, batches: int) -> None:
        """The hidden states of all sub-batches, looked up together."""
        seen = self._see(phase, tokens)
        self._run(divided_operations(self.plan, seen, embedding_ops(self.plan.model, seen, self._formats(0))), None, 0)
        self.values |= {(batch, "input"): self.values[0, "input"] for batch in range(batches)}

    def head(self, sequences: int, phase: Phase, batches: int) -> None:
        """The next tokens of all sub-batches together: the head, a large matrix, is read once."""
        seen = self._see(phase, sequences)
        inputs = [self.values[batch, "input"] for batch in range(batches)]
        made = [made for value in inputs for made in value.made]
        self.values[0, "input"] = Value(sum(value.size for value in inputs), made)
        self._run(divided_operations(self.plan, seen, output_ops(self.plan.model, seen, self._formats(0))), None, 0)
        self.activations.return_tokens(self.values[0, "head"], tokens_home(self.plan, phase), sequences)

    def stage(self, number: int, batch: int, tokens: int, phase: Phase) -> None:
        """A linear stage: post-projection and FFN of block `number` - 1, pre-projection of block `number`.

        New keys and values take the room of what leaves the cache."""
        for layer, pre in ((number - 1, False), (number, True)):
            if 0 <= layer < self.plan.model.layers:
                linear = self._linear(layer, tokens, phase)
                mine = (work for work in linear if (work.op.name in PRE_PROJECTION) is pre)
                self._run(mine, layer, batch, self.left.get(layer, ()) if pre else ())
        self.values[batch, "attention"] = Value(self._query_bytes(tokens), [])

    def attend(self, layer: int, prompts: tuple[PromptChunk, ...], contexts: tuple[int, ...]) -> None:
        """Attention of the first sub-batch on the accelerator: of decodes, then of prompt chunks."""
        if contexts:
            self._attend(layer, _decoding(contexts), "decode", ("attention", DECODE_ATTENTION))
        if prompts:
            tokens, pairs = sum(prompt.tokens for prompt in prompts), sum(prompt.pairs for prompt in prompts)
            amount = tokens, pairs, sum(prompt.context for prompt in prompts), len(prompts)
            self._attend(layer, amount, "prefill", ("attention.prompt", "attention"))

    def leave(self, layer: int, tokens: int) -> None:
        """New keys and values of prompts leave as soon as their block has computed them (NEO-07)."""
        self.out.batch = 0
        self._move("new cache entries", layer, tokens, self.made(0, "append"))

    def send(self, layer: int, batch: int, requests: int, after: tuple[int, ...]) -> int:
        """Queries, keys and values of requests of the host's cache go there; what brings them."""
        self._see("decode", requests)
        self.out.batch = batch
        size = self._query_bytes(requests) + self._kv_bytes(layer, requests)
        made = cargo("qkv", "activation")
        return self.activations.send(made, layer, self._way(layer), size, self.plan.activations, after)

    def attend_at_host(self, layer: int, batch: int, contexts: tuple[int, ...], sent: int) -> None:
        """Attention of the host CPU once `sent` has come, and its output on its way back, where the sub-batch waits for
        it: a cohort has no stage of its own that does."""
        part, op = self._attention(layer, _decoding(contexts), "decode")
        here, there = self._way(layer)
        host = part._replace(device=self.plan.hardware.devices[0].name, memory=there)
        self.out.batch = batch
        deps, words = (sent, *self.left.get(layer, ())), (HOST_ATTENTION, HOST_ATTENTION)
        task = self.out.operation(op, host, layer, deps, words)
        made = cargo("attention", "activation")
        back = self.activations.send(made, layer, (there, here), op.out_bytes, self.plan.activations, (task,))
        waiting = self.values.get((batch, "attention"))
        if waiting is not None:
            waiting.made.append((here, back, op.out_bytes / waiting.size))

    def _attend(self, layer: int, amount: Amount, phase: Phase, words: Words) -> None:
        (part, op), value = self._attention(layer, amount, phase), self.values[0, "attention"]
        if self.values[0, "append"].made[0][0] != part.memory:
            message, remedy = "attention away from what appends to its cache", "let one accelerator do both"
            raise BadInputError(message, field="compute", value=part.device, remedy=remedy)
        self.out.batch = 0
        deps = {*self.came.get(layer, ()), *self.made(0, "append")}
        task = self.out.operation(op, part, layer, tuple(sorted(deps)), words)
        value.made.append((part.memory, task, op.out_bytes / value.size))

    def _attention(self, layer: int, amount: Amount, phase: Phase) -> tuple[OperationPart, Operation]:
        """Attention as the rules place it."""
        seen = self._see(phase, amount[2])
        [work] = divided_operations(self.plan, seen, (self._whole(layer, amount),))
        [part] = _there(work)
        return part, work.op

    def _whole(self, layer: int, amount: Amount) -> Operation:
        """Return undivided attention of a layer to so many positions."""
        body = self.plan.model.attention(layer)
        assert body is not None, "a layer without attention attends to nothing"
        block = BlockPass(self.plan.model, layer, Iteration(self.index, "decode", 1, 1, 1), self._formats(layer), {})
        return whole(body, block, *amount)

    def _linear(self, layer: int, tokens: int, phase: Phase) -> tuple[DividedOperation, ...]:
        """Return the operations of a block but attention, the same in blocks that no rule tells apart."""
        first, seen = self.plan.first_alike[layer], self._see(phase, tokens)
        if (first, tokens, phase) not in self.linear:
            ops = block_ops(self.plan.model, first, seen, self._formats(first))
            self.linear[first, tokens, phase] = divided_operations(
                self.plan, seen, tuple(op for op in ops if op.kind != "attention")
            )
        return self.linear[first, tokens, phase]

    def _run(
        self, works: Iterable[DividedOperation], layer: int | None, batch: int, room: tuple[int, ...] = ()
    ) -> None:
        """Operations one after the other, where their inputs have come; appending waits for `room` too."""
        self.out.batch = batch
        for work in works:
            after = room if work.op.kind == "append" else ()
            made = [(part.memory, self._part(work, part, layer, after), part.share) for part in _there(work)]
            self.values |= dict.fromkeys(((batch, name) for name in work.names), Value(work.op.out_bytes, made))

    def _part(self, work: DividedOperation, part: OperationPart, layer: int | None, after: tuple[int, ...]) -> int:
        deps = set(after)
        for name in work.inputs:
            value = self.values.get((self.out.batch, name))
            if value is not None:
                deps.update(self.activations.reaching(name, value, layer, part))
        return self.out.operation(work.op, part, layer, tuple(sorted(deps)))

    def _move(self, payload: Payload, layer: int, tokens: int, deps: tuple[int, ...] = ()) -> tuple[int, ...]:
        """Keys and values of a block on their way between the two caches."""
        ends, size = self._way(layer), self._kv_bytes(layer, tokens)
        moved = cargo("attention", payload)
        for hop in self.ways.hops(*(ends[::-1] if payload == "swapped in" else ends), size, "pinned"):
            deps = (self.out.transfer(moved, layer, hop, kv_rule(self.plan, layer).format, deps),)
        return deps

    def _way(self, layer: int) -> tuple[str, str]:
        """Return the memories of the accelerator's cache and of the host's."""
        here, there = kv_rule(self.plan, layer).memory, self.plan.hardware.devices[0].memory
        if here == there:
            message, remedy = "this cache is the host's: nothing can move there", "keep it on an accelerator"
            raise BadInputError(message, field="kv", value=here, remedy=remedy)
        return here, there

    def _query_bytes(self, tokens: int) -> int:
        return size_of(tokens * self.plan.model.dense.q_width, self.plan.activations)

    def _kv_bytes(self, layer: int, tokens: int) -> int:
        return sum(appended_sizes(self.plan, layer, tokens).values())

    def _formats(self, layer: int) -> Formats:
        return Formats(kv=kv_rule(self.plan, layer).used, activations=self.plan.activations)

    def _see(self, phase: Phase, tokens: int) -> Iteration:
        """From here on tasks are of a pass of `tokens` sequences by one token, which operations do not tell from others
        with as many tokens; of the ends, so many sequences."""
        self.out.iteration = Iteration(self.index, phase, tokens, 1, 2)
        return self.out.iteration


def _decoding(contexts: tuple[int, ...]) -> Amount:
    total = sum(contexts)
    return len(contexts), total, total, len(contexts)


def _there(work: DividedOperation) -> tuple[OperationPart, ...]:
    """Return the parts of an operation. Raises BadInputError where what they read is not in their memory as it is
    used."""
    for part in work.parts:
        if part.weights or part.cached or part.window:
            where, remedy = "kv" if work.op.kind == "attention" else "residence", "serve a plan that keeps it there"
            message = f"online passes bring neither weights nor caches to {part.device}"
            raise BadInputError(message, field=where, value=work.op.name, remedy=remedy)
    return work.parts
