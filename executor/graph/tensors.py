"""Devices that keep torch tensors: memory with a limit, threads, and links that activations cross."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from helmsman.executor._kernels import Event
from helmsman.executor.devices.base import DeviceMemory, ExecutorDevice
from helmsman.executor.devices.parts import Buffer, CopyEngine
from helmsman.executor.devices.torch.buffers import TorchMemory, bytes_of


class DeviceTensors:
    """Tensors in the memory of a device: of processors, or of one that PyTorch drives."""

    def __init__(self, device: ExecutorDevice) -> None:
        self.name = device.name
        self.device = _place(device.memory)
        self._memory = device.memory
        self._threads = len(device.cpus)

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype, what: str) -> Tensor:
        """A zeroed tensor in its memory. Raises InfeasibleError when it does not fit."""
        return _in_memory(self._memory, shape, dtype, what)[1]

    @contextmanager
    def computing(self) -> Iterator[None]:
        """As many threads as the device has processors."""
        before = torch.get_num_threads()
        torch.set_num_threads(self._threads or before)
        try:
            yield
        finally:
            torch.set_num_threads(before)


class LinkCrossing:
    """Carries through a lane of a link, as long as that takes; both ends have a buffer for it."""

    def __init__(self, engine: CopyEngine, ends: tuple[DeviceMemory, DeviceMemory], like: Tensor, what: str) -> None:
        shape, dtype = tuple(like.shape), like.dtype
        (self._source, self._leaves), (self._target, self._arrives) = (
            _in_memory(memory, shape, dtype, what) for memory in ends
        )
        self._engine, self._size = engine, like.numel() * like.element_size()
        self._done, self._times = Event(), np.zeros(2)

    def carry(self, value: Tensor) -> tuple[Tensor, float, float]:
        """(the value where it arrived, seconds at which its transfer began and ended)."""
        self._leaves.copy_(value)
        self._done.clear()
        self._engine.submit(self._target, 0, self._source, 0, self._size, (), self._done, self._times.data)
        self._done.wait()
        return self._arrives, float(self._times[0]), float(self._times[1])


def _place(memory: DeviceMemory) -> torch.device:
    return memory.device if isinstance(memory, TorchMemory) else torch.device("cpu")


def _in_memory(memory: DeviceMemory, shape: tuple[int, ...], dtype: torch.dtype, what: str) -> tuple[Buffer, Tensor]:
    """(a buffer, the tensor that it holds)."""
    buffer = memory.alloc(torch.Size(shape).numel() * dtype.itemsize, what)
    return buffer, bytes_of(buffer).view(dtype).view(shape)
