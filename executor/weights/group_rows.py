"""Rows of one of several tensors of ours that a file keeps as one, group after group: of heads, or of experts."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helmsman.executor.weights.stored_rows import StoredRows
from helmsman.lowering.tensor import Tensor


class GroupRows:
    """Rows of every group's part of a file's (groups * rows of a group, columns), read as `StoredRows` are.

    A group has the `own` rows of its part. `turned`: rows are the columns of that, so that a group has as many rows as
    the file has columns, each of as many values as there are own rows."""

    def __init__(
        self, rows: StoredRows, groups: int, own: range, turned: bool = False, span: range | None = None
    ) -> None:
        self._rows, self._groups, self._own, self._turned = rows, groups, own, turned
        columns = rows.shape[1]
        self._per_group, width = (columns, len(own)) if turned else (len(own), columns)
        self._span = range(groups * self._per_group) if span is None else span
        self.shape = (len(self._span), width)
        self.nbytes = rows.nbytes // len(rows) // columns * len(self._span) * width

    def __len__(self) -> int:
        return len(self._span)

    def part(self, first: int, stop: int) -> "GroupRows":
        """Rows first <= r < stop."""
        return GroupRows(self._rows, self._groups, self._own, self._turned, self._span[first:stop])

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        """The values of these rows. Raises BadInputError where the file has shrunk since it was opened."""
        span = self._span[rows]
        if span.step != 1:
            raise ValueError(f"rows that follow each other can be read, not every {span.step}th")
        groups = range(span.start // self._per_group, -(-span.stop // self._per_group)) if len(span) else range(0)
        read = [self._of_group(group, span) for group in groups]
        return np.concatenate(read) if read else np.empty((0, self.shape[1]), self._rows[0:0].dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype)

    def _of_group(self, group: int, span: range) -> NDArray[Any]:
        """Return the rows of a group that are among those of a span."""
        before = group * self._per_group
        first, stop = max(0, span.start - before), min(self._per_group, span.stop - before)
        begin = group * (len(self._rows) // self._groups) + self._own.start
        if self._turned:
            return self._rows[begin : begin + len(self._own)].T[first:stop]
        return self._rows[begin + first : begin + stop]


def latent_rows(parts: Sequence[Tensor], tensor: Tensor, rows: StoredRows) -> GroupRows:
    """Return the rows of one of two tensors of latent attention, whose heads take turns in `rows`: what keys are
    expanded with, transposed, and what values are."""
    keys, values = parts
    nope, latent = keys.shape[1], values.shape[1]
    heads = keys.shape[0] // latent
    if tensor.name == keys.name:
        return GroupRows(rows, heads, range(nope), turned=True)
    return GroupRows(rows, heads, range(nope, nope + values.shape[0] // heads))


def expert_rows(parts: Sequence[Tensor], tensor: Tensor, rows: StoredRows) -> GroupRows:
    """Return the rows of one of several tensors, of which every expert has its own one after the other in `rows`."""
    begin = sum(part.shape[1] for part in parts[: parts.index(tensor)])
    return GroupRows(rows, tensor.shape[0], range(begin, begin + tensor.shape[1]))
