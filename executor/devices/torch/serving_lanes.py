"""The lanes of an iteration on a PyTorch device, and the way of rows to the host's attention and back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from helmsman.executor._kernels import Event, Queue, Ragged
from helmsman.executor.devices.iterations import Lanes
from helmsman.executor.devices.parts import Stage, of_kind
from helmsman.executor.devices.torch.buffers import TorchBuffer
from helmsman.executor.devices.torch.compute import ComputeLane
from helmsman.executor.devices.torch.copies import CopyLane
from helmsman.executor.devices.torch.lane import WaitPoint

SENT = ("q", "k", "v")


class TorchLanes(NamedTuple):
    """The lanes of a serving pass, in the order of `iterations.Lanes`: the accelerator's stream, the host's native
    thread, copy streams for caches both ways, and for activations."""

    accelerator: ComputeLane
    host: Queue | None
    to_host: CopyLane | None
    to_device: CopyLane | None
    queries: CopyLane | None
    outputs: CopyLane | None

    @classmethod
    def of(cls, lanes: Lanes) -> "TorchLanes":
        """Return `lanes` as lanes of a PyTorch device, with the host's native queue. Raises TypeError for others."""
        queue, host, *engines = lanes
        to_host, to_device, queries, outputs = (
            None if engine is None else of_kind(engine, CopyLane) for engine in engines
        )
        native = None if host is None else of_kind(host, Queue)
        return cls(of_kind(queue, ComputeLane), native, to_host, to_device, queries, outputs)

    def check(self) -> None:
        """Raise the first error of any lane; none is left behind."""
        errors = []
        for lane in self:
            try:
                if lane is not None:
                    lane.check()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]


@dataclass
class Times:
    """Start and end of what lanes do, by part."""

    spans: list[tuple[str, NDArray[np.float64]]] = field(default_factory=list)

    def of(self, part: str) -> memoryview:
        """f64 (2,), for a lane to fill."""
        self.spans.append((part, np.zeros(2)))
        return self.spans[-1][1].data

    def seconds(self, part: str) -> float:
        """All of a part, once it is done."""
        return sum(float(span[1] - span[0]) for name, span in self.spans if name == part)


@dataclass(frozen=True)
class Crossing:
    """Rows whose attention the host does. `at`: where their q, k and v begin in `buffer` of the accelerator, and where
    what attention gives is to come, in bytes; `rows`: as `host`, their stage, has them in its caches;
    `rank`: among the host's tasks."""

    buffer: TorchBuffer
    at: Mapping[str, int]
    host: Stage
    rows: Ragged
    rank: int | None = None

    def submit(self, lanes: TorchLanes, layer: int, ready: WaitPoint, moved: Sequence[Event], times: Times) -> Event:
        """Send them when they are `ready`, and attend to a layer's blocks that have `moved`; what happens when what
        attention gives is back."""
        assert lanes.host is not None and lanes.queries is not None and lanes.outputs is not None, "a host"
        sent, attended, back = Event(), Event(), Event()
        there = self.host.workspace
        lanes.queries.submit_pieces(there, 0, self.buffer, 0, self._sent(), [ready], sent, times.of("to_host"))
        seconds = times.of("cpu_attention")
        lanes.host.attend_ragged(self.host, self.rows, layer, seconds, [*moved, sent], attended, self.rank)
        result = self._back()
        lanes.outputs.submit_pieces(self.buffer, 0, there, 0, result, [attended], back, times.of("to_device"))
        return back

    def _sent(self) -> NDArray[np.int64]:
        regions = self.host.regions()
        pieces = [(regions[name]["offset"], self.at[name], self._bytes(name)) for name in SENT]
        return np.array(pieces, np.int64)

    def _back(self) -> NDArray[np.int64]:
        offset = self.host.regions()["attended"]["offset"]
        return np.array([(self.at["attended"], offset, self._bytes("attended"))], np.int64)

    def _bytes(self, name: str) -> int:
        return self.rows.rows * self.host.regions()[name]["stride"]
