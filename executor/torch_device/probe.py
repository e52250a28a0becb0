"""What a PyTorch device and its link do right now, beside a run (rule 7 of measuring)."""

import time
from collections.abc import Callable
from statistics import median

import torch

from helmsman.executor.torch_device.buffers import dtype_of
from helmsman.schemas.formats import StoredFormat

READ_BYTES = 256 << 20
REPEATS = 5


def read_rate(device: torch.device) -> float:
    """Bytes/s at which `device` reads its memory."""
    values = torch.ones(READ_BYTES // 4, device=device)
    return READ_BYTES / _seconds(device, values.sum)


def product_rate(device: torch.device, fmt: StoredFormat, rows: int, columns: int, tokens: int) -> float:
    """FLOP/s of a product of `tokens` with a (rows, columns) matrix in `fmt`."""
    weight = torch.randn(rows, columns, device=device).to(dtype_of(fmt))
    x = torch.randn(tokens, columns, device=device).to(dtype_of(fmt))
    return 2 * rows * columns * tokens / _seconds(device, lambda: torch.matmul(x, weight.t()))


def copy_seconds(source: torch.device, target: torch.device, size: int) -> float:
    """Seconds of a copy of `size` bytes; the host's side is page-locked."""
    locked = "cuda" in (source.type, target.type)
    ends = [
        torch.empty(size, dtype=torch.uint8, device=each, pin_memory=locked and each.type == "cpu")
        for each in (source, target)
    ]
    device = source if source.type != "cpu" else target
    return _seconds(device, lambda: ends[1].copy_(ends[0], non_blocking=True))


def _seconds(device: torch.device, action: Callable[[], object]) -> float:
    """The median of some runs after one that is not counted."""
    times = []
    for _ in range(REPEATS + 1):
        _finish(device)
        start = time.monotonic()
        action()
        _finish(device)
        times.append(time.monotonic() - start)
    return median(times[1:])


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
