"""Probes: what memory and links do right now, beside a run."""

from collections.abc import Callable, Sequence
from itertools import chain, cycle
from statistics import fmean, median
from threading import Barrier, Event, Thread
from typing import TypeVar

import numpy as np

from helmsman.executor._kernels import Buffer, CopyEngine, Pool, packed_size, time_linear, time_read
from helmsman.executor.devices.base import LinkSample
from helmsman.executor.devices.memory import arena_beside, view
from helmsman.executor.system.machine import beyond_caches
from helmsman.executor.system.rates import per_second
from helmsman.lowering.operation import PANEL
from helmsman.schemas.formats import Precision, StoredFormat
from helmsman.schemas.probed_product import PROBED

PieceT = TypeVar("PieceT")

READ_PIECE = 4 << 20
"""Bytes of one contiguous read: about one matrix of a small model."""
COLUMNS = 2560
"""Columns of the matrices that `weights_rate` multiplies: those of a profile's products of ten megabytes (its smaller
ones have 1024 and 1536). Products with 1024 columns are 4 to 5 % faster in q4_0 and q8_0."""
APART = 4096
"""Bytes by which an arena of noise is larger for each piece, which it may need to align them."""
REPEATS = 5
PRODUCTS_S = 0.1
"""The least seconds of products in one probe of arithmetic. Units that compute at two rates by turns, for 0.2 to 1
second each, need several probes of so many (AMX of an Intel Xeon, Emerald Rapids: a twentieth of products took 0.58
times the median, as many 1.20 times, for 0.2 to 1 second each)."""
COPY_BYTES = 4 << 20
SMALL_COPY = 64
PRODUCT = PROBED
"""(rows, columns) of a product."""
PRODUCT_TOKENS = 128
"""The tokens of a product: a number that a profile measures in every format. Between two of these numbers curves of
quantised weights are 4 to 8 % off."""
JOINT_PRODUCT = (PRODUCT[0] // 16, PRODUCT[1])
"""(rows, columns) of the products that several pools do at once."""
JOINT_MATRICES = 2
"""The number of matrices that these products take in turn."""
JOINT_REPEATS = 64
"""Products in one native call of a probe beside a run: a twentieth of a second. The threads that make such calls run on
the processors of the pools, so that the processors of several calls of 4 products kept 92 to 95 % of their FLOP/s where
those of one call of 16 to 64 kept 99 to 100 % (2 cores of an AMD EPYC, Zen 5)."""


def probe_pieces(cache_bytes: int) -> list[Buffer]:
    """Buffers of noise of READ_PIECE bytes, together large against the cache."""
    return noise_pieces([READ_PIECE] * (beyond_caches(cache_bytes) // READ_PIECE + 1))


def noise_pieces(sizes: Sequence[int]) -> list[Buffer]:
    """Buffers of noise of such sizes, in bytes, in one arena, as matrices lie."""
    arena = arena_beside(sum(size + APART for size in sizes))
    return [_filled(arena.alloc(size, "probe")) for size in sizes]


def cut(buffers: Sequence[Buffer], most: int) -> list[Buffer]:
    """Pieces of READ_PIECE bytes at most of `buffers`; of more than `most` bytes every second, third, ..., so that they
    are of all of them alike."""
    pieces = [
        buffer.part(start, min(READ_PIECE, buffer.size - start))
        for buffer in buffers
        for start in range(0, buffer.size, READ_PIECE)
    ]
    return pieces[:: -(-sum(piece.size for piece in pieces) // most)] if pieces else []


def dealt(own: Sequence[Sequence[PieceT]]) -> list[PieceT]:
    """The pieces of several readers in turns, as many of each."""
    return list(chain.from_iterable(zip(*own, strict=False)))


def read_rate(pool: Pool, pieces: Sequence[Buffer]) -> float:
    """Bytes/s at which all threads of `pool` read the pieces, one after the other.

    Over the sum of their seconds, as a step's are the sum of its matrices': what holds up some of them (ticks of the
    clock, bursts of others on this memory) holds up a step, which took 2 to 5 % longer than as many median pieces."""
    seconds = sum(time_read(pool, piece, 1)[0] for piece in pieces)
    return per_second(sum(piece.size for piece in pieces), seconds, "memory")


def weights_rate(pool: Pool, fmt: StoredFormat, pieces: Sequence[Buffer]) -> float:
    """Return the bytes/s at which all threads of `pool` read weights in a decode step: each piece is taken as a matrix
    in `fmt` of COLUMNS columns and multiplied with one token, one piece after the other.

    Plain reads do not tell this rate: a faster memory does not speed up a product's arithmetic. Where one thread read
    31.8 instead of 27.3 GB/s, products of q4_0 lost 6 % against plain reads and products of q8_0 3 % (1,240 turns on 2
    cores of an AMD EPYC, Zen 4). Each piece holds `panel_bytes` bytes or more; what lies beyond its last whole panel is
    left out."""
    size = panel_bytes(fmt)
    moved = seconds = 0.0
    for piece in pieces:
        panels = piece.size // size
        seconds += time_linear(pool, fmt, [piece.part(0, panels * size)], panels * PANEL, COLUMNS, 1, 1)[0]
        moved += panels * size
    return per_second(moved, seconds, "memory")


def panel_bytes(fmt: StoredFormat) -> int:
    """Return the bytes of one panel, PANEL rows that are stored interleaved, of a matrix of COLUMNS columns."""
    return packed_size(fmt, PANEL, COLUMNS)


def joint_read_rate(pools: Sequence[Pool], pieces: Sequence[Buffer]) -> float:
    """Bytes/s that all pools reach together, each reading pieces of its own while all others read."""
    assert len(pieces) >= len(pools), "every pool reads pieces of its own"
    own = [pieces[place :: len(pools)] for place in range(len(pools))]

    def read(place: int, piece: Buffer) -> tuple[float, float]:
        return piece.size, time_read(pools[place], piece, 1)[0]

    return sum(_rates_at_once(read, own))


def _rates_at_once(work: Callable[[int, PieceT], tuple[float, float]], own: Sequence[Sequence[PieceT]]) -> list[float]:
    """Return by place the amount a second of `work(place, piece)`, which gives an amount and its seconds: each place
    has a thread, which works on its own pieces again and again; all threads begin together.

    Ends with the thread that is first through its pieces, once every other is through one: what the others do after
    that, they would do alone. Work during which it ended does not count."""
    done: list[list[tuple[float, float]]] = [[] for _ in own]
    started, ended = Barrier(len(own)), Event()

    def run(place: int) -> None:
        started.wait()
        for piece in cycle(own[place]):
            result = work(place, piece)
            if ended.is_set():
                return
            done[place].append(result)
            if len(done[place]) >= len(own[place]) and all(done):
                ended.set()
                return

    threads = [Thread(target=run, args=(place,)) for place in range(len(own))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [_rate(results) for results in done]


def _rate(done: Sequence[tuple[float, float]]) -> float:
    """The amount of some work, pairs of amount and seconds, a second."""
    return per_second(sum(amount for amount, _ in done), sum(seconds for _, seconds in done), "joint work")


def product_matrices(fmt: StoredFormat) -> list[Buffer]:
    """The weights of a probe of arithmetic, noise: one for every repeat, as a profile takes another matrix for each.
    A product with one that stays in a cache is up to 11 % faster (q4_0)."""
    return [random_matrix(fmt, PRODUCT) for _ in range(REPEATS)]


def random_matrix(fmt: StoredFormat, shape: tuple[int, int]) -> Buffer:
    """Noise as the packed weights of (rows, columns)."""
    return _noise(packed_size(fmt, *shape))


def product_rate(pool: Pool, fmt: StoredFormat, matrices: Sequence[Buffer], rounding: Precision) -> float:
    """Return the FLOP/s at which all threads of `pool` multiply the matrices with PRODUCT_TOKENS tokens, so many that
    memory does not matter, for PRODUCTS_S seconds or more: each matrix once at least. These are those of
    `product_matrices`, in no cache: what follows a read probe finds none there.

    Over the sum of their seconds, as a prompt's are the sum of its products' (`read_rate`)."""

    def seconds(repeats: int) -> float:
        return sum(time_linear(pool, fmt, matrices, *PRODUCT, PRODUCT_TOKENS, repeats, rounding))

    flops, count = 2.0 * PRODUCT_TOKENS * PRODUCT[0] * PRODUCT[1], len(matrices)
    spent = seconds(count)
    more = int(PRODUCTS_S * per_second(count, spent, "a product")) + 1 - count
    return flops * count / spent if more <= 0 else flops * (count + more) / (spent + seconds(more))


class JointProductProbe:
    """Products of bf16 weights, noise, by several pools, and what these keep of their arithmetic meanwhile."""

    def __init__(self) -> None:
        self._matrices = [random_matrix("bf16", JOINT_PRODUCT) for _ in range(JOINT_MATRICES)]

    def kept(self, pools: Sequence[Pool], repeats: int) -> float:
        """The part of its FLOP/s alone that a pool keeps while all others compute, the mean of all pools.

        Each does `repeats` products alone, and as many beside the others. The matrices are in a cache all the time:
        what memory costs is not what is asked."""
        own = [[*self._matrices[place:], *self._matrices[:place]] for place in range(len(pools))]

        def multiply(place: int, matrices: Sequence[Buffer]) -> tuple[float, float]:
            """The first product does not count: it waits for its code and activations, and for the others to begin."""
            times = time_linear(pools[place], "bf16", matrices, *JOINT_PRODUCT, PRODUCT_TOKENS, 1 + repeats)
            return repeats, sum(times[1:])

        alone = [_rate([multiply(place, matrices)]) for place, matrices in enumerate(own)]
        together = _rates_at_once(multiply, [[matrices] for matrices in own])
        return fmean(rate / one for rate, one in zip(together, alone, strict=True))


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
    return noise_pieces([size])[0]


def _filled(buffer: Buffer) -> Buffer:
    """Pages of zeros would all be the same cached page."""
    values, noise = view(buffer, np.uint8), np.random.default_rng(0).integers(0, 255, 65521, np.uint8)
    whole = len(values) // len(noise) * len(noise)
    values[:whole].reshape(-1, len(noise))[:] = noise
    values[whole:] = noise[: len(values) - whole]
    return buffer
