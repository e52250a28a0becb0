"""States that rejected drafts have changed: put back to what they were behind the last token that was taken."""

from collections.abc import Mapping

import numpy as np
from typing_extensions import Buffer as SupportsBuffer

from helmsman.executor.cache.kv import Caches
from helmsman.executor.devices.base import ExecutorDevice
from helmsman.executor.devices.opening import Devices
from helmsman.executor.devices.parts import Buffer, Queue


class RejectedStates:
    """The states of a plan whose decode steps verify `drafts` tokens: behind each but the last token of a step the
    stages leave a snapshot beside the state itself, sequences by sequences."""

    def __init__(self, caches: Caches, devices: Devices, queues: Mapping[str, Queue], drafts: int) -> None:
        self._sets = 1 + drafts
        self._by_device: list[tuple[ExecutorDevice, Queue, list[Buffer]]] = []
        for memory in dict.fromkeys(key[0] for key in caches.states):
            device = next(d for name, d in devices.by_name.items() if d.memory.name == memory and name in queues)
            buffers = [buffer for key, buffer in caches.states.items() if key[0] == memory]
            self._by_device.append((device, queues[device.name], buffers))

    def take_back(self, taken: int) -> None:
        """Go on behind the first `taken` tokens of the latest step, 1 or more and not all of them."""
        for device, queue, buffers in self._by_device:
            device.copy_pieces(queue, [(buffer, self._pieces(buffer, taken)) for buffer in buffers])
            queue.synchronize()

    def _pieces(self, buffer: Buffer, taken: int) -> SupportsBuffer:
        size = buffer.size // self._sets
        return np.array([(0, taken * size, size)], np.int64).data
