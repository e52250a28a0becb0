"""Probes: what memory and links do right now, beside a run (rule 7 of measuring)."""

from collections.abc import Sequence
from itertools import cycle
from statistics import median
from threading import Barrier, Event, Thread

import numpy as np

from helmsman.executor._kernels import Arena, Buffer, CopyEngine, Pool, packed_size, time_linear, time_read
from helmsman.executor.devices.base import LinkSample
from helmsman.executor.devices.memory import view
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.trace import PROBED

READ_PIECE = 4 << 20
"""Bytes of one contiguous read: about one matrix of a small model."""
READ_CACHES = 8
"""Pieces are together this many times the last-level cache, so that nothing is read from it (E-HELM-30)."""
REPEATS = 5
COPY_BYTES = 4 << 20
SMALL_COPY = 64
PRODUCT, PRODUCT_TOKENS = PROBED, 128
"""(rows, columns) of a product, and the tokens it is with: one of those that a profile measures in every format.
Between two of them curves of quantised weights are 4 to 8 % off."""


def probe_pieces(cache_bytes: int) -> list[Buffer]:
    """Buffers of noise in one arena, as matrices lie; together large against the cache."""
    count = READ_CACHES * cache_bytes // READ_PIECE + 1
    arena = Arena(count * READ_PIECE)
    return [_filled(arena.alloc(READ_PIECE, "probe")) for _ in range(count)]


def read_rate(pool: Pool, pieces: Sequence[Buffer]) -> float:
    """Bytes/s at which all threads of `pool` read the pieces, one after the other.

    Over the sum of their seconds, as a step's are the sum of its matrices': what holds up some of them (ticks of the
    clock, bursts of others on this memory) holds up a step, which took 2 to 5 % longer than as many median pieces."""
    seconds = sum(time_read(pool, piece, 1)[0] for piece in pieces)
    return sum(piece.size for piece in pieces) / seconds


def joint_read_rate(pools: Sequence[Pool], pieces: Sequence[Buffer]) -> float:
    """Bytes/s that all pools reach together, each reading pieces of its own while all others read.

    Ends with the pool that is first through its pieces, once every other has read one: what the others read after
    that, they would read alone. A piece during which it ended does not count."""
    assert len(pieces) >= len(pools), "every pool reads pieces of its own"
    read_in: list[list[tuple[int, float]]] = [[] for _ in pools]
    started, ended = Barrier(len(pools)), Event()

    def read(place: int) -> None:
        started.wait()
        own = pieces[place :: len(pools)]
        for piece in cycle(own):
            taken = time_read(pools[place], piece, 1)[0]
            if ended.is_set():
                return
            read_in[place].append((piece.size, taken))
            if len(read_in[place]) >= len(own) and all(read_in):
                ended.set()
                return

    threads = [Thread(target=read, args=(place,)) for place in range(len(pools))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(sum(size for size, _ in own) / sum(taken for _, taken in own) for own in read_in)


def product_matrices(fmt: StoredFormat) -> list[Buffer]:
    """The weights of a probe of arithmetic, noise: one for every repeat, as a profile takes another matrix for each.
    A product with one that stays in a cache is up to 11 % faster (q4_0)."""
    return [random_matrix(fmt, PRODUCT) for _ in range(REPEATS)]


def random_matrix(fmt: StoredFormat, shape: tuple[int, int]) -> Buffer:
    """Noise as the packed weights of (rows, columns)."""
    return _noise(packed_size(fmt, *shape))


def product_rate(pool: Pool, fmt: StoredFormat, matrices: Sequence[Buffer]) -> float:
    """FLOP/s at which all threads of `pool` multiply each with PRODUCT_TOKENS tokens, so many that memory does not
    matter. The matrices are those of `product_matrices`, in no cache: what follows a read probe finds none there."""
    times = time_linear(pool, fmt, matrices, *PRODUCT, PRODUCT_TOKENS, len(matrices))
    return 2 * PRODUCT_TOKENS * PRODUCT[0] * PRODUCT[1] / median(times)


def copy_buffers() -> tuple[Buffer, Buffer]:
    """Source and target of link probes."""
    return _noise(COPY_BYTES), _noise(COPY_BYTES)


def link_sample(engine: CopyEngine, source: Buffer, target: Buffer) -> LinkSample:
    """Rate and latency of a lane, from large copies and small ones."""

    def seconds(size: int) -> float:
        spans = [engine.wait(engine.submit(target, 0, source, 0, size)) for _ in range(REPEATS)]
        return median(end - start for start, end in spans)

    return LinkSample.of(seconds, COPY_BYTES, SMALL_COPY)


def _noise(size: int) -> Buffer:
    return _filled(Arena(size + 4096).alloc(size, "probe"))


def _filled(buffer: Buffer) -> Buffer:
    """Pages of zeros would all be the same cached page."""
    values = view(buffer, np.uint8)
    values[:] = np.resize(np.random.default_rng(0).integers(0, 255, 65521, np.uint8), buffer.size)
    return buffer
