"""Holds what a weight tensor is: its name, shape, block and exact size."""

from math import prod
from typing import Literal, NamedTuple

from helmsman.schemas.formats import StoredFormat, is_plain, size_of

POSITIONS = "positions.weight"
"""The table that every token reads at its place, not at its id."""


CONVOLUTIONS = ("delta_conv", "scan_conv", "conv")
"""Operations whose weights are taps of every channel."""


class Tensor(NamedTuple):
    """A weight: `name` is `op.part` (`q.weight`), `layer` its block or None, `op` the operation that reads it.

    `tied_to` names the tensor whose bytes it shares when both live in one memory. `exact`: whether its values are never
    quantised, whatever its shape; `buffer`: whether it is no parameter; `stacked`: whether its first dimension
    counts experts."""

    name: str
    op: str
    layer: int | None
    shape: tuple[int, ...]
    tied_to: str | None = None
    exact: bool = False
    buffer: bool = False
    stacked: bool = False

    @property
    def elements(self) -> int:
        """Return the number of values."""
        return prod(self.shape)

    @property
    def quantised(self) -> bool:
        """Whether a quantised format is meant for it: for matrices and tables of tokens, not for positions."""
        return len(self.shape) > 1 and not self.exact and self.name != POSITIONS

    @property
    def packed(self) -> bool:
        """Whether it is a matrix or a table, kept in panels; vectors, also of every expert, and taps of convolutions
        are f32 where they are used."""
        return len(self.shape) > 1 + self.stacked and self.op not in CONVOLUTIONS

    @property
    def axis(self) -> Literal["rows", "experts"]:
        """Return what its first dimension counts."""
        return "experts" if self.stacked else "rows"

    def kept_in(self, fmt: StoredFormat) -> StoredFormat:
        """Return its format where weights are in `fmt`: what is never quantised is f32 where they are."""
        return fmt if self.quantised or is_plain(fmt) else "f32"

    def size(self, fmt: StoredFormat) -> int:
        """Return bytes where weights are in `fmt`."""
        return size_of(self.elements, self.kept_in(fmt))


def matrix(op: str, layer: int | None, rows: int, columns: int, bias: bool = False) -> tuple[Tensor, ...]:
    """Return the weight (rows out, columns in) of a linear operation, and its bias where it has one."""
    weight = Tensor(f"{op}.weight", op, layer, (rows, columns))
    return (weight, Tensor(f"{op}.bias", op, layer, (rows,))) if bias else (weight,)


def vector(op: str, layer: int | None, length: int, name: str | None = None) -> Tensor:
    """Return a vector that `op` reads, called `name` or as the operation."""
    return Tensor(f"{name or op}.weight", op, layer, (length,))
