"""Devices that keep torch tensors: memory with a limit, threads, and links that activations cross.

A GPU would be one more `TensorDevice` (torch.device("cuda"), torch's allocator) and `Crossing` (a copy on a stream)."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import torch
from torch import Tensor

from helmsman.executor._kernels import Buffer, CopyEngine
from helmsman.executor.devices.cpu import CpuDevice
from helmsman.executor.devices.memory import BoundedMemory


class TensorDevice(Protocol):
    """Where the stages of captured graphs run."""

    @property
    def name(self) -> str:
        """As plans call it."""

    @property
    def device(self) -> torch.device:
        """What torch calls it."""

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype, what: str) -> Tensor:
        """A zeroed tensor in the device's memory. Raises InfeasibleError when it does not fit."""

    def computing(self) -> AbstractContextManager[None]:
        """While this is open, torch computes as the device does."""


class Crossing(Protocol):
    """A way from one memory to another for activations of one shape."""

    def carry(self, value: Tensor) -> tuple[Tensor, float, float]:
        """(the value where it arrived, seconds at which its transfer began and ended)."""


class ArenaTensors:
    """Tensors in the arena of a device made of processors: the host, or a loopback accelerator."""

    device = torch.device("cpu")

    def __init__(self, processor: CpuDevice) -> None:
        self.name = processor.name
        self._memory = processor.memory
        self._threads = len(processor.cpus)

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype, what: str) -> Tensor:
        """A zeroed tensor in the arena. Raises InfeasibleError when it does not fit."""
        return _in_memory(self._memory, shape, dtype, what)[1]

    @contextmanager
    def computing(self) -> Iterator[None]:
        """As many threads as the device has processors."""
        before = torch.get_num_threads()
        torch.set_num_threads(self._threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)


class ThrottledCrossing:
    """Carries through a copy engine, as long as the link's record says; both ends have a buffer for it."""

    def __init__(self, engine: CopyEngine, ends: tuple[BoundedMemory, BoundedMemory], like: Tensor, what: str) -> None:
        shape, dtype = tuple(like.shape), like.dtype
        (self._source, self._leaves), (self._target, self._arrives) = (
            _in_memory(memory, shape, dtype, what) for memory in ends
        )
        self._engine, self._size = engine, like.numel() * like.element_size()

    def carry(self, value: Tensor) -> tuple[Tensor, float, float]:
        """(the value where it arrived, seconds at which its transfer began and ended)."""
        self._leaves.copy_(value)
        start, end = self._engine.wait(self._engine.submit(self._target, 0, self._source, 0, self._size))
        return self._arrives, start, end


def _in_memory(memory: BoundedMemory, shape: tuple[int, ...], dtype: torch.dtype, what: str) -> tuple[Buffer, Tensor]:
    """(a buffer, the tensor that it holds)."""
    size = torch.Size(shape).numel() * dtype.itemsize
    buffer = memory.alloc(size, what)
    return buffer, torch.frombuffer(memoryview(buffer), dtype=dtype, count=torch.Size(shape).numel()).view(shape)
