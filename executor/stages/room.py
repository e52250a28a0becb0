"""The room that a row of a pass takes in the workspaces of a model's stages: of the widest of its layouts."""

from collections.abc import Iterator

from helmsman.executor.devices.specs import RowRoom
from helmsman.lowering.row_values import layer_input_values
from helmsman.schemas.blocks.attention import Attention, LatentAttention
from helmsman.schemas.blocks.block import Block, Body, Residual
from helmsman.schemas.blocks.feed_forward import Experts, FeedForward, PerLayerInput
from helmsman.schemas.blocks.recurrent import DeltaRule, ShortConvolution, StateSpace
from helmsman.schemas.model import Model

LINE = 16
"""Positions to whose multiples scores are kept."""


def room_of(model: Model, capacity: int, divided: bool, paged: bool, apart: bool = False) -> RowRoom:
    """Return the most that any layout needs; `capacity`: positions of a cache; `apart`: experts are computed elsewhere
    than their router, and messages and sums of theirs cross."""
    inner = layer_input_values(model)
    result: RowRoom = {"wide": model.hidden, "inner": inner, "columns": model.hidden, "heads": 0, "scores": 0}
    for layout in model.layouts:
        result["inner"] = max(result["inner"], *_inner(model, layout, apart))
    for residual in (residual for layout in model.layouts for residual in layout.residuals):
        for body in residual.bodies:
            result["columns"] = max(result["columns"], _widths(model, body)[1])
            if isinstance(body.op, LatentAttention):
                result["wide"] = max(result["wide"], body.op.heads * body.op.cached_width)
                result["heads"] = max(result["heads"], body.op.heads if paged else 0)
            if isinstance(body.op, Attention):
                result["wide"] = max(result["wide"], body.op.heads * body.op.head_dim)
                result["heads"] = max(result["heads"], body.op.heads if paged else 0)
                line = body.op.heads * -(-capacity // LINE) * LINE
                result["scores"] = max(result["scores"], line if divided else 0)
    return result


def _inner(model: Model, layout: Block, apart: bool) -> Iterator[int]:
    """Yield the values of a row that lie in a layout's bodies one after the other when each residual is done: one that
    begins with no norm leaves its own behind those of the one before."""
    before = 0
    for residual in layout.residuals:
        continues = residual.pre is None and residual.bodies[0].pre is None
        sent = 2 * sum(model.hidden + body.op.chosen for body in residual.bodies if isinstance(body.op, Experts))
        before = (before if continues else 0) + _of_residual(model, residual) + (sent if apart else 0)
        yield before


def _of_residual(model: Model, residual: Residual) -> int:
    """Return the values of a row that the bodies of a residual leave one after the other; with those that are normed
    before they join the residual stream, and their sum."""
    joined = any(body.post is not None for body in residual.bodies)
    outcomes = (len(residual.bodies) + joined) * model.hidden if residual.post is not None else 0
    return sum(_widths(model, body)[0] for body in residual.bodies) + outcomes


def _widths(model: Model, body: Body) -> tuple[int, int]:
    """Return the values of a row that a body leaves one after the other, and its widest input beside hidden states."""
    hidden = model.hidden
    match body.op:
        case Attention() as op:
            queries = op.heads * op.head_dim * (1 + 2 * op.output_gate)
            return queries + 2 * op.kv_heads * op.head_dim, op.heads * op.head_dim
        case LatentAttention() as op:
            rank, given = op.query_rank or 0, op.heads * op.value_dim
            wide = op.heads * (op.compared + op.cached_width) + op.cached_width
            return 2 * rank + wide + given, max(rank, given)
        case DeltaRule() as op:
            inner, decays = op.value_heads * op.value_dim, op.value_heads
            if op.rank is not None:
                decays = 2 * op.rank + op.key_heads * op.key_dim
            return op.channels + 2 * inner + decays + op.value_heads, max(inner, op.rank or 0)
        case StateSpace() as op:
            return op.channels + 2 * (op.inner + op.heads), op.inner
        case ShortConvolution():
            return 4 * hidden, hidden
        case FeedForward() as op:
            return 2 * op.width, op.width
        case Experts() as op:
            shared = 0 if op.shared is None else op.shared.width
            normed = hidden if op.router.input_norm is not None else 0
            latent = op.latent or 0
            inner = op.experts + 2 * op.chosen + 2 * shared + op.shared_gate + normed + 2 * latent
            return inner, max(shared, latent)
        case PerLayerInput() if model.per_layer_table is not None:
            return model.per_layer_table.width, model.per_layer_table.width
        case _:
            return 0, 0
