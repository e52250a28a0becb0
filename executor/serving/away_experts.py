"""Experts that the host computes while an accelerator serves requests.

The router's message of a pass's rows goes over the link, the host's stage computes what it names, and the sum comes
back to where the accelerator's `combine` adds it. All this has a queue and lanes of its own: on those of attention and
caches it could stand behind what waits for it."""

from collections.abc import Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from helmsman.executor._kernels import Event
from helmsman.executor.devices.base import ExecutorDevice
from helmsman.executor.devices.parts import Buffer, CopyEngine, Queue, Stage
from helmsman.executor.devices.specs import RaggedSpec
from helmsman.executor.stages.expert_operations import MESSAGE, SUM
from helmsman.executor.stages.router_values import region_of
from helmsman.lowering.bodies.experts import EXPERT_PRODUCTS


class LinkEngines(NamedTuple):
    """The engines of the link's lanes for experts: to the host, and from there."""

    out: CopyEngine
    back: CopyEngine


class CrossedSeconds(NamedTuple):
    """Seconds for which messages were on their way to the host, and sums on their way back, in a pass."""

    to_host: float
    to_device: float


@dataclass
class AwayExperts:
    """The host's part of routed experts. `layers`: the blocks of which it computes some; `stage`: its own, of these
    alone; `stages`: those of the sub-batches, on the accelerator; `joined`: signalled when a sum has come back."""

    layers: frozenset[int]
    stage: Stage
    queue: Queue
    engines: LinkEngines
    stages: Sequence[Stage]
    joined: Event = field(default_factory=Event)
    _times: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = field(default_factory=list)

    @classmethod
    def seated(
        cls,
        host: ExecutorDevice,
        spec: RaggedSpec,
        layers: Set[int],
        engines: LinkEngines,
        stages: Sequence[Stage],
    ) -> Self:
        """Return the part of a host, whose stage has the operations of `spec`."""
        work = host.memory.alloc(host.workspace_size(spec), "activations of experts")
        return cls(frozenset(layers), host.stage(spec, work, min(layers)), host.open_queue(), engines, stages)

    def begin(self) -> None:
        """A pass begins."""
        self._times.clear()

    def send(self, layer: int, batch: int, rows: int) -> None:
        """Have the host compute what the message of a sub-batch's rows names; `joined` will say when it is back."""
        here, there = self.stages[batch], self.stage
        come, computed, times = Event(), Event(), (np.zeros(2), np.zeros(2))
        self.joined.clear()
        self._times.append(times)
        self.engines.out.submit(*_ends(there, here, MESSAGE, layer, rows), (), come, times[0].data)
        experts = there.ops.index(f"{layer}.{EXPERT_PRODUCTS[-1]}")  # which does the other products, too
        stamps = np.zeros(2)
        self.queue.run(there, None, None, rows, 0, stamps.data, experts, experts + 1, 0, None, (come,), computed)
        self.engines.back.submit(*_ends(here, there, SUM, layer, rows), (computed,), self.joined, times[1].data)

    def end(self) -> CrossedSeconds:
        """A pass is done: return what crossing took. Raises what the host raised."""
        self.queue.check()
        out, back = (sum(float(times[way][1] - times[way][0]) for times in self._times) for way in (0, 1))
        return CrossedSeconds(out, back)

    def reset(self) -> None:
        """Be ready for a pass, whatever has happened."""
        with suppress(Exception):  # what failed is why this is called
            self.queue.synchronize()


def _ends(target: Stage, source: Stage, name: str, layer: int, rows: int) -> tuple[Buffer, int, Buffer, int, int]:
    """Return target, its offset, source, its offset and bytes of a value of some rows."""
    to, of = region_of(target, name, layer), region_of(source, name, layer)
    assert to is not None and of is not None, "stages whose experts are computed elsewhere"
    assert to["stride"] == of["stride"], "stages of the same rows"
    return target.workspace, to["offset"], source.workspace, of["offset"], rows * of["stride"]
