"""Tells which rows of a file's tensor, in which order, are those of one of ours: where several lie in turns."""

from collections.abc import Iterator, Sequence

from helmsman.lowering.stored_names import StoredTensor
from helmsman.lowering.tensor import Tensor
from helmsman.schemas.blocks.recurrent import DeltaRule
from helmsman.schemas.model import Model


def file_rows(model: Model, stored: StoredTensor, tensor: Tensor) -> Sequence[range] | None:
    """Return runs of the rows of `stored` that are together those of `tensor`, experts one after the other; None where
    they follow each other as ours do."""
    if tensor.stacked:
        return list(_of_experts(stored, tensor))
    if stored.layout == "heads" and tensor.op.startswith("delta_"):
        return list(_of_heads(delta_rule_of(model, tensor), tensor))
    return None


def _of_experts(stored: StoredTensor, tensor: Tensor) -> Iterator[range]:
    """Yield the rows of every expert; the file has all parts of one, then those of the next."""
    rows = [part.shape[1] for part in stored.parts]
    first = sum(rows[: stored.parts.index(tensor)])
    for expert in range(tensor.shape[0]):
        start = expert * sum(rows) + first
        yield range(start, start + tensor.shape[1])


def _of_heads(body: DeltaRule, tensor: Tensor) -> Iterator[range]:
    """Yield the rows of every key head: query, key, its values and their gates; or rates before steps."""
    sharing = body.value_heads // body.key_heads
    values = sharing * body.value_dim
    group = 2 * (body.key_dim + values)
    match tensor.op:
        case "delta_in":
            yield from _strided(body.key_heads, group, 0, body.key_dim)
            yield from _strided(body.key_heads, group, body.key_dim, body.key_dim)
            yield from _strided(body.key_heads, group, 2 * body.key_dim, values)
        case "delta_gate":
            yield from _strided(body.key_heads, group, 2 * body.key_dim + values, values)
        case "delta_beta":
            yield from _strided(body.key_heads, 2 * sharing, 0, sharing)
        case "delta_decay":
            yield from _strided(body.key_heads, 2 * sharing, sharing, sharing)


def _strided(count: int, stride: int, first: int, rows: int) -> Iterator[range]:
    yield from (range(number * stride + first, number * stride + first + rows) for number in range(count))


def delta_rule_of(model: Model, tensor: Tensor) -> DeltaRule:
    """Return the mixer of a tensor's block."""
    assert tensor.layer is not None, "a tensor of a block"
    return next(body.op for body in model.blocks[tensor.layer].bodies if isinstance(body.op, DeltaRule))
