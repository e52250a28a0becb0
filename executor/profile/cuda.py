"""A CUDA device, where there is one: bandwidth, products, attention and pinned copies, by the probes of runs."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from helmsman.executor.profile.contended import measure_contended
from helmsman.executor.profile.copies import SIZES
from helmsman.executor.profile.processor import (
    CONTEXTS,
    FEW_SHAPES,
    FEW_TOKENS,
    GEMM_TOKENS,
    HEAD_DIM,
    HEADS,
    KV_HEADS,
    PAIRS,
    QUANTISED,
    SHAPES,
)
from helmsman.executor.profile.prompts import GEMM_SHAPE
from helmsman.executor.profile.samples import CudaSamples, LinkSamples, ProcessorSamples
from helmsman.hwdb.fit import quantile
from helmsman.schemas.formats import FORMATS, Format, StoredFormat, size_of

if TYPE_CHECKING:
    import torch

    from helmsman.executor.devices.torch.weights import Weight

ROTATED = 512 << 20
"""Bytes of matrices, or of caches, that together exceed any L2."""
SMALL_SHAPES = ((128, 128), (128, 1024))
"""(rows, columns) of products beside those of processors: what small ones take is nearly the same, and not their bytes'
time."""
SMALL_CONTEXTS = (1, 8)
"""Positions, likewise."""
MAX_CACHES = 512
MAX_MATRICES = 512
"""The number of caches, and of matrices, that take turns at most: small ones are in a cache of a GPU when their turn
comes again, as those of a step may be."""
LARGE_COPY = 64 << 20
"""Above the sizes that every link is measured at: a PCIe link reaches its rate only here."""


def measure_cuda(read: Callable[[], float]) -> CudaSamples:
    """Measure the first GPU, and its link while the host's processors `read` their memory, which says bytes/s.

    Only that one: a plan splits between the host and one accelerator, so that further GPUs would be
    devices that nothing uses. `CUDA_VISIBLE_DEVICES` selects another."""
    import torch

    from helmsman.executor.devices.torch.probe import copy_rate, copy_times

    device = torch.device("cuda", 0)
    free, capacity = torch.cuda.mem_get_info(0)
    cuda_samples = CudaSamples(torch.cuda.get_device_name(0), capacity, free)
    measure_processor(device, cuda_samples.samples)
    cuda_samples.links = dict(_links(device))
    for name, ends in _ways(device).items():
        cuda_samples.pageable[name] = [LARGE_COPY / t for t in copy_times(*ends, LARGE_COPY, PAIRS, page_locked=False)]
        cuda_samples.contended[name] = measure_contended(read, copy_rate(*ends, LARGE_COPY))
    return cuda_samples


def measure_processor(device: "torch.device", samples: ProcessorSamples, read_bytes: int | None = None) -> None:
    """Reads, products and attention of a device that PyTorch drives; `read_bytes`: as probes beside runs read."""
    from helmsman.executor.devices.torch.probe import READ_BYTES, read_times

    read_bytes = read_bytes or READ_BYTES
    samples.read_bytes = read_bytes
    samples.read = [read_bytes / t for t in read_times(device, read_bytes, PAIRS)]
    for fmt in FORMATS:
        _measure_products(device, samples, fmt, (*SMALL_SHAPES, *SHAPES), GEMM_TOKENS)
        _measure_attention(device, samples, fmt)
    for quantised in QUANTISED:
        _measure_products(device, samples, quantised, FEW_SHAPES, FEW_TOKENS)


def _measure_products(
    device: "torch.device",
    samples: ProcessorSamples,
    fmt: StoredFormat,
    shapes: Sequence[tuple[int, int]],
    many: Sequence[int],
) -> None:
    from helmsman.executor.devices.torch.probe import product_times

    read = quantile(samples.read, 0.5)
    for rows, columns in shapes:
        size, weights = size_of(rows * columns, fmt), _weights(device, fmt, rows, columns)
        samples.linear[fmt, size] = [size / t / read for t in product_times(device, weights, (rows, columns), 1, PAIRS)]
    rows, columns = GEMM_SHAPE
    weights = _weights(device, fmt, rows, columns)
    for tokens in many:
        seconds = product_times(device, weights, (rows, columns), tokens, PAIRS)
        samples.gemm[fmt, "f32", tokens] = [2 * tokens * rows * columns / t for t in seconds]


def _weights(device: "torch.device", fmt: StoredFormat, rows: int, columns: int) -> "list[Weight]":
    from helmsman.executor.devices.torch.probe import random_weight

    count = min(MAX_MATRICES, max(2, ROTATED // size_of(rows * columns, fmt)))
    return [random_weight(device, fmt, rows, columns) for _ in range(count)]


def _measure_attention(device: "torch.device", samples: ProcessorSamples, fmt: Format) -> None:
    """Of one token over whole buckets of positions, as decode steps read them."""
    import torch

    from helmsman.executor.devices.torch.attention import attend_at_once
    from helmsman.executor.devices.torch.buffers import dtype_of
    from helmsman.executor.devices.torch.positions import BUCKET
    from helmsman.executor.devices.torch.probe import times

    read, kind = quantile(samples.read, 0.5), dtype_of(fmt)
    query = torch.randn(1, 1, HEADS, HEAD_DIM, device=device)
    target = torch.empty_like(query)
    for context in (*SMALL_CONTEXTS, *(context for context, _ in CONTEXTS)):
        size, positions = size_of(2 * KV_HEADS * HEAD_DIM * context, fmt), -(-context // BUCKET) * BUCKET
        count = min(MAX_CACHES, max(2, ROTATED // size_of(2 * KV_HEADS * HEAD_DIM * positions, fmt)))
        caches = torch.randn((count, 2, 1, KV_HEADS, positions, HEAD_DIM), device=device, dtype=kind)
        mask = torch.zeros(HEADS // KV_HEADS, positions, device=device, dtype=kind)

        def walk(caches: torch.Tensor = caches, mask: torch.Tensor = mask) -> None:
            for keys, values in caches:
                attend_at_once(query, keys, values, mask, target)

        spent = times(device, walk, PAIRS, captured=True)
        samples.attention[fmt, size] = [size / (t / count) / read for t in spent]
        del walk, caches  # of which two sets would be twice as many bytes


def _ways(device: "torch.device") -> dict[str, tuple["torch.device", "torch.device"]]:
    """The two ends of the directions of the link, by name."""
    import torch

    host = torch.device("cpu")
    return {"h2d": (host, device), "d2h": (device, host)}


def _links(device: "torch.device") -> Iterator[tuple[str, LinkSamples]]:
    """Copies of page-locked memory both ways."""
    from helmsman.executor.devices.torch.probe import copy_times

    for name, ends in _ways(device).items():
        link_samples = LinkSamples()
        for size in (*SIZES, LARGE_COPY):
            link_samples.seconds[size] = copy_times(*ends, size, PAIRS)
        link_samples.latency = link_samples.seconds[SIZES[0]]
        link_samples.rate = [LARGE_COPY / t for t in link_samples.seconds[LARGE_COPY]]
        yield name, link_samples
