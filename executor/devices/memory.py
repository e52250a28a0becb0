"""A memory of a plan as it is used: an arena that ends where the record says."""

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from helmsman.executor._kernels import Arena, Buffer, packed_size
from helmsman.executor.devices.parts import Buffer as AnyBuffer
from helmsman.executor.devices.parts import of_kind
from helmsman.executor.system.room import RESERVE, check_room
from helmsman.executor.weights.conversion import Rows, pack_rows
from helmsman.schemas.errors import InfeasibleError
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.hardware import Memory
from helmsman.schemas.units import format_bytes

ScalarT = TypeVar("ScalarT", bound=np.generic)


def view(buffer: AnyBuffer, dtype: type[ScalarT] | np.dtype[ScalarT]) -> NDArray[ScalarT]:
    """Return a buffer of the host as a writable vector of `dtype`. Raises TypeError for another device's."""
    return np.frombuffer(memoryview(of_kind(buffer, Buffer)), dtype)


def arena_beside(size: int, what: str = "buffers to measure with", reserve: int = RESERVE) -> Arena:
    """An arena of `size` bytes beside those of plans, and beside `reserve` bytes that stay free.

    Raises HardwareUnavailableError where memory has no room for `what`."""
    check_room(size, what, "free some memory, or allow this process more", reserve)
    return Arena(size)


_REGION = 64 << 20
"""Bytes of address space that are reserved at a time: all that a memory may hold, at once, would leave none for threads
where the address space is limited."""
_ALIGNMENT = 64
"""Buffers begin at a multiple of so many bytes."""


def _aligned(size: int) -> int:
    """`size` up to where the next buffer may begin."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT


class Ram:
    """RAM of this machine that memories share: one that a loopback accelerator calls its own is the host's too."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.used = 0

    @property
    def left(self) -> int:
        """Bytes that may still be allocated."""
        return self.capacity - self.used


class BoundedMemory:
    """Allocates from arenas; what goes beyond `capacity` bytes, or beyond the `ram` that it is part of, fails, as on a
    GPU that is full.

    `matrices`: the buffers of those that are kept here, in the order in which they came."""

    def __init__(self, record: Memory, capacity: int, ram: Ram | None = None) -> None:
        self.name, self.capacity, self.used = record.name, capacity, 0
        self.matrices: list[Buffer] = []
        self._ram = ram or Ram(capacity)
        self._arena: Arena | None = None

    def alloc(self, size: int, what: str) -> Buffer:
        """A zeroed buffer of `size` bytes. Raises InfeasibleError when it does not fit."""
        stop = _aligned(self.used) + size
        if stop > self.capacity:
            raise self._full(size, what, self.used, self.capacity)
        if stop - self.used > self._ram.left:
            raise self._full(size, what, self._ram.used, self._ram.capacity)
        try:
            buffer = self._arena_for(size).alloc(size, what)
        except MemoryError:  # the system refuses
            raise self._full(size, what, self.used, self.used) from None
        self._ram.used += stop - self.used
        self.used = stop
        return buffer

    def _arena_for(self, size: int) -> Arena:
        """The region for small buffers, a new one where that has no room for `size` bytes more; of large buffers each
        has its own."""
        if size >= _REGION // 2:
            return Arena(size)
        if self._arena is None or _aligned(self._arena.used) + size > self._arena.capacity:
            self._arena = Arena(_REGION)
        return self._arena

    def _full(self, size: int, what: str, used: int, capacity: int) -> InfeasibleError:
        return InfeasibleError(
            f"out of memory: {what} needs {format_bytes(size)}, "
            f"{format_bytes(used)} of {format_bytes(capacity)} are in use",
            field=f"memory {self.name}",
            remedy="plan again with fewer units, a shorter context or a smaller batch in this memory",
        )

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
