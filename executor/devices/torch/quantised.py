"""Quantised weights as f32 values, by PyTorch's own operations: what csrc/formats/blocks.h says that bytes stand for.

Matrices are in csrc/formats/panels.h's panels, rows that were looked up in a table row-major. Products of a scale and a
code are exact in f32, so that values are rounded once and are the host's own."""

from collections.abc import Iterator

import torch

from helmsman.executor._kernels import packed_size
from helmsman.lowering.operation import PANEL
from helmsman.schemas.formats import FORMAT_FACTS, StoredFormat

RUN = 32
"""Columns in whose multiples blocks end; the last one of q8 and q4 may be shorter than others."""

_CODES_AT: dict[StoredFormat, int] = {
    "q8_0": 32,
    "q4_0": 32,
    "q4_k": 256,
    "q6_k": 288,
    "q8": 64,
    "q4": 64,
    "mxfp4": 16,
}
"""Bytes of scales before the codes of a panel's block."""
_LEVELS = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
"""The values of the 16 codes of MXFP4, doubled so that they are whole."""
_LEAST_SCALE = 2
"""The smallest scale byte whose half is a normal number: smaller ones count as zero."""
_BYTES = ("q8_0", "q8")
"""Formats with a byte for every code."""

Scales = tuple[torch.Tensor, torch.Tensor | None]
"""The factors of codes and the offsets added then; the last dimension has the runs of a block, alike or not."""


def expand_panels(packed: torch.Tensor, fmt: StoredFormat, values: torch.Tensor) -> None:
    """uint8 (panels, bytes) of packed rows to `values` (panels, 16, columns)."""
    for blocks, target in _pieces(packed, fmt, values, PANEL):
        factor, shift = _panel_scales(blocks, fmt)
        runs = factor.shape[-1]
        by_run = torch.unflatten(target, 3, (runs, -1))
        for part, codes in _panel_codes(blocks[..., _CODES_AT[fmt] :], fmt, by_run):
            shape = (*factor.shape, *[1] * (part.dim() - factor.dim()))
            _scale(codes, factor.view(shape), None if shift is None else shift.view(shape), part)


def expand_rows(stored: torch.Tensor, fmt: StoredFormat, values: torch.Tensor) -> None:
    """uint8 (rows, bytes) of rows as GGUF files have them to `values` (rows, columns)."""
    for blocks, target in _pieces(stored, fmt, values, 1):
        factor, shift = _row_scales(blocks, fmt)
        by_run = torch.unflatten(target, 2, (factor.shape[-1], -1))
        codes = _row_codes(blocks, fmt).view(by_run.shape)
        _scale(codes, factor.unsqueeze(-1), None if shift is None else shift.unsqueeze(-1), by_run)


def _scale(codes: torch.Tensor, factor: torch.Tensor, shift: torch.Tensor | None, values: torch.Tensor) -> None:
    """In f32, rounded once to the type of `values`."""
    if shift is None:
        torch.mul(codes, factor, out=values)
    else:
        torch.addcmul(shift, codes, factor, out=values)


def _pieces(
    stored: torch.Tensor, fmt: StoredFormat, values: torch.Tensor, rows: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """(bytes, values) of whole blocks, then of a shorter one: uint8 (.., blocks, bytes), f32 (.., blocks, columns)."""
    columns, width = values.shape[-1], FORMAT_FACTS[fmt].values
    count, rest = divmod(columns, width)
    size = rows * packed_size(fmt, PANEL, width) // PANEL
    if count:
        yield (
            torch.unflatten(stored[:, : count * size], 1, (count, size)),
            torch.unflatten(values[..., : count * width], -1, (count, width)),
        )
    if rest:
        wide = values.new_empty((*values.shape[:-1], 1, -(-rest // RUN) * RUN))
        yield stored[:, count * size :].unsqueeze(1), wide
        values[..., count * width :].copy_(wide[..., 0, :rest])


def _panel_scales(blocks: torch.Tensor, fmt: StoredFormat) -> Scales:
    """(panels, 16, blocks, runs) of blocks (panels, blocks, bytes)."""
    if fmt == "mxfp4":
        return _powers(blocks[..., :PANEL]).transpose(1, 2).unsqueeze(-1), None
    factor, second = (_halves(blocks[..., at : at + 2 * PANEL]).transpose(1, 2).unsqueeze(-1) for at in (0, 2 * PANEL))
    if fmt in ("q8_0", "q4_0"):
        return factor, None
    if fmt in ("q8", "q4"):
        return factor, second
    if fmt == "q6_k":
        signed = torch.unflatten(blocks[..., 32:288].view(torch.int8), -1, (16, PANEL))
        return factor * signed.permute(0, 3, 1, 2), None
    six = torch.unflatten(blocks[..., 64:256], -1, (8, 24))
    own, shared = six[..., :PANEL], six[..., PANEL:]
    minima = own >> 6 | torch.cat((shared & 15, shared >> 4), -1) << 2
    return factor * (own & 63).permute(0, 3, 1, 2), -(second * minima.permute(0, 3, 1, 2))


def _panel_codes(
    lines: torch.Tensor, fmt: StoredFormat, by_run: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Parts of values (panels, 16, blocks, runs, columns) and their codes, of lines (panels, blocks, bytes)."""
    runs = by_run.shape[3]
    if fmt in _BYTES:
        codes = torch.unflatten(lines, -1, (runs, -1, PANEL, 2, 2)).permute(0, 4, 1, 2, 3, 6, 5)
        yield torch.unflatten(by_run, 4, (-1, 2, 2)), codes.view(torch.int8) if fmt == "q8_0" else codes
    elif fmt == "q6_k":
        low, high = _lines_of_six(lines)
        target = torch.unflatten(by_run, 4, (2, 4, 2))
        for pair in range(4):
            codes = _nibble(low[..., pair // 2], pair % 2) | (high >> 2 * pair & 3) << 4
            yield target[..., pair, :], codes.view(torch.int8) - 32
    else:
        words = torch.unflatten(lines, -1, (runs, -1, PANEL, 2, 2)).permute(0, 4, 1, 2, 3, 6, 5)
        target = torch.unflatten(by_run, 4, (-1, 2, 2, 2))
        for half in range(2):
            codes = _nibble(words, half)
            yield target[..., half, :], _signed(codes, fmt)


def _lines_of_six(lines: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Low bits (panels, 16, blocks, runs, half, column, word) and high bits (.., half, column) of 16 columns each."""
    groups = torch.unflatten(lines, -1, (16, 3, PANEL, 2, 2))
    return groups[:, :, :, :2].permute(0, 4, 1, 2, 3, 5, 6), groups[:, :, :, 2].permute(0, 3, 1, 2, 5, 4)


def _row_scales(blocks: torch.Tensor, fmt: StoredFormat) -> Scales:
    """(rows, blocks, runs) of blocks (rows, blocks, bytes)."""
    if fmt == "mxfp4":
        return _powers(blocks[..., :1]), None
    if fmt == "q6_k":
        return _halves(blocks[..., 208:210]) * blocks[..., 192:208].view(torch.int8), None
    factor, second = _halves(blocks[..., :2]), _halves(blocks[..., 2:4])
    if fmt in ("q8_0", "q4_0"):
        return factor, None
    if fmt in ("q8", "q4"):
        return factor, second
    first, low, high = (blocks[..., at : at + 4] for at in (4, 8, 12))
    scales = torch.cat((first & 63, high & 15 | first >> 6 << 4), -1)
    return factor * scales, -(second * torch.cat((low & 63, high >> 4 | low >> 6 << 4), -1))


def _row_codes(blocks: torch.Tensor, fmt: StoredFormat) -> torch.Tensor:
    """(rows, blocks, columns) of blocks (rows, blocks, bytes)."""
    if fmt == "q6_k":
        low = _nibbles(torch.unflatten(blocks[..., :128], -1, (2, 64)))
        high = torch.unflatten(blocks[..., 128:192], -1, (2, 32))
        codes = low | torch.cat([high >> 2 * index & 3 for index in range(4)], -1) << 4
        return codes.flatten(-2).view(torch.int8) - 32
    codes = blocks[..., {"q4_k": 16, "q8": 4, "q4": 4, "mxfp4": 1}.get(fmt, 2) :]
    if fmt in _BYTES:
        return codes.contiguous().view(torch.int8) if fmt == "q8_0" else codes.contiguous()
    nibbles = _nibbles(torch.unflatten(codes, -1, (-1, 32 if fmt == "q4_k" else 16))).flatten(-2)
    return _signed(nibbles, fmt)


def _signed(codes: torch.Tensor, fmt: StoredFormat) -> torch.Tensor:
    """Return what codes of four bits stand for."""
    if fmt == "mxfp4":
        return torch.tensor(_LEVELS, dtype=torch.int8, device=codes.device)[codes.long()]
    return codes.view(torch.int8) - 8 if fmt == "q4_0" else codes


def _powers(scales: torch.Tensor) -> torch.Tensor:
    """Return half the powers of two that MXFP4's scale bytes stand for."""
    halves = torch.ldexp(torch.ones(scales.shape, device=scales.device), scales.int() - 128)
    return halves.masked_fill(scales < _LEAST_SCALE, 0.0)


def _nibbles(codes: torch.Tensor) -> torch.Tensor:
    """The low four bits of all bytes of the last dimension, then the high ones."""
    return torch.cat((codes & 15, codes >> 4), -1)


def _nibble(codes: torch.Tensor, high: int) -> torch.Tensor:
    return codes >> 4 if high else codes & 15


def _halves(values: torch.Tensor) -> torch.Tensor:
    """Bytes of f16 numbers as f32."""
    return values.view(torch.float16).float()
