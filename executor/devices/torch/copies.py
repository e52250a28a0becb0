"""The copy lanes of a PyTorch device: bytes between its memory and the host's, on streams of their own."""

from collections.abc import Sequence
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer as SupportsBuffer

from helmsman.executor._kernels import Arena, CopyEngine, Event, packed_size
from helmsman.executor._kernels import Buffer as HostBuffer
from helmsman.executor.devices.move_calls import UNLIMITED
from helmsman.executor.devices.parts import Buffer
from helmsman.executor.devices.torch.buffers import bytes_of
from helmsman.executor.devices.torch.lane import TorchLane, WaitPoint
from helmsman.lowering.operation import PANEL
from helmsman.schemas.formats import StoredFormat

LARGE_PIECE = 64 << 10
"""Bytes that take a link about as long as launching a copy takes."""


class CopyLane(TorchLane):
    """The lane of a PyTorch link, as the native copy engine is that of a loopback link."""

    def submit(
        self,
        target: Buffer,
        target_offset: int,
        source: Buffer,
        source_offset: int,
        size: int,
        wait: Sequence[Event] = (),
        done: Event | None = None,
        times: SupportsBuffer | None = None,
    ) -> None:
        """Queue a copy; copies finish in the order they were submitted."""
        to, of = bytes_of(target), bytes_of(source)

        def work() -> None:
            to[target_offset : target_offset + size].copy_(of[source_offset : source_offset + size], non_blocking=True)

        self.submit_work(work, wait, done, times)

    def submit_pieces(
        self,
        target: Buffer,
        target_offset: int,
        source: Buffer,
        source_offset: int,
        pieces: SupportsBuffer | NDArray[np.int64],
        wait: Sequence[WaitPoint] = (),
        done: Event | None = None,
        times: SupportsBuffer | None = None,
    ) -> None:
        """Like submit, for `pieces`, int64 (n, 3): offsets from those of the target and the source, bytes."""
        to, of = bytes_of(target)[target_offset:], bytes_of(source)[source_offset:]
        places = np.asarray(pieces, np.int64).reshape(-1, 3).tolist()

        def work() -> None:
            for at, begin, size in places:
                to[at : at + size].copy_(of[begin : begin + size], non_blocking=True)

        self.submit_work(work, wait, done, times)

    def submit_strided(
        self,
        target: Buffer,
        target_offset: int,
        target_strides: tuple[int, int],
        source: Buffer,
        source_offset: int,
        source_strides: tuple[int, int],
        counts: tuple[int, int],
        size: int,
        wait: Sequence[Event] = (),
        done: Event | None = None,
        times: SupportsBuffer | None = None,
    ) -> None:
        """Like submit, for counts[0] * counts[1] pieces of `size` bytes at byte strides from each other.

        Small pieces are one copy, as 256 of them took 19 ms one by one; PyTorch gathers them in memory that is not
        page-locked, so that large ones are copied by themselves."""
        to, of, shape = bytes_of(target), bytes_of(source), (*counts, size)

        def work() -> None:
            there = to[target_offset:].as_strided(shape, (*target_strides, 1))
            here = of[source_offset:].as_strided(shape, (*source_strides, 1))
            if size < LARGE_PIECE:
                there.copy_(here, non_blocking=True)
                return
            for one, other in product(range(counts[0]), range(counts[1])):
                there[one, other].copy_(here[one, other], non_blocking=True)

        self.submit_work(work if size and all(counts) else lambda: None, wait, done, times)

    def submit_lookup(
        self,
        target: Buffer,
        target_offset: int,
        table: HostBuffer,
        fmt: StoredFormat,
        rows: int,
        columns: int,
        ids: HostBuffer,
        count: int,
        wait: Sequence[Event] = (),
        done: Event | None = None,
        times: SupportsBuffer | None = None,
    ) -> None:
        """Like submit, for `count` rows of a packed matrix of the host, which finds them, one after the other in the
        target."""
        to, size = bytes_of(target), count * packed_size(fmt, PANEL, columns) // PANEL

        def work() -> None:
            scratch, here = Arena(size).alloc(size, "rows of tokens"), Event()
            self._host.submit_lookup(scratch, 0, table, fmt, rows, columns, ids, count, done=here)
            here.wait()
            to[target_offset : target_offset + size].copy_(bytes_of(scratch))

        self.submit_work(work, wait, done, times)

    @cached_property
    def _host(self) -> CopyEngine:
        """The engine that looks up rows of tables that the host has packed."""
        return CopyEngine(UNLIMITED, 0.0, -1)
