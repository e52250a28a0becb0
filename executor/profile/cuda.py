"""A CUDA device, where there is one: bandwidth, products, attention and pinned copies, through PyTorch events."""

from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from helmsman.executor.profile.copies import SIZES
from helmsman.executor.profile.processor import (
    CONTEXTS,
    GEMM_SHAPE,
    GEMM_TOKENS,
    HEAD_DIM,
    HEADS,
    KV_HEADS,
    PAIRS,
    SHAPES,
)
from helmsman.executor.profile.samples import CudaSamples, LinkSamples, ProcessorSamples
from helmsman.hwdb.fit import quantile
from helmsman.schemas.formats import Format, size_of

if TYPE_CHECKING:
    import torch

WARM_UP = 3
READ_BYTES = 1 << 30
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

    free, capacity = torch.cuda.mem_get_info(0)
    found = CudaSamples(torch.cuda.get_device_name(0), capacity, free)
    found.samples.read_bytes = READ_BYTES
    found.samples.read = [READ_BYTES / t for t in _read()]
    for fmt in ("f16", "bf16", "f32"):
        _measure_linear(found.samples, fmt)
        _measure_attention(found.samples, fmt)
    tiny = torch.zeros(1, device="cuda")
    found.launch = _timed(lambda: tiny.add_(1.0), 100)
    found.links = dict(_links())
    return found


def _timed(action: Callable[[], object], inner: int = 1) -> list[float]:
    """Seconds of one `action`, `PAIRS` times, each the mean of `inner` in a row, between CUDA events."""
    import torch

    for _ in range(WARM_UP):
        action()
    times = []
    for _ in range(PAIRS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(inner):
            action()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e-3 / inner)
    return times


def _read() -> list[float]:
    import torch

    values = torch.randn(READ_BYTES // 4, device="cuda")
    return _timed(values.sum)


def _dtype(fmt: Format) -> "torch.dtype":
    from helmsman.executor.torch_device.buffers import dtype_of

    return dtype_of(fmt)


def _weights(fmt: Format, rows: int, columns: int) -> "list[torch.Tensor]":
    """Matrices that together exceed any L2."""
    import torch

    count = max(2, (512 << 20) // size_of(rows * columns, fmt))
    return [torch.randn(rows, columns, device="cuda", dtype=_dtype(fmt)) for _ in range(count)]


def _product(weights: "list[torch.Tensor]", tokens: int) -> list[float]:
    """Seconds of x W^T, walking through the matrices."""
    import torch

    x = torch.randn(tokens, weights[0].shape[1], device="cuda", dtype=weights[0].dtype)

    def walk() -> None:
        for weight in weights:
            torch.nn.functional.linear(x, weight)

    return [t / len(weights) for t in _timed(walk)]


def _measure_linear(samples: ProcessorSamples, fmt: Format) -> None:
    read = quantile(samples.read, 0.5)
    for rows, columns in SHAPES:
        size = size_of(rows * columns, fmt)
        samples.linear[fmt, size] = [size / t / read for t in _product(_weights(fmt, rows, columns), 1)]
    rows, columns = GEMM_SHAPE
    weights = _weights(fmt, rows, columns)
    for tokens in GEMM_TOKENS:
        samples.gemm[fmt, tokens] = [2 * tokens * rows * columns / t for t in _product(weights, tokens)]


def _measure_attention(samples: ProcessorSamples, fmt: Format) -> None:
    import torch

    read = quantile(samples.read, 0.5)
    query = torch.randn(1, HEADS, 1, HEAD_DIM, device="cuda", dtype=_dtype(fmt))
    for context, _ in CONTEXTS:
        size = size_of(2 * KV_HEADS * HEAD_DIM * context, fmt)
        shape = (max(2, (512 << 20) // size), 2, 1, KV_HEADS, context, HEAD_DIM)
        caches = torch.randn(shape, device="cuda", dtype=_dtype(fmt))

        def walk(caches: "torch.Tensor" = caches) -> None:
            for keys, values in caches:
                torch.nn.functional.scaled_dot_product_attention(query, keys, values, enable_gqa=True)

        samples.attention[fmt, size] = [size / (t / len(caches)) / read for t in _timed(walk)]


def _links() -> Iterator[tuple[str, LinkSamples]]:
    """Pinned copies both ways."""
    import torch

    for name in ("h2d", "d2h"):
        found = LinkSamples()
        for size in (*SIZES, LARGE_COPY):
            host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
            device = torch.empty(size, dtype=torch.uint8, device="cuda")
            source, target = (host, device) if name == "h2d" else (device, host)
            found.seconds[size] = _timed(partial(target.copy_, source, non_blocking=True))
        found.latency = found.seconds[SIZES[0]]
        found.rate = [LARGE_COPY / t for t in found.seconds[LARGE_COPY]]
        yield name, found
