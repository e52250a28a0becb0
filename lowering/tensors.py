"""Lists every weight tensor of a model in order of use."""

from collections.abc import Iterator
from functools import lru_cache

from helmsman.lowering.bodies.per_layer_input import LAYER_NORM, LAYER_PROJECTION, LAYER_TABLE
from helmsman.lowering.bodies.registry import body_matrices, body_vectors
from helmsman.lowering.residuals import NamedNorm, norm_tensors, normed_residuals
from helmsman.lowering.tensor import POSITIONS, Tensor, matrix
from helmsman.schemas.blocks.block import Block
from helmsman.schemas.blocks.feed_forward import Experts
from helmsman.schemas.model import Model

LOOKUPS = ("embedding", LAYER_TABLE)
"""Operations that read the rows of tokens in tables."""


@lru_cache(maxsize=64)
def tensors(model: Model) -> tuple[Tensor, ...]:
    """Return all tensors in order of use: embedding, blocks, output."""
    blocks = [tensor for layer in range(model.layers) for tensor in block_tensors(model, layer)]
    return (*embedding_tensors(model), *blocks, *output_tensors(model))


@lru_cache(maxsize=64)
def parameters(model: Model) -> int:
    """Return the parameter count; a tied head counts once, buffers do not."""
    return sum(tensor.elements for tensor in tensors(model) if tensor.tied_to is None and not tensor.buffer)


def active_parameters(model: Model) -> float:
    """Return the parameters that one token is multiplied with: of experts those that it chooses, of tables that are
    only looked up none."""
    total = 0.0
    for tensor in tensors(model):
        looked_up = tensor.op == LAYER_TABLE or tensor.name == POSITIONS
        if tensor.buffer or looked_up or (tensor.op == "embedding" and not model.head.tied):
            continue
        if tensor.tied_to is None:
            total += tensor.elements * (_chosen_share(model, tensor) if tensor.stacked else 1.0)
    return total


def _chosen_share(model: Model, tensor: Tensor) -> float:
    bodies = model.blocks[tensor.layer or 0].bodies
    experts = next(body.op for body in bodies if isinstance(body.op, Experts))
    return experts.chosen / experts.experts


def embedding_tensors(model: Model) -> tuple[Tensor, ...]:
    """Return the token embedding (vocab, width), the position table where positions are learned, the matrix that
    brings rows to the hidden width, and what layers have tables for."""
    embedding = model.embedding
    result = [Tensor("embedding.weight", "embedding", None, (model.vocab, embedding.width or model.hidden))]
    if embedding.positions is not None:
        rows = model.max_context + embedding.positions.offset
        result.append(Tensor(POSITIONS, "embedding", None, (rows, model.hidden)))
    if embedding.width is not None:
        result += matrix("embedding_out", None, model.hidden, embedding.width)
    if embedding.norm is not None:
        result += norm_tensors(NamedNorm("embedding_norm", embedding.norm), None, model.hidden)
    table = model.per_layer_table
    if table is not None:
        wide = model.layers * table.width
        result.append(Tensor(f"{LAYER_TABLE}.weight", LAYER_TABLE, None, (table.vocab, wide)))
        result += matrix(LAYER_PROJECTION, None, wide, model.hidden)
        result += norm_tensors(NamedNorm(LAYER_NORM, table.norm), None, table.width)
    return tuple(result)


def output_tensors(model: Model) -> tuple[Tensor, ...]:
    """Return the final norm, the matrix to the head's width, and the head (vocab, width); a tied head shares the
    embedding's bytes and comes last."""
    result = list(_streams(model, None)) if model.streams is not None else []
    if model.final is not None:
        result += norm_tensors(NamedNorm("final_norm", model.final), None, model.hidden)
    if model.head.width is not None:
        result += matrix("head_in", None, model.head.width, model.hidden)
    if model.head.bias:
        result.append(Tensor("head.bias", "head", None, (model.vocab,)))
    tied = "embedding.weight" if model.head.tied else None
    return (*result, Tensor("head.weight", "head", None, (model.vocab, model.head.width or model.hidden), tied))


@lru_cache(maxsize=4096)
def block_tensors(model: Model, layer: int) -> tuple[Tensor, ...]:
    """Return the tensors of one block: matrices (rows out, columns in), norms, and what bodies store beside."""
    block = model.blocks[layer]
    matrices = [tensor for body in block.bodies for tensor in body_matrices(model, layer, body)]
    beside = [tensor for body in block.bodies for tensor in body_vectors(model, layer, body)]
    scale = [Tensor("block_scale.weight", "block_scale", layer, (1,), buffer=True)] if block.scale == "stored" else []
    return (*matrices, *_norms(model, block, layer), *beside, *_mixing(model, block, layer), *scale)


def linears(model: Model, layer: int = 0) -> tuple[tuple[str, int, int, bool], ...]:
    """Return (operation, rows out, columns in, has bias) of a block's linear layers, in order of use; by default of the
    first block, for what works on equal blocks."""
    members = block_tensors(model, layer)
    names = {tensor.name for tensor in members}
    matrices = (tensor for tensor in members if len(tensor.shape) == 2 and tensor.name.endswith(".weight"))
    return tuple((tensor.op, tensor.shape[0], tensor.shape[1], f"{tensor.op}.bias" in names) for tensor in matrices)


def _norms(model: Model, block: Block, layer: int) -> Iterator[Tensor]:
    for residual in normed_residuals(block):
        for named in residual.norms:
            yield from norm_tensors(named, layer, model.hidden)


def _mixing(model: Model, block: Block, layer: int) -> Iterator[Tensor]:
    """Yield what mixes the streams around every body, where a model has several."""
    if model.streams is not None:
        for number in range(1, len(block.bodies) + 1):
            yield from _streams(model, layer, f"mix{number}")


def _streams(model: Model, layer: int | None, op: str = "merge") -> Iterator[Tensor]:
    """Yield the matrix, offsets and scales that mix streams around a body, or `merge` them at the end."""
    assert model.streams is not None
    streams = model.streams.streams
    rows, scales = (streams, 1) if layer is None else ((2 + streams) * streams, 3)
    yield Tensor(f"{op}.weight", op, layer, (rows, streams * model.hidden), exact=True)
    yield Tensor(f"{op}_offset.weight", op, layer, (rows,))
    yield Tensor(f"{op}_scale.weight", op, layer, (scales,))
