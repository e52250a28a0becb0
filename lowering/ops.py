"""Lists every operation of a pass: exact weight, KV and activation bytes, and FLOPs (HELM-10..16, 30..33)."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from helmsman.lowering.bodies.block_pass import BlockPass, seen_by
from helmsman.lowering.bodies.experts_apart import apart, expert_products
from helmsman.lowering.bodies.per_layer_input import LAYER_INPUTS, LAYER_NORM, LAYER_PROJECTION, LAYER_TABLE
from helmsman.lowering.bodies.registry import body_operations
from helmsman.lowering.operation import Axis, Formats, Half, Operation
from helmsman.lowering.residuals import NormedBody, NormedResidual, normed_residuals
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import block_tensors, embedding_tensors, output_tensors
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.blocks.block import Mixer
from helmsman.schemas.formats import size_of
from helmsman.schemas.model import Model

LINEAR_OPS = ("q", "k", "v", "o", "gate", "up", "down")
"""The linear layers of a dense block; `gate` only where the model has one."""

FFN_OPS = ("norm2", "gate", "up", "down")
"""The second half of a dense block."""

BLOCK_OPS = ("norm1", "q", "k", "v", "append", "attention", "o", "norm2", "gate", "up", "down")
"""The operations of a dense block."""

INPUT = "input"
"""The name under which what goes into a block, or follows the last, is read."""


def operations(model: Model, iteration: Iteration, formats: Formats) -> tuple[Operation, ...]:
    """Return all operations of the pass, in order of execution, every tensor in `formats.weights`."""
    blocks = [op for layer in range(model.layers) for op in block_ops(model, layer, iteration, formats)]
    return (
        *embedding_ops(model, iteration, formats),
        *blocks,
        *output_ops(model, iteration, formats),
    )


class _End(NamedTuple):
    """An end of the model in a pass: `unit`, and `tokens` that go through it."""

    unit: int
    tokens: int
    formats: Formats

    def activations(self, values: int) -> int:
        return size_of(values, self.formats.activations)

    def bytes_of(self, weights: tuple[Tensor, ...]) -> int:
        return sum(tensor.size(self.formats.weights) for tensor in weights)

    def lookup(self, name: str, tables: tuple[Tensor, ...], inputs: tuple[str, ...] = ()) -> Operation:
        """Return what reads a row of every table for every token, and adds them up."""
        values = self.tokens * tables[0].shape[1]
        rows = sum(size_of(self.tokens * table.shape[1], table.kept_in(self.formats.weights)) for table in tables)
        out, place = self.activations(values), (self.unit, None, tables, self.tokens, rows, 0, 0)
        return Operation(name, "lookup", *place, out, out, values * (len(tables) - 1), inputs=inputs)

    def norm(self, name: str, weights: tuple[Tensor, ...], width: int, inputs: tuple[str, ...]) -> Operation:
        out, size = self.activations(self.tokens * width), self.bytes_of(weights)
        place = self.unit, None, weights, self.tokens, size, 0, 0
        return Operation(name, "norm", *place, 2 * out, out, 4 * self.tokens * width, inputs=inputs)

    def linear(self, name: str, weights: tuple[Tensor, ...], inputs: tuple[str, ...]) -> Operation:
        rows, columns = next(tensor.shape for tensor in weights if len(tensor.shape) > 1)
        moved, out = self.activations(self.tokens * (rows + columns)), self.activations(self.tokens * rows)
        flops = 2 * self.tokens * rows * columns + rows * self.tokens * (len(weights) - 1)
        place = self.unit, None, weights, self.tokens, self.bytes_of(weights), 0, 0
        return Operation(name, "linear", *place, moved, out, flops, rows, columns=columns, inputs=inputs)


@lru_cache(maxsize=256)
def embedding_ops(model: Model, iteration: Iteration, formats: Formats) -> tuple[Operation, ...]:
    """Return the token (and position) lookup: only the rows of the pass's tokens are read (E-HELM-05); and what follows
    before the first block. Lookups come first, as tokens are there when a pass begins."""
    of = _by_op(embedding_tensors(model))
    end = _End(0, iteration.batch * iteration.tokens, formats)
    made = [end.lookup(LAYER_TABLE, of[LAYER_TABLE])] if LAYER_TABLE in of else []
    made.append(end.lookup("embedding", of["embedding"]))
    if "embedding_out" in of:
        made.append(end.linear("embedding_out", of["embedding_out"], ("embedding",)))
    if model.embedding.norm is not None:
        made.append(end.norm("embedding_norm", of.get("embedding_norm", ()), model.hidden, (made[-1].name,)))
    made[-1] = made[-1]._replace(also=INPUT)
    if LAYER_TABLE in of:
        made.append(end.linear(LAYER_PROJECTION, of[LAYER_PROJECTION], (INPUT,)))
        wide = of[LAYER_TABLE][0].shape[1]
        norm = end.norm(LAYER_NORM, of.get(LAYER_NORM, ()), wide, (LAYER_TABLE, LAYER_PROJECTION))
        made.append(norm._replace(also=LAYER_INPUTS))
    return tuple(made)


@lru_cache(maxsize=256)
def output_ops(model: Model, iteration: Iteration, formats: Formats) -> tuple[Operation, ...]:
    """Return final norm and head, on the last position of every sequence only (HELM-04), or on those of drafts."""
    of, end = _by_op(output_tensors(model)), _End(model.layers + 1, iteration.chosen, formats)
    made, source = list[Operation](), INPUT
    if model.streams is not None:
        made.append(end.linear("merge", of["merge"], (source,)))
        source = "merge"
    if model.final is not None:
        made.append(end.norm("final_norm", of.get("final_norm", ()), model.hidden, (source,)))
        source = "final_norm"
    if model.head.width is not None:
        made.append(end.linear("head_in", of["head_in"], (source,)))
        source = "head_in"
    return (*made, end.linear("head", of["head"], (source,)))


def _by_op(tensors: tuple[Tensor, ...]) -> dict[str, tuple[Tensor, ...]]:
    of: dict[str, list[Tensor]] = {}
    for tensor in tensors:
        of.setdefault(tensor.op, []).append(tensor)
    return {op: tuple(members) for op, members in of.items()}


@lru_cache(maxsize=1024)
def block_ops(
    model: Model, layer: int, iteration: Iteration, formats: Formats, divided: bool = False
) -> tuple[Operation, ...]:
    """Return the operations of one block, in order; `divided`: attention as scores, softmax and weighted values."""
    of = _by_op(block_tensors(model, layer))
    block = BlockPass(model, layer, iteration, formats, of, divided)
    made, source = list[Operation](), INPUT
    for residual in normed_residuals(model.blocks[layer]):
        half: Half = 0 if isinstance(residual.bodies[0].body.op, Mixer) else 1
        made += _residual(block._replace(half=half), residual, source)
        source = made[-1].name
    made += _mixings(block, made)
    return (*made[:-1], made[-1]._replace(also=INPUT))


def _residual(block: BlockPass, residual: NormedResidual, source: str) -> Iterator[Operation]:
    """Yield the operations of a residual that adds to the output `source`; the last one gives the sum."""
    entry = source
    if residual.pre is not None:
        yield block.norm(residual.pre.name, (source,))
        entry = residual.pre.name
    outcomes = list[str]()
    *first, last = residual.bodies
    for body in first:
        made = tuple(_body(block, body, entry))
        yield from made
        outcomes.append(made[-1].name)
    *before, closing = _body(block, last, entry)
    yield from before
    added = (*outcomes, source)
    if residual.post is not None:
        yield closing
        closing = block.norm(residual.post.name, (closing.name,))
    if residual.after is not None:
        yield closing._replace(inputs=(*closing.inputs, *added))
        closing = block.norm(residual.after.name, (closing.name,))
        added = ()
    yield closing._replace(inputs=(*closing.inputs, *added))


def _body(block: BlockPass, body: NormedBody, source: str) -> Iterator[Operation]:
    if body.pre is not None:
        yield block.norm(body.pre.name, (source,))
        source = body.pre.name
    made = tuple(body_operations(body.body, block, source))
    yield from made
    if body.post is not None:
        yield block.norm(body.post.name, (made[-1].name,))


def _mixings(block: BlockPass, made: list[Operation]) -> Iterator[Operation]:
    """Yield the mixing of streams around every body, where a model has several; they follow the block's work."""
    if block.model.streams is None:
        return
    streams, source = block.model.streams, made[-1].name
    for number in range(1, len(block.model.blocks[block.layer].bodies) + 1):
        mixing = block.linear(f"mix{number}", (source,))
        wide = block.activations(2 * block.tokens * streams.streams * block.model.hidden)
        yield mixing._replace(activation_bytes=wide, out_bytes=wide // 2, extent=1)
        source = mixing.name


class OperationFacts(NamedTuple):
    """The facts of an operation that no pass changes."""

    axis: Axis
    extent: int
    half: Half
    inputs: tuple[str, ...]


ONE_TOKEN = Iteration(0, "decode", 1, 1, 2)
"""The pass from which facts that no pass changes are read."""


def block_index(model: Model, layer: int) -> Mapping[str, OperationFacts]:
    """Return the facts of all operations of a block by name, divided or not."""
    return _index_of(model, model.pattern.index(model.pattern[layer]))


@lru_cache(maxsize=512)
def _index_of(model: Model, layer: int) -> Mapping[str, OperationFacts]:
    whole = block_ops(model, layer, ONE_TOKEN, Formats())
    made = [*block_ops(model, layer, ONE_TOKEN, Formats(), divided=True), *whole]
    if expert_products(whole):
        made = [*apart(whole, model.hidden), *made]
    return {op.name: OperationFacts(op.axis, op.extent, op.half, op.inputs) for op in made}


@lru_cache(maxsize=64)
def end_index(model: Model) -> Mapping[str, OperationFacts]:
    """Return the facts of all operations outside blocks by name."""
    made = (*embedding_ops(model, ONE_TOKEN, Formats()), *output_ops(model, ONE_TOKEN, Formats()))
    return {op.name: OperationFacts(op.axis, op.extent, op.half, op.inputs) for op in made}


def op_extent(model: Model, op: str, layer: int | None = 0) -> tuple[Axis, int]:
    """Return (axis, parts) into which an operation of a block may be divided; `layer` None: of an end of the model.

    By default of the first block, for what works on equal blocks."""
    facts = (block_index(model, layer) if layer is not None else end_index(model)).get(op)
    facts = facts or end_index(model).get(op)
    return ("rows", 1) if facts is None else (facts.axis, facts.extent)


def sum_of_contexts(iteration: Iteration) -> int:
    """Return positions that the pass's tokens of one sequence attend to, added up."""
    return seen_by(iteration).pairs
