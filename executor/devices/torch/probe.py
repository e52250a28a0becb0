"""Probes of a PyTorch device and its links: beside a run, and when it is profiled."""

import time
from collections.abc import Callable, Sequence
from statistics import median

import torch

from helmsman.executor._kernels import packed_size
from helmsman.executor.devices.torch.buffers import TorchBuffer, dtype_of
from helmsman.executor.devices.torch.weights import Weight, weight_of
from helmsman.lowering.buffers import expanded_values
from helmsman.schemas.formats import StoredFormat, is_plain, size_of

READ_BYTES = 256 << 20
READS = 4
"""Reads that follow each other: launching the first of them counts too."""
PRODUCT_BYTES = 128 << 20
"""Bytes of the matrices of products: beyond the caches of most GPUs."""
PRODUCTS = 18
"""The number of products with them that follow each other."""
REPEATS = 5
WARM_UP = 3

Times = list[float]
"""Seconds, one of each repetition."""


def read_rate(device: torch.device) -> float:
    """Bytes/s at which `device` reads its memory."""
    return READ_BYTES / median(read_times(device, READ_BYTES, REPEATS))


def product_rate(device: torch.device, fmt: StoredFormat, rows: int, columns: int, tokens: int) -> float:
    """FLOP/s of a product of `tokens` with a (rows, columns) matrix in `fmt`."""
    count = max(2, PRODUCT_BYTES // size_of(rows * columns, fmt))
    weights = [random_weight(device, fmt, rows, columns) for _ in range(count)]
    weights = [weights[place % count] for place in range(max(count, PRODUCTS))]
    return 2 * rows * columns * tokens / median(product_times(device, weights, (rows, columns), tokens, REPEATS))


def copy_seconds(source: torch.device, target: torch.device, size: int) -> float:
    """Seconds of a copy of `size` bytes; the host's side is page-locked."""
    return median(copy_times(source, target, size, REPEATS))


def read_times(device: torch.device, size: int, repeats: int) -> Times:
    """Of plain reads of `size` bytes."""
    read = torch.ones(size // 4, device=device)
    return [time / READS for time in times(device, lambda: [read.sum() for _ in range(READS)], repeats, captured=True)]


def random_weight(device: torch.device, fmt: StoredFormat, rows: int, columns: int) -> Weight:
    """A matrix as products of the device read it; of a quantised one only how long it takes means something."""
    if is_plain(fmt):
        held = torch.randn(rows * columns, device=device).to(dtype_of(fmt)).view(torch.uint8)
        return weight_of(TorchBuffer(held), fmt, rows, columns, torch.empty(0))
    bits = torch.randint(0, 256, (packed_size(fmt, rows, columns),), dtype=torch.uint8, device=device)
    space = torch.empty(expanded_values(rows, columns), device=device)
    return weight_of(TorchBuffer(bits), fmt, rows, columns, space)


def product_times(
    device: torch.device, weights: Sequence[Weight], shape: tuple[int, int], tokens: int, repeats: int
) -> Times:
    """Of a product with one of `weights`, each of `shape` (rows, columns), on a walk through all of them."""
    rows, columns = shape
    x, made = torch.randn(tokens, columns, device=device), torch.empty(tokens, rows, device=device)

    def walk() -> None:
        for weight in weights:
            weight.multiply(x, made)

    return [time / len(weights) for time in times(device, walk, repeats, captured=True)]


def copy_times(source: torch.device, target: torch.device, size: int, repeats: int, page_locked: bool = True) -> Times:
    """Of copies of `size` bytes; `page_locked`: whether the host's side is, beside a GPU."""
    device, copy = _copying(source, target, size, page_locked)
    return times(device, copy, repeats)


def copy_rate(source: torch.device, target: torch.device, size: int) -> Callable[[], float]:
    """Return a function that copies `size` bytes, page-locked beside a GPU, and returns bytes/s."""
    device, copy = _copying(source, target, size, True)
    times(device, copy, 1)
    return lambda: size / _seconds(device, copy)


def _copying(
    source: torch.device, target: torch.device, size: int, page_locked: bool
) -> tuple[torch.device, Callable[[], object]]:
    """Return the device that copies are awaited on, and the function that submits one."""
    locked = page_locked and "cuda" in (source.type, target.type)
    ends = [
        torch.empty(size, dtype=torch.uint8, device=side, pin_memory=locked and side.type == "cpu")
        for side in (source, target)
    ]
    device = source if source.type != "cpu" else target
    return device, lambda: ends[1].copy_(ends[0], non_blocking=True)


def times(device: torch.device, action: Callable[[], object], repeats: int, captured: bool = False) -> Times:
    """Of `action`, after a few that are not counted; `captured`: as a graph, where the device has them, so that the
    host's time for launching does not count."""
    for _ in range(WARM_UP):
        action()
    replayed = _graph_of(action).replay if captured and device.type == "cuda" else action
    return [_seconds(device, replayed) for _ in range(repeats)]


def _graph_of(action: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """Capture what `action` launches, which has run before. `torch.cuda.graph` would give back the memory that PyTorch
    keeps, so that a run after a probe would have to ask the driver for all of it."""
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin(capture_error_mode="thread_local")
        action()
        graph.capture_end()
    return graph


def _seconds(device: torch.device, action: Callable[[], object]) -> float:
    """By the device's own clock where it has one."""
    if device.type != "cuda":
        start = time.monotonic()
        action()
        return time.monotonic() - start
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    action()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e-3
