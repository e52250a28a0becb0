"""FlexGen's layers: the embedding, attention and FFN of every block, the output (GUPTA-13)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from helmsman.lowering.ops import FFN_OPS
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import block_tensors, embedding_tensors, output_tensors
from helmsman.planner.strategies.offload.allocation import Tier
from helmsman.schemas.model import Model

Kind = Literal["embedding", "attention", "ffn", "output"]


@dataclass(frozen=True, slots=True)
class Sublayer:
    """Layers of one kind: how many there are, and the tensors of each in FlexGen's order (E-GUPTA-01)."""

    kind: Kind
    count: int
    tensors: tuple[Tensor, ...]


def sublayers(model: Model) -> tuple[Sublayer, ...]:
    """The four kinds of layers; tensors of the first block stand for those of every block. Raises BadInputError for a
    model that is not made of equal dense blocks."""
    layers, block = model.dense.layers, block_tensors(model, 0)
    ffn = tuple(tensor for tensor in block if tensor.op in FFN_OPS)
    attention = tuple(tensor for tensor in block if tensor.op not in FFN_OPS)
    return (
        Sublayer("embedding", 1, embedding_tensors(model)),
        Sublayer("attention", layers, attention),
        Sublayer("ffn", layers, ffn),
        Sublayer("output", 1, output_tensors(model)),
    )


def achieved(model: Model, tiers: Mapping[Kind, tuple[Tier, ...]]) -> dict[Tier, float]:
    """Per cent of all elements in each tier, the embedding counted where it is used again (GUPTA-17)."""
    sizes: dict[Tier, int] = {"storage": 0, "host": 0, "accelerator": 0}
    for tier, elements in _placed(model, tiers):
        sizes[tier] += elements
    return {tier: 100 * size / sum(sizes.values()) for tier, size in sizes.items()}


def _placed(model: Model, tiers: Mapping[Kind, tuple[Tier, ...]]) -> Iterator[tuple[Tier, int]]:
    for layer in sublayers(model):
        for tensor, tier in zip(layer.tensors, tiers[layer.kind], strict=True):
            yield tier, layer.count * tensor.elements
