"""The parameters of a block as vLLM has them: which matrices are one, and in which order they come."""

from functools import lru_cache

from helmsman.lowering.ops import block_index
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import block_tensors
from helmsman.schemas.model import Model

_DENSE = (("q", "k", "v"), ("o",), ("append",), ("gate", "up"), ("down",), ("norm1",), ("norm2",))
"""Operations of a dense block whose weights are one parameter, or in one module, in the order of its parameters."""

_JOINED = {
    "k": "q",
    "v": "q",
    "up": "gate",
    "shared_up": "shared_gate",
    "experts_up": "experts_gate",
    "delta_gate": "delta_in",
    "delta_beta": "delta_decay",
    "kv_a": "q_a",
    "v_b": "k_b",
}
"""Matrices whose rows follow those of another in one parameter, where the block has that."""


@lru_cache(maxsize=512)
def block_parameters(model: Model, layer: int) -> tuple[tuple[Tensor, ...], ...]:
    """Return the tensors of every parameter of a block, in vLLM's order: those of the mixer, of the router and shared
    networks, of all experts together, and norms."""
    if model.is_dense:
        return tuple(_dense(model))
    members = block_tensors(model, layer)
    ops = {tensor.op for tensor in members}
    joined: dict[tuple[str, str], list[Tensor]] = {}
    for tensor in sorted(members, key=lambda tensor: _module(model, layer, tensor)):
        with_other = _JOINED.get(tensor.op, tensor.op)
        op = with_other if with_other in ops and tensor.name.startswith(f"{tensor.op}.") else tensor.op
        part = tensor.name.partition(".")[2] if op != tensor.op or tensor.op in _JOINED.values() else tensor.name
        joined.setdefault((op, part), []).append(tensor)
    return tuple(map(tuple, joined.values()))


def _module(model: Model, layer: int, tensor: Tensor) -> tuple[bool, int, bool]:
    """Return the place of a tensor's module in a block: norms of the block come last, and experts after what all tokens
    go through."""
    facts = block_index(model, layer).get(tensor.op)
    norm = tensor.op.removeprefix("post_").startswith("norm")
    return norm, 1 if facts is None else facts.half, tensor.stacked


def _dense(model: Model) -> list[tuple[Tensor, ...]]:
    """Return the parameters of a dense block: q, k and v are one, and so are gate and up."""
    block: list[tuple[Tensor, ...]] = []
    for ops in _DENSE:
        members = [tensor for tensor in block_tensors(model, 0) if tensor.op in ops]
        parts = dict.fromkeys(tensor.name.partition(".")[2] if len(ops) > 1 else tensor.name for tensor in members)
        block += [tuple(tensor for tensor in members if tensor.name.endswith(part)) for part in parts]
    return block
