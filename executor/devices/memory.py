"""A memory of a plan as it is used: an arena that ends where the record says."""

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from helmsman.executor._kernels import Arena, Buffer, packed_size
from helmsman.executor.weights.conversion import Rows, pack_rows
from helmsman.schemas.errors import InfeasibleError
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.hardware import Memory
from helmsman.schemas.units import format_bytes

ScalarT = TypeVar("ScalarT", bound=np.generic)


def view(buffer: Buffer, dtype: type[ScalarT] | np.dtype[ScalarT]) -> NDArray[ScalarT]:
    """The buffer as a writable vector of `dtype`."""
    return np.frombuffer(memoryview(buffer), dtype)


class BoundedMemory:
    """Allocates from one arena; what goes beyond `capacity` bytes fails, as on a GPU that is full.

    `matrices`: the buffers of those that are kept here, in the order in which they came."""

    def __init__(self, record: Memory, capacity: int) -> None:
        self.name = record.name
        self.arena = Arena(capacity)
        self.matrices: list[Buffer] = []

    @property
    def capacity(self) -> int:
        """Bytes that may be allocated."""
        return self.arena.capacity

    @property
    def used(self) -> int:
        """Bytes that are."""
        return self.arena.used

    def alloc(self, size: int, what: str) -> Buffer:
        """A zeroed buffer of `size` bytes. Raises InfeasibleError when it does not fit."""
        try:
            return self.arena.alloc(size, what)
        except MemoryError:
            raise InfeasibleError(
                f"out of memory: {what} needs {format_bytes(size)}, "
                f"{format_bytes(self.arena.used)} of {format_bytes(self.arena.capacity)} are in use",
                field=f"memory {self.name}",
                remedy="plan again with fewer units, a shorter context or a smaller batch in this memory",
            ) from None

    def share(self, size: int, what: str) -> Buffer:
        """A buffer that the host reads and writes too: all of them are."""
        return self.alloc(size, what)

    def keep(self, source: Rows, source_format: str, fmt: StoredFormat, columns: int, what: str) -> Buffer:
        """A matrix, its rows in `source`, packed as kernels read it in `fmt`.

        Raises FloatingPointError where a value is not finite."""
        buffer = self.alloc(packed_size(fmt, len(source), columns), what)
        pack_rows(source, source_format, buffer, fmt, columns)
        self.matrices.append(buffer)
        return buffer

    def place(self, values: NDArray[Any], what: str) -> Buffer:
        """A buffer that holds a copy of `values`."""
        buffer = self.alloc(values.nbytes, what)
        view(buffer, values.dtype)[:] = values.ravel()
        return buffer
