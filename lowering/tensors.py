"""Every weight tensor of a model: its name, shape, block and exact size."""

from functools import lru_cache
from math import prod
from typing import NamedTuple

from helmsman.schemas.formats import StoredFormat, is_plain, size_of
from helmsman.schemas.model import LearnedPositions, Model

POSITIONS = "positions.weight"
"""The table that every token reads at its place, not at its id."""


class Tensor(NamedTuple):
    """A weight: `name` is `op.part` (`q.weight`), `layer` its block or None, `op` the operation that reads it.

    `tied_to` names the tensor whose bytes it shares when both live in one memory."""

    name: str
    op: str
    layer: int | None
    shape: tuple[int, ...]
    tied_to: str | None = None

    @property
    def elements(self) -> int:
        """Number of values."""
        return prod(self.shape)

    @property
    def quantised(self) -> bool:
        """Whether a quantised format is meant for it: for matrices and tables of tokens, not for positions."""
        return len(self.shape) > 1 and self.name != POSITIONS

    def kept_in(self, fmt: StoredFormat) -> StoredFormat:
        """Return its format where weights are in `fmt`: what is never quantised is f32 where they are."""
        return fmt if self.quantised or is_plain(fmt) else "f32"

    def size(self, fmt: StoredFormat) -> int:
        """Return bytes where weights are in `fmt`."""
        return size_of(self.elements, self.kept_in(fmt))


@lru_cache(maxsize=64)
def tensors(model: Model) -> tuple[Tensor, ...]:
    """Return all tensors in order of use: embedding, blocks, output."""
    blocks = [tensor for layer in range(model.layers) for tensor in block_tensors(model, layer)]
    return (*embedding_tensors(model), *blocks, *output_tensors(model))


def parameters(model: Model) -> int:
    """Parameter count; a tied head counts once."""
    return sum(tensor.elements for tensor in tensors(model) if tensor.tied_to is None)


def embedding_tensors(model: Model) -> tuple[Tensor, ...]:
    """Token embedding (vocab, H), and the position table where positions are learned."""
    token = Tensor("embedding.weight", "embedding", None, (model.vocab, model.hidden))
    if not isinstance(model.position, LearnedPositions):
        return (token,)
    rows = model.max_context + model.position.offset
    return (token, Tensor(POSITIONS, "embedding", None, (rows, model.hidden)))


def output_tensors(model: Model) -> tuple[Tensor, ...]:
    """Final norm and the head (vocab, H); a tied head shares the embedding's bytes."""
    tied = "embedding.weight" if model.tied_embeddings else None
    head = Tensor("head.weight", "head", None, (model.vocab, model.hidden), tied)
    return (*_norm(model, "final_norm", None), head)


@lru_cache(maxsize=512)
def block_tensors(model: Model, layer: int) -> tuple[Tensor, ...]:
    """Return the tensors of one block; linear weights are (rows out, columns in)."""
    tensors: list[Tensor] = []
    for op, rows, columns, bias in linears(model):
        tensors.append(Tensor(f"{op}.weight", op, layer, (rows, columns)))
        if bias:
            tensors.append(Tensor(f"{op}.bias", op, layer, (rows,)))
    norms = (*_norm(model, "norm1", layer), *_norm(model, "norm2", layer), *_qk_norms(model, layer))
    return (*tensors, *norms)


def linears(model: Model) -> tuple[tuple[str, int, int, bool], ...]:
    """(operation, rows out, columns in, has bias) of a block's linear layers, in order of use."""
    h, f = model.hidden, model.ffn
    attention = (
        ("q", model.q_width, h, model.qkv_bias),
        ("k", model.kv_width, h, model.qkv_bias),
        ("v", model.kv_width, h, model.qkv_bias),
        ("o", h, model.q_width, model.out_bias),
    )
    gate = (("gate", f, h, model.ffn_bias),) if model.gated else ()
    return (*attention, *gate, ("up", f, h, model.ffn_bias), ("down", h, f, model.ffn_bias))


def _norm(model: Model, op: str, layer: int | None) -> tuple[Tensor, ...]:
    parts = ("weight",) if model.norm == "rms" else ("weight", "bias")
    return tuple(Tensor(f"{op}.{part}", op, layer, (model.hidden,)) for part in parts)


def _qk_norms(model: Model, layer: int) -> tuple[Tensor, ...]:
    if not model.qk_norm:
        return ()
    return tuple(Tensor(f"{name}.weight", "append", layer, (model.head_dim,)) for name in ("q_norm", "k_norm"))
