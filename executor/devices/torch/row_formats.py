"""How a cache keeps the row of a token: values that are computed with, 8-bit codes or 4-bit groups."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from helmsman.executor.devices.torch.buffers import DTYPES
from helmsman.executor.devices.torch.codes import pack_codes, unpack_codes
from helmsman.executor.devices.torch.groups import pack_groups, unpack_groups
from helmsman.schemas.formats import StoredFormat, is_plain, rows_size

Pack = Callable[[torch.Tensor], torch.Tensor]
Unpack = Callable[[torch.Tensor, int], torch.Tensor]

_PACKED: dict[StoredFormat, tuple[Pack, Unpack]] = {
    "q8_0": (pack_codes, unpack_codes),
    "q4": (pack_groups, unpack_groups),
}


@dataclass(frozen=True)
class RowFormat:
    """Rows of `width` values in `fmt`; as tensors, values of its type or bytes."""

    fmt: StoredFormat
    width: int

    @property
    def plain(self) -> bool:
        """Whether rows are values."""
        return is_plain(self.fmt)

    @property
    def dtype(self) -> torch.dtype:
        """Of what is kept."""
        return DTYPES[self.fmt] if self.plain else torch.uint8

    @property
    def length(self) -> int:
        """Elements of a row as it is kept."""
        return self.width if self.plain else rows_size(1, self.width, self.fmt)

    def keep(self, rows: torch.Tensor) -> torch.Tensor:
        """(.., length) of f32 rows (.., width)."""
        return rows.to(self.dtype) if self.plain else _PACKED[self.fmt][0](rows)

    def values(self, kept: torch.Tensor) -> torch.Tensor:
        """(.., width) to compute with, f32 of what is packed."""
        return kept if self.plain else _PACKED[self.fmt][1](kept, self.width)
