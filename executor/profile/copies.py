"""A link: seconds of copies by size and direction, and its effect on a processor that computes meanwhile."""

from helmsman.executor._kernels import CopyEngine, Pool, packed_size, time_linear
from helmsman.executor.probe import COPY_BYTES, copy_buffers, link_sample, read_rate
from helmsman.executor.profile.processor import PAIRS, Bench
from helmsman.executor.profile.samples import BusySamples, LinkSamples
from helmsman.hwdb.fit import quantile
from helmsman.schemas.formats import FORMATS

SIZES = (64, 4096, 65536, 1 << 20, 4 << 20)
BUSY_SHAPE = (4096, 2560)
BUSY_S = 0.05


def measure_link(engine: CopyEngine) -> LinkSamples:
    """Copies of every size, and the probe that runs use, several times."""
    source, target = copy_buffers()
    samples = LinkSamples()
    for _ in range(PAIRS):
        probe = link_sample(engine, source, target)
        samples.rate.append(probe.rate)
        samples.latency.append(probe.latency)
        for size in SIZES:
            start, end = engine.wait(engine.submit(target, 0, source, 0, size))
            samples.seconds.setdefault(size, []).append(end - start)
    return samples


def measure_busy(pool: Pool, engine: CopyEngine, rate: float, bench: Bench) -> BusySamples:
    """Read and multiply on `pool` while `engine`, of nominal `rate` bytes/s, never rests."""
    samples = BusySamples()
    source, target = copy_buffers()
    copies = max(4, round(BUSY_S * rate / COPY_BYTES))
    rows, columns = BUSY_SHAPE
    for fmt in FORMATS:
        size = packed_size(fmt, rows, columns)
        for _ in range(PAIRS // 3):
            tickets = [engine.submit(target, 0, source, 0, COPY_BYTES) for _ in range(copies)]
            samples.read.append(read_rate(pool, bench.noise, 1))
            times = time_linear(pool, fmt, bench.matrices(size), rows, columns, 1, 5)
            samples.linear.setdefault(fmt, []).append(size / quantile(times, 0.5))
            spans = [engine.wait(ticket) for ticket in tickets]
            samples.link.append(copies * COPY_BYTES / (spans[-1][1] - spans[0][0]))
    return samples
