"""A CUDA device, where there is one: bandwidth, products, attention and pinned copies, by the probes of runs."""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

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

    from helmsman.executor.torch_device.weights import Weight

READ_BYTES = 1 << 30
ROTATED = 512 << 20
"""Bytes of matrices, or of caches, that together exceed any L2."""
LARGE_COPY = 64 << 20
"""Above the sizes that every link is measured at: a PCIe link reaches its rate only here."""


def present() -> bool:
    """Whether PyTorch is installed and sees a GPU; the machine is not asked when it is not installed."""
    if find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()


def measure_cuda() -> CudaSamples:
    """Measure the first GPU.

    Only that one: a plan splits between the host and one accelerator, so that further GPUs would be
    devices that nothing uses. `CUDA_VISIBLE_DEVICES` selects another."""
    import torch

    from helmsman.executor.torch_device.probe import times

    device = torch.device("cuda", 0)
    free, capacity = torch.cuda.mem_get_info(0)
    found = CudaSamples(torch.cuda.get_device_name(0), capacity, free)
    measure_processor(device, found.samples)
    tiny = torch.zeros(1, device=device)
    found.launch = times(device, lambda: tiny.add_(1.0), PAIRS, 100)
    found.links = dict(_links(device))
    return found


def measure_processor(device: "torch.device", samples: ProcessorSamples, read_bytes: int = READ_BYTES) -> None:
    """Reads, products and attention of a device that PyTorch drives."""
    from helmsman.executor.torch_device.probe import read_times

    samples.read_bytes = read_bytes
    samples.read = [read_bytes / t for t in read_times(device, read_bytes, PAIRS)]
    for fmt in FORMATS:
        _measure_products(device, samples, fmt, SHAPES, GEMM_TOKENS)
        _measure_attention(device, samples, fmt)
    for quantised in QUANTISED:
        _measure_products(device, samples, quantised, FEW_SHAPES, FEW_TOKENS)


def _measure_products(
    device: "torch.device",
    samples: ProcessorSamples,
    fmt: StoredFormat,
    shapes: "tuple[tuple[int, int], ...]",
    many: "tuple[int, ...]",
) -> None:
    from helmsman.executor.torch_device.probe import product_times

    read = quantile(samples.read, 0.5)
    for rows, columns in shapes:
        size, weights = size_of(rows * columns, fmt), _weights(device, fmt, rows, columns)
        samples.linear[fmt, size] = [size / t / read for t in product_times(device, weights, columns, 1, PAIRS)]
    rows, columns = GEMM_SHAPE
    weights = _weights(device, fmt, rows, columns)
    for tokens in many:
        found = product_times(device, weights, columns, tokens, PAIRS)
        samples.gemm[fmt, "f32", tokens] = [2 * tokens * rows * columns / t for t in found]


def _weights(device: "torch.device", fmt: StoredFormat, rows: int, columns: int) -> "list[Weight]":
    from helmsman.executor.torch_device.probe import random_weight

    count = max(2, ROTATED // size_of(rows * columns, fmt))
    return [random_weight(device, fmt, rows, columns) for _ in range(count)]


def _measure_attention(device: "torch.device", samples: ProcessorSamples, fmt: Format) -> None:
    import torch

    from helmsman.executor.torch_device.buffers import dtype_of
    from helmsman.executor.torch_device.probe import times

    read = quantile(samples.read, 0.5)
    query = torch.randn(1, HEADS, 1, HEAD_DIM, device=device, dtype=dtype_of(fmt))
    for context, _ in CONTEXTS:
        size = size_of(2 * KV_HEADS * HEAD_DIM * context, fmt)
        shape = (max(2, ROTATED // size), 2, 1, KV_HEADS, context, HEAD_DIM)
        caches = torch.randn(shape, device=device, dtype=dtype_of(fmt))

        def walk(caches: "torch.Tensor" = caches) -> None:
            for keys, values in caches:
                torch.nn.functional.scaled_dot_product_attention(query, keys, values, enable_gqa=True)

        samples.attention[fmt, size] = [size / (t / len(caches)) / read for t in times(device, walk, PAIRS)]


def _links(device: "torch.device") -> Iterator[tuple[str, LinkSamples]]:
    """Pinned copies both ways."""
    import torch

    from helmsman.executor.torch_device.probe import copy_times

    host = torch.device("cpu")
    for name, ends in (("h2d", (host, device)), ("d2h", (device, host))):
        found = LinkSamples()
        for size in (*SIZES, LARGE_COPY):
            found.seconds[size] = copy_times(*ends, size, PAIRS)
        found.latency = found.seconds[SIZES[0]]
        found.rate = [LARGE_COPY / t for t in found.seconds[LARGE_COPY]]
        yield name, found
