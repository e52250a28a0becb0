"""The rows of a GGUF file's tensors in the order, and with the values, that its architecture has them."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from helmsman.executor.checkpoint.write import piece_of
from helmsman.executor.weights.file_rows import delta_rule_of, file_rows
from helmsman.executor.weights.gguf_checkpoint import INTERLEAVED, RATES, TILED
from helmsman.executor.weights.stored_rows import halves
from helmsman.lowering.stored_names import StoredTensor
from helmsman.lowering.tensor import Tensor
from helmsman.schemas.model import Model

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Rows = NDArray[Any]
    Places = NDArray[np.intp]
    Drawn = Callable[[Tensor], Iterator[Rows]]

_OF_VALUES = ("delta_in", "delta_conv", "delta_gate")
_OF_HEADS = ("delta_decay", "delta_beta", "delta_rate", "delta_offset")
"""Tensors whose rows are of value heads: of each its values, or one."""


def in_file_order(model: Model, architecture: str, item: StoredTensor, drawn: "Drawn") -> "Iterator[Rows]":
    """Yield the rows of a file's tensor, a few at a time where they follow each other as ours do.

    `drawn`: the rows of one of ours, in plain formats."""
    if item.layout == "heads":
        yield _by_heads(model, item, drawn)
        return
    for part in item.parts:
        yield from piece_of(item, _ordered(model, architecture, part, drawn(part)))


def _ordered(model: Model, architecture: str, part: Tensor, chunks: "Iterator[Rows]") -> "Iterator[Rows]":
    import numpy as np

    if part.name in RATES:
        chunks = iter([-np.exp(_whole(chunks))])
    attention = None if part.layer is None else model.attention(part.layer)
    if architecture in INTERLEAVED and part.op in ("q", "k") and attention is not None:
        yield _whole(chunks)[np.argsort(halves(part.shape[0], attention.head_dim))]
    elif architecture in TILED and part.name == "delta_out.weight":
        yield np.ascontiguousarray(_whole(chunks)[:, _tiles(model, part)])
    elif architecture in TILED and part.name.split(".")[0] in (*_OF_VALUES, *_OF_HEADS):
        yield _whole(chunks)[_tiles(model, part)]
    else:
        yield from chunks


def _tiles(model: Model, part: Tensor) -> "Places":
    """Return for every row of a file's tensor, or column of its output, the place of ours: first that of each key
    head's first value head, then of each one's second."""
    import numpy as np

    body, name = delta_rule_of(model, part), part.name.split(".")[0]
    width = 1 if name in _OF_HEADS else body.value_dim
    before = 2 * body.key_heads * body.key_dim if name in ("delta_in", "delta_conv") else 0
    own = np.arange(body.value_heads * width).reshape(body.key_heads, -1, width).swapaxes(0, 1).ravel()
    return np.concatenate([np.arange(before), before + own])


def _by_heads(model: Model, item: StoredTensor, drawn: "Drawn") -> "Rows":
    """Return rows of several tensors of ours that key heads have by turns."""
    import numpy as np

    parts = {part: _whole(drawn(part)) for part in item.parts}
    result = np.empty(item.shape, next(iter(parts.values())).dtype)
    for part, rows in parts.items():
        runs = file_rows(model, item, part)
        assert runs is not None, "parts that take turns"
        result[np.concatenate([np.arange(run.start, run.stop) for run in runs])] = rows
    return result


def _whole(chunks: "Iterable[Rows]") -> "Rows":
    import numpy as np

    return np.concatenate(list(chunks))
