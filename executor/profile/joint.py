"""The rates that two devices sharing a memory reach in it at once: products of the sizes of real matrices, each its
own.

A device is measured while the other multiplies without a pause. Alone, each is another figure (`processor`). The
rate of both together is measured by products whose rows they divide, as in plans that share matrices: such a product
ends with the slower device, and takes longer than either does on average, since both scatter."""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean, harmonic_mean
from threading import Event

from helmsman.executor._kernels import Buffer, Pool, packed_size, time_linear
from helmsman.executor.profile.bench import MeasurementBuffers
from helmsman.executor.profile.copies import feeding
from helmsman.executor.profile.samples import JointSamples
from helmsman.schemas.formats import StoredFormat

SHAPES = ((256, 1024), (512, 1024), (1024, 1024), (1536, 1024), (3072, 1024), (4096, 1024))
"""(rows, columns): bf16 matrices of 0.5 to 8 MiB, as devices have that share those of small and middling models."""
QUANTISED: tuple[StoredFormat, ...] = ("q8_0", "q4_0")
QUANTISED_SHAPE = (4096, 1024)
MIN_PRODUCTS = 5
"""Products that a device does at least, beside the other."""
WALKED = 256 << 20
"""About how many bytes of matrices a device goes through, beside the other doing the same."""


@dataclass(frozen=True)
class Pair:
    """Two devices that share a memory: their names and threads; `together`: the threads of both."""

    names: tuple[str, str]
    pools: tuple[Pool, Pool]
    together: Pool


def measure_joint(pair: Pair, bench: MeasurementBuffers, link: str, joint_samples: JointSamples) -> None:
    """Put into `joint_samples` the bytes/s of each beside the other, by `link` (idle or busy), format and bytes, and of
    plain reads of both before and after each format and size. Drops the buffers of `bench`."""
    joint_samples.names = pair.names
    reads = joint_samples.read.setdefault(link, [])
    reads.append(bench.read_together(pair.pools))
    for fmt, (rows, columns) in _products():
        size = packed_size(fmt, rows, columns)
        matrices = bench.matrices(size)
        half = len(matrices) // 2
        own = matrices[:half], matrices[half:]
        rates = joint_samples.rates.setdefault((link, fmt, size), ([], []))
        for place in (0, 1):
            rates[place].extend(size / t for t in _beside(pair.pools, own, place, fmt, rows, columns))
        visits = max(MIN_PRODUCTS, 2 * WALKED // size)
        divided = time_linear(pair.together, fmt, matrices, rows, columns, 1, visits) if link == "idle" else []
        reads.append(bench.read_together(pair.pools))
        if divided:
            both = harmonic_mean(size / t for t in divided)
            joint_samples.shares.setdefault((fmt, size), []).append(both / fmean(reads[-2:]))
        bench.drop()


def _products() -> Iterator[tuple[StoredFormat, tuple[int, int]]]:
    yield from (("bf16", shape) for shape in SHAPES)
    yield from ((fmt, QUANTISED_SHAPE) for fmt in QUANTISED)


def _beside(
    pools: tuple[Pool, Pool],
    own: tuple[list[Buffer], list[Buffer]],
    place: int,
    fmt: StoredFormat,
    rows: int,
    columns: int,
) -> list[float]:
    """Seconds of every product of one device while the other goes on multiplying."""
    other = 1 - place
    going = Event()

    def feed(stop: Event) -> None:
        while not stop.is_set():
            time_linear(pools[other], fmt, own[other], rows, columns, 1, len(own[other]))
            going.set()

    with feeding(feed):
        going.wait()
        return time_linear(
            pools[place], fmt, own[place], rows, columns, 1, max(MIN_PRODUCTS, WALKED // own[place][0].size)
        )
