"""Deep caches of the peer: the state of a short sequence becomes that of a long one, cell by cell."""

import struct
from itertools import cycle, islice

import pytest
from benchmarks.llama_worker import repeated

LAYERS, CELLS, KEY_ROW, CHANNELS, ELEMENT = 2, 3, 8, 5, 2


def _state(cells: int, transposed: bool) -> bytes:
    """As llama.cpp would write `cells` cells that repeat CELLS of them: every byte names its cell."""
    marks = list(islice(cycle(range(CELLS)), cells))
    state = struct.pack("<IiII", 77, 0, 1, cells) + b"".join(struct.pack("<iIi", at, 1, 0) for at in range(cells))
    state += struct.pack("<II", transposed, LAYERS)
    rows = b"".join(bytes([mark] * KEY_ROW) for mark in marks)
    channels = b"".join(bytes([16 * channel + mark] * ELEMENT) for channel in range(CHANNELS) for mark in marks)
    state += LAYERS * (struct.pack("<iQ", 1, KEY_ROW) + rows)
    if transposed:
        return state + LAYERS * (struct.pack("<iII", 1, ELEMENT, CHANNELS) + channels)
    return state + LAYERS * (struct.pack("<iQ", 1, KEY_ROW) + rows)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("depth", [3, 7, 12])
def test_state_of_a_deep_cache(transposed: bool, depth: int) -> None:
    assert repeated(memoryview(_state(CELLS, transposed)), depth) == _state(depth, transposed)
