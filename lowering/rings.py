"""Caches of layers with a window that hold no more than its positions and those that pass at a time: rings."""

from helmsman.lowering.buffers import chunk_of
from helmsman.lowering.caches import pieces_of
from helmsman.lowering.layer_cache import shared_caches
from helmsman.lowering.placement import Placed
from helmsman.lowering.rules import places
from helmsman.scheduler.iteration import PHASES


def ring_rows(plan: Placed, layer: int) -> int | None:
    """Return rows of each sequence in the cache of a layer where these are fewer than all positions.

    None: it has one for every position, as layers without a window, caches that are not read where they are kept, as
    they are kept, and those that later layers read, for which all tokens of a prompt may be through by then."""
    rows = windowed_rows(plan, layer)
    return None if rows == plan.workload.context else rows


def windowed_rows(plan: Placed, layer: int) -> int | None:
    """Return rows of each sequence in the cache of a layer with a window that keeps no more than it and the tokens that
    pass at a time, all positions of a short context among them; None for other layers and caches."""
    attention = plan.model.attention(layer)
    if attention is None or attention.window is None or attention.cache_of is not None:
        return None
    if layer in shared_caches(plan.model) or not _stays(plan, layer):
        return None
    return min(ring_size(attention.window, chunk_of(plan)), plan.workload.context)


def ring_size(window: int, passing: int) -> int:
    """Return rows of a ring: the positions of a window and of the tokens that pass at a time, the first of which is in
    the window itself."""
    return window + passing - 1


def _stays(plan: Placed, layer: int) -> bool:
    """Whether keys and values are made, kept and read in one memory, in one format."""
    if plan.schedule.reshape or plan.schedule.attention != "whole":
        return False
    pieces = pieces_of(plan, layer)
    memories = {piece.rule.memory for piece in pieces}
    for op, extent in (("append", 1), ("scores", pieces[0].heads), ("wv", pieces[0].heads)):
        for phase in PHASES:
            parts = places(plan, op, layer, phase, extent, "rows" if op == "append" else "heads")
            memories |= {plan.hardware.device(part.rule.device).memory for part in parts}
    kept = all(piece.rule.cache is None and piece.rule.format == piece.rule.used for piece in pieces)
    return kept and len(memories) == 1
