"""The room that a row of a pass takes in the workspaces of a model's stages: of the widest of its layouts."""

from helmsman.executor.devices.specs import RowRoom
from helmsman.schemas.blocks.attention import Attention, LatentAttention
from helmsman.schemas.blocks.block import Body, Residual
from helmsman.schemas.blocks.feed_forward import Experts, FeedForward
from helmsman.schemas.blocks.recurrent import DeltaRule, ShortConvolution, StateSpace
from helmsman.schemas.model import Model

LINE = 16
"""Positions to whose multiples scores are kept."""


def room_of(model: Model, capacity: int, divided: bool, paged: bool, apart: bool = False) -> RowRoom:
    """Return the most that any layout needs; `capacity`: positions of a cache; `apart`: experts are computed elsewhere
    than their router, and messages and sums of theirs cross."""
    result: RowRoom = {"wide": model.hidden, "inner": 0, "columns": model.hidden, "heads": 0, "scores": 0}
    for residual in (residual for layout in model.layouts for residual in layout.residuals):
        sent = 2 * sum(model.hidden + body.op.chosen for body in residual.bodies if isinstance(body.op, Experts))
        result["inner"] = max(result["inner"], _inner(model.hidden, residual) + (sent if apart else 0))
        for body in residual.bodies:
            result["columns"] = max(result["columns"], _widths(model.hidden, body)[1])
            if isinstance(body.op, LatentAttention):
                result["wide"] = max(result["wide"], body.op.heads * body.op.cached_width)
                result["heads"] = max(result["heads"], body.op.heads if paged else 0)
            if isinstance(body.op, Attention):
                result["wide"] = max(result["wide"], body.op.heads * body.op.head_dim)
                result["heads"] = max(result["heads"], body.op.heads if paged else 0)
                line = body.op.heads * -(-capacity // LINE) * LINE
                result["scores"] = max(result["scores"], line if divided else 0)
    return result


def _inner(hidden: int, residual: Residual) -> int:
    """Return the values of a row that the bodies of a residual leave one after the other; with those that are normed
    before they join the residual stream, and their sum."""
    joined = any(body.post is not None for body in residual.bodies)
    outcomes = (len(residual.bodies) + joined) * hidden if residual.post is not None else 0
    return sum(_widths(hidden, body)[0] for body in residual.bodies) + outcomes


def _widths(hidden: int, body: Body) -> tuple[int, int]:
    """Return the values of a row that a body leaves one after the other, and its widest input beside hidden states."""
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
            return op.experts + 2 * op.chosen + 2 * shared + op.shared_gate + normed, shared
        case _:
            return 0, 0
