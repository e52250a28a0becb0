"""Buffers to measure in: beyond every cache, and memory that goes from one rotation to the next."""

from itertools import pairwise

import numpy as np
import pytest

from helmsman.executor.devices.probe import READ_PIECE, probe_pieces
from helmsman.executor.profile import buffers
from helmsman.executor.system import machine as this_machine
from helmsman.executor.system.machine import beyond_caches


@pytest.mark.parametrize("size", [4096, 1 << 20, 9 << 20])
def test_buffers_cover_the_cache_eight_times(size):
    cache = 1 << 20
    made = buffers.rotation(size, cache)
    assert len(made) * size >= 8 * cache
    assert len(probe_pieces(cache)) * READ_PIECE >= 8 * cache
    values = [np.frombuffer(memoryview(buffer), np.float16) for buffer in made[:2]]
    assert all((np.abs(v) >= 0.5).all() and (np.abs(v) < 2.2).all() for v in values)
    exponents = [np.frombuffer(memoryview(buffer), np.uint8) & 127 for buffer in made[:2]]
    assert all((part >= 0x38).all() for part in exponents), "a power of two of MXFP4 makes products denormal"
    assert (values[0] != values[1]).any()
    starts = [np.frombuffer(memoryview(buffer), np.uint8).ctypes.data for buffer in made]
    assert len(set(starts)) == len(made) and (sorted(starts) != starts or len(made) == 2)


def test_a_whole_sockets_cache_is_not_covered_eight_times(monkeypatch):
    """Two CPUs of a virtual machine are told of 480 MiB: eight times would be 4 GB of probes beside every run."""
    server = 480 << 20
    assert beyond_caches(server) == this_machine.LARGEST > server
    assert beyond_caches(32 << 20) == 256 << 20
    monkeypatch.setattr(this_machine, "LARGEST", 32 << 20)
    taken = [sum(piece.size for piece in made) for made in (probe_pieces(server), buffers.rotation(4096, server))]
    assert all(32 << 20 <= size <= (32 << 20) + READ_PIECE for size in taken)


def test_dropped_rotations_give_their_memory_to_the_next():
    """Nobody has what another has, and there is no more memory than was needed at once."""
    regions = buffers.ReadRegions(1 << 20)

    def spans(size: int) -> list[tuple[int, int]]:
        starts = [np.frombuffer(memoryview(buffer), np.uint8).ctypes.data for buffer in regions.rotation(size)]
        return [(start, start + size) for start in starts]

    first, other = spans(4096), spans(100_000)
    together = sorted(first + other)
    assert all(one[1] <= next_one[0] for one, next_one in pairwise(together))
    regions.drop()
    again = spans(4096)
    assert set(again) == set(first)
    regions.drop()
    large = spans(32 << 20)
    regions.drop()
    low, high = min(start for start, _ in large), max(end for _, end in large)
    assert all(low <= start < end <= high for start, end in spans(20 << 20))
