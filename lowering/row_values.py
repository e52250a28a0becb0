"""Counts the values that are held at once while a token passes through a block beside others: an upper bound over its
parts."""

from collections.abc import Iterator
from functools import lru_cache

from helmsman.schemas.blocks.attention import Attention, CompressedAttention, LatentAttention
from helmsman.schemas.blocks.block import Block, Body, Residual
from helmsman.schemas.blocks.feed_forward import Experts, FeedForward, PerLayerInput
from helmsman.schemas.blocks.recurrent import DeltaRule, ShortConvolution, StateSpace
from helmsman.schemas.model import Model

_ROUTED_ROWS = 1024
"""Rows, one of a token for each expert that it chooses, whose values experts hold at once, if no expert has more (csrc:
kWaveRows)."""


@lru_cache(maxsize=256)
def row_values(model: Model, rows: int) -> int:
    """Return values of each of `rows` tokens of a pass: hidden states, of every stream before and after they are mixed,
    normed ones or what a mixer gives, what the widest part holds, a packed copy of a layer's input, and what routed
    experts hold; each the most of any layer."""
    ends = 3 * model.hidden + layer_input_values(model)
    bodies = [body for block in model.layouts for body in block.bodies]
    parts = [part for body in bodies for part in _parts(model, body)]
    wide = max(model.hidden, *(outcome for outcome, _, _ in parts))
    inner = max(held for block in model.layouts for held in _held(model, block))
    carried = model.hidden if model.streams is None else 2 * model.streams.streams * model.hidden
    routed = max((_routed(model, body.op, rows) for body in bodies if isinstance(body.op, Experts)), default=0)
    return max(ends, carried + wide + inner + max(wide, *(packed for _, _, packed in parts)) + routed)


def layer_input_values(model: Model) -> int:
    """Return values that layers read of a token beside its hidden state, which are kept for all tokens of a pass."""
    return 0 if model.per_layer_table is None else model.layers * model.per_layer_table.width


def _routed(model: Model, op: Experts, rows: int) -> int:
    """Return values of each of `rows` tokens that routed experts hold: inputs, gates, their products and outcomes of
    `_ROUTED_ROWS` rows at once, and the order of all."""
    wide = op.latent or model.hidden
    kept = min(rows * op.chosen, max(_ROUTED_ROWS, rows))
    return -(-kept * (2 * op.width + wide + max(op.width, wide)) // rows) + 2 * op.chosen


def _held(model: Model, block: Block) -> Iterator[int]:
    """Yield the values held within each residual; those of one that begins with no norm follow those before it."""
    before = 0
    for residual in block.residuals:
        continues = residual.pre is None and residual.bodies[0].pre is None
        before = (before if continues else 0) + _within(model, residual)
        yield before


def _within(model: Model, residual: Residual) -> int:
    """Return the values held within the bodies of a residual: of the widest, or, where several are added up before they
    join the residual stream, of all of them; with outcomes that are normed first."""
    held = [max((inner for _, inner, _ in _parts(model, body)), default=0) for body in residual.bodies]
    if residual.post is None:
        return max(held)
    return sum(held) + (len(held) + (len(held) > 1)) * model.hidden


def _parts(model: Model, body: Body) -> Iterator[tuple[int, int, int]]:
    """Yield (values that a mixer gives, values held within, values that a product takes)."""
    hidden = model.hidden
    match body.op:
        case Attention() as op:
            within = op.q_width * (1 + 2 * op.output_gate) + op.k_width + op.v_width
            yield max(op.q_width, op.out_width), within, op.out_width
        case LatentAttention() as op:
            latent, given = op.heads * op.cached_width, op.heads * op.value_dim
            indexer = 0 if op.indexer is None else op.indexer.heads * op.indexer.head_dim
            within = 2 * (op.query_rank or 0) + op.heads * op.compared + op.cached_width + latent + given
            yield latent, within + indexer, given
        case CompressedAttention() as op:
            wide = op.heads * op.head_dim
            indexer = 0 if op.indexer is None else op.indexer.heads * op.indexer.head_dim
            yield wide, 2 * wide + op.query_rank + 5 * op.head_dim + indexer, wide
        case DeltaRule() as op:
            inner = op.value_heads * op.value_dim
            yield inner, 2 * op.channels + 2 * inner + 2 * op.key_heads * op.key_dim, inner
        case StateSpace() as op:
            yield op.inner, 2 * op.channels + 2 * op.inner + op.heads, op.inner
        case ShortConvolution():
            yield hidden, 4 * hidden, hidden
        case FeedForward() as op:
            yield hidden, 2 * op.width, op.width
        case Experts() as op:
            shared = 0 if op.shared is None else op.shared.width
            sent = 2 * (hidden + op.chosen)
            yield hidden, 2 * shared + 2 * op.experts + sent, max(op.width, shared)
        case PerLayerInput() if model.per_layer_table is not None:
            yield hidden, model.per_layer_table.width, hidden
