"""The memories of all accelerators and what is on its way to them, side by side: one column each."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from helmsman.planner.memory.buffers import STOPS
from helmsman.planner.strategies.optimal.configurations.rules import BUFFERS
from helmsman.planner.strategies.optimal.program.ways import Numbers
from helmsman.planner.strategies.streaming.place import Frame

_STREAMED = 2
"""Flows that arrive in an accelerator's memory: weights, keys and values."""


@dataclass(frozen=True)
class JoinedMemories:
    """Those of a frame. `flows`: kinds of what is on its way, to all accelerators."""

    frame: Frame
    flows: int

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The memories in order of columns: the host's first, storage last."""
        away = (device.memory for device in self.frame.roles.accelerators)
        return tuple(dict.fromkeys((self.frame.roles.host.memory, *away, *self._stored)))

    def kept(self, on: int) -> list[int]:
        """The columns of an accelerator's memories."""
        roles = self.frame.roles
        names = dict.fromkeys((roles.host.memory, roles.accelerators[on].memory, *self._stored))
        return [self.names.index(memory) for memory in names]

    def coming(self, on: int) -> slice:
        """The columns of what comes to an accelerator."""
        width = self.flows // len(self.frame.roles.accelerators)
        return slice(on * width, (on + 1) * width)

    @property
    def buffers(self) -> Numbers:
        """Return the bytes of each memory that one byte in flight occupies (flows, memories): in the buffers of an
        accelerator, and in host memory where it stops on its way."""
        result = np.zeros((self.flows, len(self.names)))
        for on, device in enumerate(self.frame.roles.accelerators):
            stream = self.coming(on)
            result[stream.start : stream.start + _STREAMED, self.names.index(device.memory)] = BUFFERS
            result[stream.start + _STREAMED : stream.stop, 0] = STOPS
        return result

    @property
    def _stored(self) -> tuple[str, ...]:
        return self.frame.store.memories if self.frame.store else ()
