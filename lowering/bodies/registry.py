"""Finds the tensors and operations of a body by its kind: where a new kind of mixer or network is entered."""

from collections.abc import Iterator

from helmsman.lowering.bodies import (
    attention,
    compressed_attention,
    delta_rule,
    experts,
    feed_forward,
    latent_attention,
    per_layer_input,
    short_convolution,
    state_space,
)
from helmsman.lowering.bodies.block_pass import BlockPass
from helmsman.lowering.operation import Operation
from helmsman.lowering.tensor import Tensor
from helmsman.schemas.blocks.attention import Attention, CompressedAttention, LatentAttention
from helmsman.schemas.blocks.block import Body
from helmsman.schemas.blocks.feed_forward import Experts, FeedForward, PerLayerInput
from helmsman.schemas.blocks.recurrent import DeltaRule, ShortConvolution, StateSpace
from helmsman.schemas.model import Model


def body_matrices(model: Model, layer: int, body: Body) -> Iterator[Tensor]:
    """Yield the matrices of a body and their biases, in order of use."""
    match body.op:
        case Attention() as op:
            yield from attention.matrices(op, layer, model.hidden)
        case LatentAttention() as op:
            yield from latent_attention.matrices(op, layer, model.hidden)
        case CompressedAttention() as op:
            yield from compressed_attention.matrices(op, layer, model.hidden)
        case DeltaRule() as op:
            yield from delta_rule.matrices(op, layer, model.hidden)
        case StateSpace() as op:
            yield from state_space.matrices(op, layer, model.hidden)
        case ShortConvolution() as op:
            yield from short_convolution.matrices(op, layer, model.hidden)
        case FeedForward() as op:
            yield from feed_forward.matrices(op, layer, model.hidden)
        case Experts() as op:
            yield from experts.matrices(op, layer, model.hidden)
        case PerLayerInput() if model.per_layer_table is not None:
            yield from per_layer_input.matrices(model.per_layer_table.width, layer, model.hidden)


def body_vectors(model: Model, layer: int, body: Body) -> Iterator[Tensor]:
    """Yield what a body stores beside its matrices."""
    match body.op:
        case Attention() as op:
            yield from attention.vectors(op, layer)
        case LatentAttention() as op:
            yield from latent_attention.vectors(op, layer)
        case CompressedAttention() as op:
            yield from compressed_attention.vectors(op, layer)
        case DeltaRule() as op:
            yield from delta_rule.vectors(op, layer)
        case StateSpace() as op:
            yield from state_space.vectors(op, layer)
        case Experts() as op:
            yield from experts.vectors(op, layer, model.hidden)


def body_operations(body: Body, block: BlockPass, source: str) -> Iterator[Operation]:
    """Yield the operations of a body that reads the output `source`; the last one gives its outcome."""
    match body.op:
        case Attention() as op:
            yield from attention.operations(op, block, source)
        case LatentAttention() as op:
            yield from latent_attention.operations(op, block, source)
        case CompressedAttention() as op:
            yield from compressed_attention.operations(op, block, source)
        case DeltaRule() as op:
            yield from delta_rule.operations(op, block, source)
        case StateSpace() as op:
            yield from state_space.operations(op, block, source)
        case ShortConvolution() as op:
            yield from short_convolution.operations(op, block, source)
        case FeedForward() as op:
            yield from feed_forward.operations(op, block, source)
        case Experts() as op:
            yield from experts.operations(op, block, source)
        case PerLayerInput():
            yield from per_layer_input.operations(block, source)
