"""The multipliers of a model that its GGUF files have in their weights: Falcon-H1's."""

from typing import TypeVar

from helmsman.lowering.tensor import Tensor
from helmsman.schemas.blocks.attention import Attention
from helmsman.schemas.blocks.block import Body
from helmsman.schemas.blocks.feed_forward import FeedForward
from helmsman.schemas.blocks.recurrent import StateSpace
from helmsman.schemas.model import Model

OpT = TypeVar("OpT")

Runs = tuple[tuple[int, float], ...]
"""By what rows are multiplied, in runs: how many, and the factor."""


def row_factors(model: Model, tensor: Tensor) -> Runs | None:
    """Return by what a file multiplies the rows of a tensor; None where they are as the model has them."""
    if model.family != "falcon_h1":
        return None
    runs = _runs(model, tensor)
    return None if all(factor == 1.0 for _, factor in runs) else runs


def _runs(model: Model, tensor: Tensor) -> Runs:
    rows = tensor.shape[0]
    if tensor.layer is None:
        return ((rows, {"embedding": model.embedding.scale, "head": model.head.scale}.get(tensor.op, 1.0)),)
    if tensor.op == "scan_in":
        body, space = _body(model, tensor, StateSpace)
        shared, scales = space.groups * space.state, space.scales or (1.0,) * 5
        parts = (space.inner, space.inner, shared, shared, space.heads)
        return tuple((count, body.in_scale * scale) for count, scale in zip(parts, scales, strict=True))
    return ((rows, _factor(model, tensor)),)


def _factor(model: Model, tensor: Tensor) -> float:
    match tensor.op:
        case "q" | "v":
            return _body(model, tensor, Attention)[0].in_scale
        case "k":
            body, attention = _body(model, tensor, Attention)
            return body.in_scale * attention.key_scale
        case "o":
            return _body(model, tensor, Attention)[0].out_scale
        case "scan_out":
            return _body(model, tensor, StateSpace)[0].out_scale
        case "gate":
            return _body(model, tensor, FeedForward)[1].gate_scale
        case "down":
            return _body(model, tensor, FeedForward)[0].out_scale
    return 1.0


def _body(model: Model, tensor: Tensor, kind: type[OpT]) -> tuple[Body, OpT]:
    assert tensor.layer is not None, "a tensor of a block"
    return next((body, body.op) for body in model.blocks[tensor.layer].bodies if isinstance(body.op, kind))
