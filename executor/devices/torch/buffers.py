"""A device's bounded memory as PyTorch holds it: bytes, seen as tensors where they are computed with."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from helmsman.executor._kernels import Arena, packed_size
from helmsman.executor._kernels import Buffer as HostBuffer
from helmsman.executor.devices.parts import Buffer, of_kind
from helmsman.executor.weights.conversion import Rows, in_steps, pack_rows, rows_as_f32
from helmsman.schemas.errors import InfeasibleError, UsageError
from helmsman.schemas.formats import StoredFormat, is_plain
from helmsman.schemas.units import format_bytes

ALIGNMENT = 256
"""Bytes at whose multiples buffers begin: what matrix products of CUDA are fastest from."""

DTYPES: dict[str, torch.dtype] = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def dtype_of(fmt: StoredFormat) -> torch.dtype:
    """Return PyTorch's type of a format. Raises UsageError for those that it does not multiply."""
    if fmt not in DTYPES:
        raise UsageError(
            f"a PyTorch device reads {', '.join(DTYPES)}",
            field="format",
            value=fmt,
            remedy="keep what it reads in one of them, or compute with it on the host",
        )
    return DTYPES[fmt]


class TorchBuffer:
    """Bytes of a device: `bytes` is uint8 (size,)."""

    def __init__(self, held: torch.Tensor) -> None:
        self.bytes = held

    @property
    def size(self) -> int:
        """Bytes."""
        return self.bytes.numel()

    def part(self, offset: int, size: int) -> "TorchBuffer":
        """Bytes of it as a buffer of their own."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise ValueError(f"bytes {offset} to {offset + size} of {self.size}")
        return TorchBuffer(self.bytes[offset : offset + size])

    def strided(self, dtype: torch.dtype, shape: Sequence[int], strides: Sequence[int], offset: int) -> torch.Tensor:
        """Values of `dtype` from `offset` on, `strides` apart, both in bytes."""
        values = self.bytes[offset:].view(dtype)
        return values.as_strided(shape, [stride // dtype.itemsize for stride in strides])

    def view(self, dtype: torch.dtype, *shape: int) -> torch.Tensor:
        """Its first values of `dtype`, in `shape`; what is written there is written here."""
        count = int(np.prod(shape))
        return self.bytes[: count * dtype.itemsize].view(dtype).view(shape)


def bytes_of(buffer: Buffer) -> torch.Tensor:
    """uint8 (size,): a buffer of a PyTorch device or of the host, where it is."""
    if isinstance(buffer, TorchBuffer):
        return buffer.bytes
    return torch.frombuffer(memoryview(of_kind(buffer, HostBuffer)), dtype=torch.uint8)


class TorchMemory:
    """Allocates on `device`; what goes beyond `capacity` bytes fails before the device is asked."""

    def __init__(self, name: str, capacity: int, device: torch.device) -> None:
        self.name = name
        self.capacity = capacity
        self.device = device
        self.used = 0

    def alloc(self, size: int, what: str) -> TorchBuffer:
        """A zeroed buffer of `size` bytes. Raises InfeasibleError when it does not fit."""
        needed = -(-size // ALIGNMENT) * ALIGNMENT
        if needed > self.capacity - self.used:
            raise self._full(size, what)
        try:
            held = torch.zeros(needed, dtype=torch.uint8, device=self.device)
        except torch.OutOfMemoryError:
            raise self._full(size, what) from None
        self.used += needed
        return TorchBuffer(held[:size])

    def share(self, size: int, what: str) -> HostBuffer:
        """A buffer of the host: what it reads and writes beside is small, and copied where it is used."""
        return Arena(max(size, 1)).alloc(size, what)

    def place(self, values: NDArray[Any], what: str) -> TorchBuffer:
        """A buffer that holds a copy of `values`."""
        buffer = self.alloc(values.nbytes, what)
        flat = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        buffer.bytes.copy_(torch.from_numpy(flat.copy()))
        return buffer

    def keep(self, source: Rows, source_format: str, fmt: StoredFormat, columns: int, what: str) -> TorchBuffer:
        """A matrix in `fmt`: row after row, as products read it, or quantised as the host packs it; bf16 comes as
        uint16. It takes as much as its rows in whole panels of 16, which is what plans count.

        Raises FloatingPointError where a value is not finite."""
        if not is_plain(fmt):
            return self._packed(source, source_format, fmt, columns, what)
        rows, dtype = len(source), dtype_of(fmt)
        buffer = self.alloc(-(-rows // 16) * 16 * columns * dtype.itemsize, what)
        held = buffer.view(dtype, rows, columns)
        for first, read in in_steps(source, columns):
            values = _values(read, source_format, columns).to(dtype)
            if not torch.isfinite(values).all():
                raise FloatingPointError(f"values that are not finite in {fmt}")
            held[first : first + len(values)].copy_(values)
        return buffer

    def _packed(self, source: Rows, source_format: str, fmt: StoredFormat, columns: int, what: str) -> TorchBuffer:
        size = packed_size(fmt, len(source), columns)
        buffer, packed = self.alloc(size, what), Arena(size).alloc(size, what)
        pack_rows(source, source_format, packed, fmt, columns)
        buffer.bytes.copy_(bytes_of(packed))
        return buffer

    def _full(self, size: int, what: str) -> InfeasibleError:
        return InfeasibleError(
            f"out of memory: {what} needs {format_bytes(size)}, "
            f"{format_bytes(self.used)} of {format_bytes(self.capacity)} are in use",
            field=f"memory {self.name}",
            remedy="plan again with fewer units, a shorter context or a smaller batch in this memory",
        )


def _values(read: NDArray[Any], source_format: str, columns: int) -> torch.Tensor:
    """Rows as a tensor (rows, columns): of block formats f32, of others as they are."""
    if source_format not in DTYPES:
        return torch.from_numpy(rows_as_f32(read, source_format, columns))
    flat = torch.from_numpy(read.reshape(-1).view(np.uint8))
    return flat.view(DTYPES[source_format]).view(len(read), columns)
