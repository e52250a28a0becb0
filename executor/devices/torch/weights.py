"""A stage's weights as tensors: row after row, in the panels in which they come over a link, or quantised."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from helmsman.executor._kernels import packed_size
from helmsman.executor.devices.parts import of_kind
from helmsman.executor.devices.tensors import Linear, NormVectors
from helmsman.executor.devices.torch.buffers import TorchBuffer, dtype_of
from helmsman.executor.devices.torch.quantised import expand_panels, expand_rows
from helmsman.lowering.buffers import expanded_values
from helmsman.lowering.operation import PANEL
from helmsman.schemas.formats import StoredFormat, is_plain

Lookup = Callable[[torch.Tensor], torch.Tensor]
"""f32 (n, columns): the rows of a table for the ids (n,) of tokens."""


class Weight(Protocol):
    """A matrix as it is kept."""

    @property
    def factor(self) -> torch.dtype:
        """The type in which products read what they multiply the matrix with."""

    def multiply(self, x: torch.Tensor, target: torch.Tensor, add: bool = False) -> None:
        """Write the product with x (n, columns), f32 or already `factor`, to f32 `target` (n, rows), or add it."""

    def rows_of(self, ids: torch.Tensor) -> torch.Tensor:
        """f32 (n, columns) of rows."""


@dataclass(frozen=True)
class PlainWeight:
    """`matrix` (rows, columns), or panels (ceil(rows / 16), columns, 16), which products read as they are: a batch of
    narrow column-major matrices."""

    matrix: torch.Tensor
    rows: int

    @property
    def factor(self) -> torch.dtype:
        """The matrix's own."""
        return self.matrix.dtype

    def multiply(self, x: torch.Tensor, target: torch.Tensor, add: bool = False) -> None:
        """Read the matrix as it is."""
        x = x.to(self.factor)
        if self.matrix.dim() == 2:
            _multiply(x, self.matrix.t(), target, add)
            return
        panels = torch.matmul(x, self.matrix).transpose(0, 1).reshape(x.shape[0], -1)[:, : self.rows]
        _keep(panels, target, add)

    def rows_of(self, ids: torch.Tensor) -> torch.Tensor:
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

    @property
    def factor(self) -> torch.dtype:
        """Values are expanded to f32."""
        return torch.float32

    def multiply(self, x: torch.Tensor, target: torch.Tensor, add: bool = False) -> None:
        """Expand and multiply one part of the rows after the other."""
        first = 0
        for part in torch.split(self.packed, self._panels):
            values = self._expanded(part).flatten(0, 1)[: self.rows - first]
            _multiply(x, values.t(), target[:, first : first + len(values)], add)
            first += len(values)

    def rows_of(self, ids: torch.Tensor) -> torch.Tensor:
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

    def multiply(self, x: torch.Tensor, target: torch.Tensor, add: bool = False) -> None:
        """Write the layer's output for x (n, columns) to f32 `target` (n, rows), or add it."""
        self.weight.multiply(x, target, add)
        if self.bias is not None:
            target.add_(self.bias)


@dataclass(frozen=True)
class TorchNorm:
    """Scale and, for layer norms, shift in f32."""

    weight: torch.Tensor
    bias: torch.Tensor | None

    def of(self, x: torch.Tensor, kind: str, eps: float) -> torch.Tensor:
        """The norm of the last dimension of f32 `x`."""
        if kind == "layer":
            return torch.nn.functional.layer_norm(x, x.shape[-1:], self.weight, self.bias, eps)
        scaled = torch.nn.functional.rms_norm(x, x.shape[-1:], self.weight, eps)
        return scaled if self.bias is None else scaled + self.bias


def _multiply(x: torch.Tensor, matrix: torch.Tensor, target: torch.Tensor, add: bool) -> None:
    """x (n, columns) times `matrix` (columns, rows), both of one type, to or onto f32 `target` (n, rows).

    CUDA's products of 16-bit factors give their f32 sums as they are; elsewhere these are rounded to 16 bits first."""
    if x.dtype == torch.float32:
        torch.addmm(target, x, matrix, out=target) if add else torch.mm(x, matrix, out=target)
    elif not x.is_cuda:
        _keep(torch.mm(x, matrix), target, add)
    elif add:
        torch.addmm(target, x, matrix, out_dtype=torch.float32, out=target)
    else:
        torch.mm(x, matrix, out_dtype=torch.float32, out=target)


def _keep(product: torch.Tensor, target: torch.Tensor, add: bool) -> None:
    if add:
        target.add_(product)
    else:
        target.copy_(product)


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


def linear_of(spec: Linear | None, space: torch.Tensor) -> TorchLinear | None:
    """A matrix of a stage."""
    if spec is None:
        return None
    rows = spec["rows"]
    held, panels = of_kind(spec["weight"], TorchBuffer), spec.get("panels", False)
    weight = weight_of(held, spec["format"], rows, spec["columns"], space, panels)
    return TorchLinear(weight, rows, spec.get("first", 0), _bias(spec, rows))


def lookup_of(spec: Linear, space: torch.Tensor, looked_up: bool) -> Lookup:
    """The token table of a stage, or the rows of it that have been `looked_up` for the tokens of a pass, whose ids are
    then the numbers of these rows."""
    held, fmt, rows, columns = of_kind(spec["weight"], TorchBuffer), spec["format"], spec["rows"], spec["columns"]
    if not looked_up:
        return weight_of(held, fmt, rows, columns, space).rows_of
    if is_plain(fmt):
        matrix = held.view(dtype_of(fmt), rows, columns)
        return lambda ids: matrix[ids].float()
    stored = held.bytes[: rows * packed_size(fmt, PANEL, columns) // PANEL].view(rows, -1)

    def expanded(ids: torch.Tensor) -> torch.Tensor:
        values = torch.empty((len(ids), columns), device=ids.device)
        expand_rows(stored[ids], fmt, values)
        return values

    return expanded


def norm_of(spec: NormVectors | None, width: int) -> TorchNorm | None:
    """A norm over `width` values."""
    if spec is None:
        return None
    bias = spec["bias"]
    shift = None if bias is None else of_kind(bias, TorchBuffer).view(torch.float32, width)
    return TorchNorm(of_kind(spec["weight"], TorchBuffer).view(torch.float32, width), shift)


def _bias(spec: Linear, rows: int) -> torch.Tensor | None:
    return None if spec["bias"] is None else of_kind(spec["bias"], TorchBuffer).view(torch.float32, rows)
