"""The room that a row of a pass takes in the workspaces of a model's stages: of the widest of its layouts."""

from helmsman.executor.devices.specs import RowRoom
from helmsman.schemas.blocks.attention import Attention
from helmsman.schemas.blocks.block import Body
from helmsman.schemas.blocks.feed_forward import Experts, FeedForward
from helmsman.schemas.model import Model

LINE = 16
"""Positions to whose multiples scores are kept."""


def room_of(model: Model, capacity: int, divided: bool, paged: bool) -> RowRoom:
    """Return the most that any layout needs; `capacity`: positions of a cache."""
    result: RowRoom = {"wide": model.hidden, "inner": 0, "columns": model.hidden, "heads": 0, "scores": 0}
    for body in (body for layout in model.layouts for body in layout.bodies):
        inner, widest = _widths(body)
        result["inner"] = max(result["inner"], inner)
        result["columns"] = max(result["columns"], widest)
        if isinstance(body.op, Attention):
            result["wide"] = max(result["wide"], body.op.heads * body.op.head_dim)
            result["heads"] = max(result["heads"], body.op.heads if paged else 0)
            line = body.op.heads * -(-capacity // LINE) * LINE
            result["scores"] = max(result["scores"], line if divided else 0)
    return result


def _widths(body: Body) -> tuple[int, int]:
    """Return the values of a row that a body leaves one after the other, and its widest input beside hidden states."""
    match body.op:
        case Attention() as op:
            return op.heads * op.head_dim + 2 * op.kv_heads * op.head_dim, op.heads * op.head_dim
        case FeedForward() as op:
            return 2 * op.width, op.width
        case Experts() as op:
            shared = 0 if op.shared is None else op.shared.width
            return op.experts + 2 * op.chosen + 2 * shared + op.shared_gate, shared
        case _:
            return 0, 0
