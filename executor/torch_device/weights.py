"""A stage's weights as tensors: row after row, in the panels in which they come over a link, or quantised."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch

from helmsman.executor._kernels import packed_size
from helmsman.executor.torch_device.buffers import TorchBuffer, dtype_of, held_in
from helmsman.executor.torch_device.quantised import expand_panels, expand_rows
from helmsman.lowering.buffers import expanded_values
from helmsman.lowering.ops import PANEL
from helmsman.schemas.formats import StoredFormat, is_plain

if TYPE_CHECKING:
    from helmsman.executor._kernels import Linear, Norm

Lookup = Callable[[torch.Tensor], torch.Tensor]
"""f32 (n, columns): the rows of a table for the ids (n,) of tokens."""


class Weight(Protocol):
    """A matrix as it is kept."""

    def times(self, x: torch.Tensor) -> torch.Tensor:
        """f32 (n, rows) of x (n, columns)."""

    def found(self, ids: torch.Tensor) -> torch.Tensor:
        """f32 (n, columns) of rows."""


@dataclass(frozen=True)
class PlainWeight:
    """`matrix` (rows, columns), or panels (ceil(rows / 16), columns, 16), which products read as they are: a batch of
    narrow column-major matrices."""

    matrix: torch.Tensor
    rows: int

    def times(self, x: torch.Tensor) -> torch.Tensor:
        """In the matrix's format."""
        x = x.to(self.matrix.dtype)
        if self.matrix.dim() == 2:
            return torch.matmul(x, self.matrix.t()).float()
        return torch.matmul(x, self.matrix).transpose(0, 1).reshape(x.shape[0], -1)[:, : self.rows].float()

    def found(self, ids: torch.Tensor) -> torch.Tensor:
        """Of a matrix that lives here."""
        return self.matrix[ids].float()


@dataclass(frozen=True)
class QuantisedWeight:
    """Panels as the host packs them, uint8 (ceil(rows / 16), bytes): expanded to f32 in `space`, as many as there is
    room for, wherever they are read."""

    packed: torch.Tensor
    format: StoredFormat
    rows: int
    columns: int
    space: torch.Tensor

    def times(self, x: torch.Tensor) -> torch.Tensor:
        """Of values in f32, one part of the rows after the other."""
        parts = torch.split(self.packed, self._panels)
        made = [torch.matmul(x, self._expanded(part).flatten(0, 1).t()) for part in parts]
        return (made[0] if len(made) == 1 else torch.cat(made, -1))[:, : self.rows]

    def found(self, ids: torch.Tensor) -> torch.Tensor:
        """Each with the panel that it is in."""
        parts = [
            self._expanded(self.packed[part // PANEL])[torch.arange(len(part), device=part.device), part % PANEL]
            for part in torch.split(ids, self._panels)
        ]
        return torch.cat(parts)

    def _expanded(self, packed: torch.Tensor) -> torch.Tensor:
        values = self.space[: len(packed) * PANEL * self.columns].view(len(packed), PANEL, self.columns)
        expand_panels(packed, self.format, values)
        return values

    @property
    def _panels(self) -> int:
        return expanded_values(self.rows, self.columns) // (PANEL * self.columns)


@dataclass(frozen=True)
class TorchLinear:
    """Rows [first, first + rows) of a layer."""

    weight: Weight
    rows: int
    first: int
    bias: torch.Tensor | None

    def times(self, x: torch.Tensor) -> torch.Tensor:
        """f32 (n, rows) of x (n, columns)."""
        found = self.weight.times(x)
        return found if self.bias is None else found + self.bias


@dataclass(frozen=True)
class TorchNorm:
    """Scale and, for layer norms, shift in f32."""

    weight: torch.Tensor
    bias: torch.Tensor | None

    def of(self, x: torch.Tensor, kind: str, eps: float) -> torch.Tensor:
        """The norm of the last dimension of f32 `x`."""
        if kind == "layer":
            return torch.nn.functional.layer_norm(x, x.shape[-1:], self.weight, self.bias, eps)
        scaled = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * self.weight
        return scaled if self.bias is None else scaled + self.bias


def weight_of(
    held: TorchBuffer, fmt: StoredFormat, rows: int, columns: int, space: torch.Tensor, panels: bool = False
) -> Weight:
    """A matrix in `held`; `space`: f32 (`expanded_values`,) where it is quantised; `panels`: whether the host packed
    it, as it packs all that are quantised."""
    whole = -(-rows // PANEL)
    if not is_plain(fmt):
        return QuantisedWeight(held.bytes.view(whole, -1), fmt, rows, columns, space)
    shape = (whole, columns, PANEL) if panels else (rows, columns)
    return PlainWeight(held.view(dtype_of(fmt), *shape), rows)


def linear_of(spec: "Linear | None", space: torch.Tensor) -> TorchLinear | None:
    """A matrix of a stage."""
    if spec is None:
        return None
    rows = spec["rows"]
    held, panels = held_in(spec["weight"]), spec.get("panels", False)
    weight = weight_of(held, spec["format"], rows, spec["columns"], space, panels)
    return TorchLinear(weight, rows, spec.get("first", 0), _bias(spec, rows))


def lookup_of(spec: "Linear | None", space: torch.Tensor, looked_up: bool) -> Lookup | None:
    """The token table of a stage, or the rows of it that have been `looked_up` for the tokens of a pass, whose ids are
    then the numbers of these rows."""
    if spec is None:
        return None
    held, fmt, rows, columns = held_in(spec["weight"]), spec["format"], spec["rows"], spec["columns"]
    if not looked_up:
        return weight_of(held, fmt, rows, columns, space).found
    if is_plain(fmt):
        matrix = held.view(dtype_of(fmt), rows, columns)
        return lambda ids: matrix[ids].float()
    stored = held.bytes[: rows * packed_size(fmt, PANEL, columns) // PANEL].view(rows, -1)

    def expanded(ids: torch.Tensor) -> torch.Tensor:
        values = torch.empty((len(ids), columns), device=ids.device)
        expand_rows(stored[ids], fmt, values)
        return values

    return expanded


def norm_of(spec: "Norm | None", width: int) -> TorchNorm | None:
    """A norm over `width` values."""
    if spec is None:
        return None
    bias = spec["bias"]
    shift = None if bias is None else held_in(bias).view(torch.float32, width)
    return TorchNorm(held_in(spec["weight"]).view(torch.float32, width), shift)


def _bias(spec: "Linear", rows: int) -> torch.Tensor | None:
    return None if spec["bias"] is None else held_in(spec["bias"]).view(torch.float32, rows)
