"""Every operation of a pass: exact weight, KV and activation bytes, and FLOPs (HELM-10..16, 30..33).

Bytes count what the operation must move from or to memory once; activations are hidden states in and out."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from helmsman.lowering.tensors import Tensor, block_tensors, embedding_tensors, linears, output_tensors
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.formats import Format, KvFormat, StoredFormat, size_of
from helmsman.schemas.model import Model, Rope

Axis = Literal["rows", "heads"]
Kind = Literal["lookup", "norm", "linear", "append", "attention", "scores", "softmax", "wv"]

DIVIDED = ("scores", "softmax", "wv")
"""The operations that attention is made of, when its parts have places of their own (Fig 2a of Park & Egger)."""

LINEAR_OPS = ("q", "k", "v", "o", "gate", "up", "down")
"""The linear layers of a block; `gate` only where the model has one."""

FFN_OPS = ("norm2", "gate", "up", "down")
"""The second half of a block."""

PANEL = 16
"""Rows of a linear layer are kept and computed sixteen at a time: a part of it begins at a multiple."""

BLOCK_OPS = ("norm1", "q", "k", "v", "append", "attention", "o", "norm2", "gate", "up", "down")


@dataclass(frozen=True, slots=True)
class Formats:
    """How weights, KV and activations are stored. Norms and biases follow weights that are not quantised."""

    weights: StoredFormat = "f16"
    kv: KvFormat = "f16"
    activations: Format = "f16"


class Operation(NamedTuple):
    """One operation of one pass.

    `unit`: partition unit (0 embedding, 1..L blocks, L+1 output). `tokens`: rows of activations, all sequences.
    `weight_bytes`: weight bytes read (a lookup reads only its rows); `kv_read`, `kv_write`: cache bytes;
    `activation_bytes`: activations read and written; `out_bytes`: the part its consumers read. `extent`: into how
    many rows (linear layers) or KV heads (scores, wv) it may be divided; 1: not at all. `sequences`: how many caches
    attention reads, whose tokens see nothing of each other. `columns`: how many values of a token a product takes."""

    name: str
    kind: Kind
    unit: int
    layer: int | None
    tensors: tuple[Tensor, ...]
    tokens: int
    weight_bytes: int
    kv_read: int
    kv_write: int
    activation_bytes: int
    out_bytes: int
    flops: int
    extent: int = 1
    sequences: int = 1
    columns: int = 0

    @property
    def axis(self) -> Axis:
        """Return the axis that `extent` counts."""
        return "heads" if self.kind in DIVIDED else "rows"

    @property
    def memory_bytes(self) -> int:
        """Return bytes that stream from memory: weights and KV."""
        return self.weight_bytes + self.kv_read


def operations(model: Model, iteration: Iteration, formats: Formats) -> tuple[Operation, ...]:
    """Return all operations of the pass, in order of execution, every tensor in `formats.weights`."""
    blocks = [op for layer in range(model.layers) for op in block_ops(model, layer, iteration, formats)]
    return (
        *embedding_ops(model, iteration, formats),
        *blocks,
        *output_ops(model, iteration, formats),
    )


def embedding_ops(model: Model, iteration: Iteration, formats: Formats) -> tuple[Operation, ...]:
    """Return the token (and position) lookup: only the rows of the pass's tokens are read (E-HELM-05)."""
    tables = embedding_tensors(model)
    tokens = iteration.batch * iteration.tokens
    rows = sum(size_of(tokens * model.hidden, table.kept_in(formats.weights)) for table in tables)
    out = size_of(tokens * model.hidden, formats.activations)
    flops = tokens * model.hidden * (len(tables) - 1)
    return (Operation("embedding", "lookup", 0, None, tables, tokens, rows, 0, 0, out, out, flops),)


def output_ops(model: Model, iteration: Iteration, formats: Formats) -> tuple[Operation, ...]:
    """Final norm and head, on the last position of every sequence only (HELM-04)."""
    unit = model.layers + 1
    *norm, head = output_tensors(model)
    return (
        _norm_op(model, "final_norm", unit, None, tuple(norm), iteration.batch, formats),
        _linear_op(model, "head", unit, None, (head,), iteration.batch, formats),
    )


def block_ops(
    model: Model, layer: int, iteration: Iteration, formats: Formats, divided: bool = False
) -> tuple[Operation, ...]:
    """Return the operations of one block, in order; `divided`: attention as scores, softmax and weighted values."""
    of: dict[str, list[Tensor]] = {}
    for tensor in block_tensors(model, layer):
        of.setdefault(tensor.op, []).append(tensor)
    tokens, unit = iteration.batch * iteration.tokens, layer + 1

    def norm(name: str) -> Operation:
        return _norm_op(model, name, unit, layer, tuple(of[name]), tokens, formats)

    def linear(name: str) -> Operation:
        return _linear_op(model, name, unit, layer, tuple(of[name]), tokens, formats)

    append = _append_op(model, unit, layer, tuple(of.get("append", ())), tokens, formats)
    attend = _divided_ops if divided else _attention_op
    attention = attend(model, unit, layer, iteration, formats)
    ffn = [linear(name) for name, *_ in linears(model)[4:]]
    qkv = [linear(name) for name in ("q", "k", "v")]
    return (norm("norm1"), *qkv, append, *attention, linear("o"), norm("norm2"), *ffn)


def _norm_op(
    model: Model,
    name: str,
    unit: int,
    layer: int | None,
    weights: tuple[Tensor, ...],
    tokens: int,
    fmt: Formats,
) -> Operation:
    values = tokens * model.hidden
    out = size_of(values, fmt.activations)
    size = _size(weights, fmt)
    return Operation(name, "norm", unit, layer, weights, tokens, size, 0, 0, 2 * out, out, 4 * values)


def _linear_op(
    model: Model,
    name: str,
    unit: int,
    layer: int | None,
    weights: tuple[Tensor, ...],
    tokens: int,
    fmt: Formats,
) -> Operation:
    rows, columns = weights[0].shape
    bias = rows * tokens * (len(weights) - 1)
    moved = size_of(tokens * (rows + columns), fmt.activations)
    out = size_of(tokens * rows, fmt.activations)
    flops = 2 * tokens * rows * columns + bias
    size = _size(weights, fmt)
    sizes = (size, 0, 0, moved, out, flops)
    return Operation(name, "linear", unit, layer, weights, tokens, *sizes, rows, columns=columns)


def _append_op(
    model: Model, unit: int, layer: int, weights: tuple[Tensor, ...], tokens: int, fmt: Formats
) -> Operation:
    """QK norm, rotation, and the new keys and values written to the cache."""
    rotated = tokens * (model.q_width + model.kv_width)
    written = size_of(2 * tokens * model.kv_width, fmt.kv)
    moved = size_of(2 * rotated + 2 * tokens * model.kv_width, fmt.activations)
    turned = tokens * (model.heads + model.kv_heads) * _rotary_dim(model)
    flops = 4 * rotated * bool(weights) + 3 * turned
    out = size_of(tokens * model.q_width, fmt.activations)
    size = _size(weights, fmt)
    return Operation("append", "append", unit, layer, weights, tokens, size, 0, written, moved, out, flops)


def _rotary_dim(model: Model) -> int:
    return model.position.rotary_dim if isinstance(model.position, Rope) else 0


def _attention_op(model: Model, unit: int, layer: int, iteration: Iteration, fmt: Formats) -> tuple[Operation, ...]:
    tokens, pairs = iteration.batch * iteration.tokens, iteration.batch * sum_of_contexts(iteration)
    return (attention_op(model, layer, tokens, pairs, iteration.batch * iteration.context, iteration.batch, fmt),)


def attention_op(
    model: Model, layer: int, tokens: int, pairs: int, cached: int, sequences: int, fmt: Formats
) -> Operation:
    """Scores, softmax and weighted values: causal, each token sees its own past (eq 4.11, 4.12).

    `tokens` of all `sequences`, which attend to `pairs` positions in all and read the keys and values of `cached`."""
    flops = 4 * model.heads * model.head_dim * pairs
    read = size_of(2 * cached * model.kv_width, fmt.kv)
    out = size_of(tokens * model.q_width, fmt.activations)
    seen = (read, 0, 2 * out, out, flops, 1, sequences)
    return Operation("attention", "attention", layer + 1, layer, (), tokens, 0, *seen)


def _divided_ops(model: Model, unit: int, layer: int, iteration: Iteration, fmt: Formats) -> tuple[Operation, ...]:
    """Scores = Q K^T, softmax, weighted values = P V; keys and values are each read once."""
    tokens, heads = iteration.batch * iteration.tokens, model.kv_heads
    pairs = iteration.batch * sum_of_contexts(iteration) * model.heads
    read = size_of(iteration.batch * iteration.context * model.kv_width, fmt.kv)
    query, weights = size_of(tokens * model.q_width, fmt.activations), size_of(pairs, fmt.activations)
    flops, moved = 2 * model.head_dim * pairs, query + weights
    place = (unit, layer, (), tokens, 0)
    return (
        Operation("scores", "scores", *place, read, 0, moved, weights, flops, heads, iteration.batch),
        Operation("softmax", "softmax", *place, 0, 0, 2 * weights, weights, 4 * pairs),
        Operation("wv", "wv", *place, read, 0, moved, query, flops, heads, iteration.batch),
    )


def op_extent(model: Model, op: str) -> tuple[Axis, int]:
    """(axis, parts) into which an operation may be divided."""
    if op in DIVIDED:
        return "heads", 1 if op == "softmax" else model.kv_heads
    return "rows", _row_counts(model).get(op, 1)


@lru_cache(maxsize=64)
def _row_counts(model: Model) -> Mapping[str, int]:
    """Rows of the linear layers, by operation."""
    return {"head": model.vocab, **{name: rows for name, rows, *_ in linears(model)}}


def sum_of_contexts(iteration: Iteration) -> int:
    """Return positions that the pass's tokens of one sequence attend to, added up."""
    return iteration.tokens * iteration.past + iteration.tokens * (iteration.tokens + 1) // 2


def _size(weights: tuple[Tensor, ...], fmt: Formats) -> int:
    return sum(tensor.size(fmt.weights) for tensor in weights)
