"""Page-locking what leaves the host's memory: once, before a run (PARK-13)."""

from collections.abc import Iterable
from typing import Any

import torch

from helmsman.executor._kernels import Buffer
from helmsman.schemas.errors import InfeasibleError
from helmsman.schemas.units import format_bytes

PAGE = 4096

Ranges = list[tuple[int, int]]


def page_ranges(places: Iterable[tuple[int, int]]) -> Ranges:
    """(address, bytes) of whole pages that hold all of `places` (address, bytes), none twice, in order.

    Buffers share pages, and a page may be locked only once."""
    result: Ranges = []
    for address, size in sorted(places):
        begin, end = address // PAGE * PAGE, -(-(address + size) // PAGE) * PAGE
        if result and begin <= result[-1][0] + result[-1][1]:
            last = result[-1]
            result[-1] = (last[0], max(end, last[0] + last[1]) - last[0])
        elif size:
            result.append((begin, end - begin))
    return result


class PinnedBuffers:
    """Host memory that is page-locked for one CUDA device until `release`."""

    def __init__(self, buffers: Iterable[Buffer], device: torch.device) -> None:
        """Raises InfeasibleError when the system does not lock that much."""
        self._held = list(buffers)
        self._ranges: Ranges = []
        if device.type != "cuda":
            return
        for address, size in page_ranges((_address(buffer), buffer.size) for buffer in self._held if buffer.size):
            code = int(_cuda().cudaHostRegister(address, size, 0))
            if code != 0:
                self.release()
                raise _refused(size, code)
            self._ranges.append((address, size))

    def release(self) -> None:
        """Unlock all of it."""
        while self._ranges:
            _cuda().cudaHostUnregister(self._ranges.pop()[0])


def _cuda() -> Any:
    """CUDA's run-time library, which PyTorch does not type."""
    untyped: Any = torch.cuda
    return untyped.cudart()


def _address(buffer: Buffer) -> int:
    return torch.frombuffer(memoryview(buffer), dtype=torch.uint8).data_ptr()


def _refused(size: int, code: int) -> InfeasibleError:
    return InfeasibleError(
        f"{format_bytes(size)} of host memory cannot be page-locked (CUDA error {code})",
        field="path",
        value="pinned",
        remedy="raise the limit of locked memory (ulimit -l), or plan with `pinning` pageable",
    )
