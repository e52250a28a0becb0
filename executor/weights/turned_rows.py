"""Rows of experts that a file keeps as columns, by turns with those of another matrix, or as MXFP4 (gpt-oss)."""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helmsman.executor.weights.stored_rows import StoredRows
from helmsman.lowering.stored_names import StoredTensor
from helmsman.lowering.tensor import Tensor

BLOCK = 32
"""Columns of MXFP4 under one scale."""


class TurnedRows:
    """The rows of all experts, one after the other, read as `StoredRows` are: of single expert every `step`th one from
    `begin` on. The last expert that was read is kept.

    `read` gives all rows of an expert by its number; `single`: the shape of its rows here; `size`: bytes of a
    number."""

    def __init__(
        self,
        read: Callable[[int], NDArray[Any]],
        single: tuple[int, ...],
        size: int,
        places: range,
        span: range,
    ) -> None:
        """`places`: of a step and where it begins; `span`: which rows of all experts together these are."""
        self._read, self._each, self._size, self._places, self._span = read, single, size, places, span
        self.shape = (len(span), *single[1:])
        self.nbytes = size * prod(self.shape)
        self._last: tuple[int, NDArray[Any]] | None = None

    def __len__(self) -> int:
        return len(self._span)

    def part(self, first: int, stop: int) -> "TurnedRows":
        """Rows first <= r < stop."""
        return TurnedRows(self._read, self._each, self._size, self._places, self._span[first:stop])

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        """The values of these rows. Raises BadInputError where the file has shrunk since it was opened."""
        span, single = self._span[rows], self._each[0]
        if not span:
            return self._expert(0)[0:0]
        parts = [
            self._expert(number)[max(0, span.start - number * single) : min(single, span.stop - number * single)]
            for number in range(span.start // single, -(-span.stop // single))
        ]
        return np.concatenate(parts)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype)

    def _expert(self, number: int) -> NDArray[Any]:
        if self._last is None or self._last[0] != number:
            rows = self._read(number)
            chosen = rows[self._places.start : self._places.stop : self._places.step]
            self._last = number, np.ascontiguousarray(chosen)
        return self._last[1]


def turned_rows(stored: StoredTensor, tensor: Tensor, rows: StoredRows) -> TurnedRows | None:
    """Return the rows of `tensor` in those of a file's tensor; None where they do not lie as columns or by turns."""
    places = _places(stored, tensor)
    if places is None:
        return None
    transposed = stored.form == "transposed" and len(tensor.shape) > 2

    def read(number: int) -> NDArray[Any]:
        matrix: NDArray[Any] = rows[number : number + 1][0]
        return matrix.T if transposed else matrix

    size = rows.nbytes // prod(rows.shape)
    return TurnedRows(read, tensor.shape[1:], size, places, range(tensor.shape[0] * tensor.shape[1]))


def micro_rows(stored: StoredTensor, tensor: Tensor, blocks: StoredRows, scales: StoredRows) -> TurnedRows:
    """Return the rows of `tensor`, uint8 (rows, bytes per row) in GGUF's blocks of MXFP4, from blocks (experts, rows,
    columns / 32, 16) and scales (experts, rows, columns / 32)."""
    places = _places(stored, tensor) or range(tensor.shape[1])
    row = tensor.shape[2] // BLOCK * (BLOCK // 2 + 1)

    def read(number: int) -> NDArray[Any]:
        return file_blocks(blocks[number : number + 1][0], scales[number : number + 1][0])

    return TurnedRows(read, (tensor.shape[1], row), 1, places, range(tensor.shape[0] * tensor.shape[1]))


def micro_shapes(stored: StoredTensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of the blocks and of the scales that stand for a file's tensor of experts."""
    experts, columns, rows = stored.shape if stored.form == "transposed" else _turned(stored.shape)
    groups = columns // BLOCK
    return (experts, rows, groups, BLOCK // 2), (experts, rows, groups)


def file_blocks(blocks: NDArray[np.uint8], scales: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return GGUF's blocks of MXFP4, uint8 (rows, columns / 32 * 17): scale, then bytes of columns i (low) and i + 16,
    where `blocks` (rows, columns / 32, 16) have 2 i (low) and 2 i + 1."""
    codes = np.stack((blocks & 15, blocks >> 4), -1).reshape(*blocks.shape[:2], BLOCK)
    halves = codes[..., : BLOCK // 2] | codes[..., BLOCK // 2 :] << 4
    return np.concatenate((scales[..., None], halves), -1).reshape(len(blocks), -1)


def _places(stored: StoredTensor, tensor: Tensor) -> range | None:
    """Return which rows of single expert are the tensor's; None where they follow single other as ours do."""
    turns = stored.layout == "turns"
    if not tensor.stacked or not (turns or stored.form == "transposed") or (len(stored.parts) > 1 and not turns):
        return None
    step = len(stored.parts)
    return range(stored.parts.index(tensor), step * tensor.shape[1], step)


def _turned(shape: tuple[int, ...]) -> tuple[int, int, int]:
    experts, rows, columns = shape
    return experts, columns, rows
