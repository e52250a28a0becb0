"""Blocks that no rule of a placement tells apart: what is asked of one of them holds for all."""

from collections import Counter
from collections.abc import Iterator

from helmsman.lowering.placement import KnownPlan, Placed, layouts_of
from helmsman.lowering.rules import first_alike
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import block_tensors, embedding_tensors, output_tensors


def alike(placed: Placed) -> dict[int, int]:
    """The first of all blocks that no rule tells apart, and how many they are."""
    if isinstance(placed, KnownPlan):
        return Counter(placed.first_alike)
    return Counter(first_alike(placed, layouts_of(placed), placed.expert_slots))


def counted_tensors(placed: Placed) -> Iterator[tuple[Tensor, int]]:
    """The tensors outside blocks and of the first of blocks that are alike, and how many each stands for."""
    yield from ((tensor, 1) for tensor in embedding_tensors(placed.model))
    for layer, count in alike(placed).items():
        yield from ((tensor, count) for tensor in block_tensors(placed.model, layer))
    yield from ((tensor, 1) for tensor in output_tensors(placed.model))
