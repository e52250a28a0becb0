"""Rows of a tensor in a file, read when they are needed: no more of a model is in memory twice than a few of them."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from helmsman.hwdb.file_bytes import FileBytes


class RowReader(Protocol):
    """Rows that are read by slices, each a new array."""

    shape: tuple[int, ...]
    nbytes: int

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice) -> NDArray[Any]: ...


class StoredRows:
    """Rows of the tensor `name` that begin at byte `start` of `file`: values of `dtype` in `shape`, rows first.

    Like an array, it has a length and is read by slices of its rows, each a new array. `head_dim`: of files that keep
    the two halves of every head's rows in turns (`halves`)."""

    def __init__(
        self, file: FileBytes, name: str, start: int, dtype: str, shape: tuple[int, ...], head_dim: int = 0
    ) -> None:
        self.shape, self.nbytes = shape, prod(shape) * np.dtype(dtype).itemsize
        self._file, self._name, self._start, self._dtype = file, name, start, np.dtype(dtype)
        self._row, self._head_dim = self.nbytes // shape[0] if shape[0] else 0, head_dim
        self._first = 0

    def __len__(self) -> int:
        return self.shape[0]

    def part(self, first: int, stop: int) -> "StoredRows":
        """Rows first <= r < stop, read as all of them are."""
        rows = StoredRows(self._file, self._name, self._start, self._dtype.str, (stop - first, *self.shape[1:]))
        rows._head_dim, rows._first = self._head_dim, self._first + first
        return rows

    def flat(self) -> "StoredRows":
        """Rows of matrices that are stacked, those of one after those of another."""
        stacked, rows, *columns = self.shape
        shape = stacked * rows, *columns
        return StoredRows(self._file, self._name, self._start, self._dtype.str, shape)

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        """The values of these rows. Raises BadInputError where the file has shrunk since it was opened."""
        first, stop, step = rows.indices(len(self))
        if step != 1:
            raise ValueError(f"rows that follow each other can be read, not every {step}th")
        first, stop = self._first + first, self._first + max(first, stop)
        if not self._head_dim:
            return self._read(first, stop)
        begin, end = first - first % self._head_dim, stop + -stop % self._head_dim
        return self._read(begin, end)[halves(end - begin, self._head_dim)[first - begin : stop - begin]]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype)

    def _read(self, first: int, stop: int) -> NDArray[Any]:
        values = np.empty((stop - first, *self.shape[1:]), self._dtype)
        self._file.read_into(values.reshape(-1).view(np.uint8).data, self._start + first * self._row, self._name)
        return values


class JoinedRows:
    """The rows of several parts, one after the other: those of all experts, of several tensors, or runs of a tensor in
    another order.

    It is read as `StoredRows` are."""

    def __init__(self, parts: Sequence[RowReader], first: int = 0, stop: int | None = None) -> None:
        self._parts, self._starts = parts, [0, *accumulate(map(len, parts))]
        self._first, self._stop = first, self._starts[-1] if stop is None else stop
        self.shape = (self._stop - self._first, *parts[0].shape[1:])
        self.nbytes = parts[0].nbytes // len(parts[0]) * len(self)

    def __len__(self) -> int:
        return self._stop - self._first

    def part(self, first: int, stop: int) -> "JoinedRows":
        """Rows first <= r < stop."""
        return JoinedRows(self._parts, self._first + first, self._first + stop)

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        """The values of these rows. Raises BadInputError where a file has shrunk since it was opened."""
        first, stop, step = rows.indices(len(self))
        if step != 1:
            raise ValueError(f"rows that follow each other can be read, not every {step}th")
        read = list(self._pieces(self._first + first, self._first + stop))
        return np.concatenate(read) if read else self._parts[0][0:0]

    def _pieces(self, first: int, stop: int) -> Iterator[NDArray[Any]]:
        number = bisect_right(self._starts, first) - 1
        while number < len(self._parts) and self._starts[number] < stop:
            start = self._starts[number]
            yield self._parts[number][max(0, first - start) : min(len(self._parts[number]), stop - start)]
            number += 1

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype)


def halves(rows: int, head_dim: int) -> NDArray[np.intp]:
    """Of every row of Q or K its place in a GGUF file with interleaved rows: there rows i and i + head_dim / 2 of a
    head are neighbours, here its first half precedes the second. Rows move whole, so blocks do."""
    return np.arange(rows).reshape(-1, head_dim // 2, 2).swapaxes(1, 2).ravel()
