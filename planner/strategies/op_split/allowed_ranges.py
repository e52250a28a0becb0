"""Which ranges of chunks a device may take: one range of a block's chunks is the accelerator's, the rest the host's.

Masks are bool (chunks + 1, chunks + 1) by the first chunk and the one after the last."""

import numpy as np

from helmsman.planner.strategies.op_split.options import Mask
from helmsman.planner.strategies.streaming.division import DivisionPiece


def leaving_one_part(units: tuple[DivisionPiece, ...]) -> Mask:
    """The ranges that do not leave the host the first and the last chunks of one operation, of which a device computes
    one part."""
    ops = np.array([unit.op for unit in units])
    start, stop = np.indices((len(units) + 1, len(units) + 1))
    before, after = ops[np.maximum(start, 1) - 1], ops[np.minimum(stop, len(units) - 1)]
    return np.asarray((start == 0) | (stop == len(units)) | (start >= stop) | (before != after))


def attention_together(units: tuple[DivisionPiece, ...]) -> Mask:
    """The ranges that part none of K, attention and V from the others: on cached activations what passes between them
    is as wide as the model for every head, which the closed form does not count."""
    names = [unit.op for unit in units]
    first, last = names.index("k"), names.index("v") + 1
    start, stop = np.indices((len(units) + 1, len(units) + 1))
    return np.asarray((stop <= first) | (start >= last) | (start >= stop) | ((start <= first) & (stop >= last)))
