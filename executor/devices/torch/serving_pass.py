"""One iteration of serving on a PyTorch device: what csrc/serving/serving.h is for processors, in the same order.

The accelerator's lane walks the layers. What other lanes do for it is submitted as it comes by, behind marks of its
stream, and waited for where it is needed; the stream goes on meanwhile with what it has been handed."""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import torch

from helmsman.executor._kernels import Arena, Event
from helmsman.executor._kernels import Buffer as HostBuffer
from helmsman.executor.devices.iterations import Joining, Lanes, LayerCopies, LookedUpTable, Seconds, SubBatch
from helmsman.executor.devices.memory import view
from helmsman.executor.devices.parts import of_kind
from helmsman.executor.devices.torch.cohort_rows import TorchJoining
from helmsman.executor.devices.torch.copies import CopyLane
from helmsman.executor.devices.torch.lane import WaitPoint
from helmsman.executor.devices.torch.marks import Spans
from helmsman.executor.devices.torch.routed_blocks import RoutedBlocks
from helmsman.executor.devices.torch.serving_lanes import Times, TorchLanes
from helmsman.executor.devices.torch.side import Side

Moves = Literal["swap_out", "swap_in", "fetch", "store"]
"""Of whole requests before anything else of a layer; before and after attention of those that pass through."""


class TorchPass:
    """Begins when it is made; `routed`: blocks whose experts are looked up; `table`: whose rows come to the
    embedding."""

    def __init__(
        self,
        lanes: Lanes,
        layers: int,
        batches: Sequence[SubBatch],
        copies: Mapping[str, LayerCopies],
        joining: Sequence[Joining],
        routed: RoutedBlocks,
        table: LookedUpTable | None,
    ) -> None:
        self._routed, self._table = routed, table
        self._lanes, self._layers, self._copies = TorchLanes.of(lanes), layers, copies
        self._batches = batches
        self._joining = [TorchJoining.of(part) for part in joining]
        self._spans, self._times = Spans(self._lanes.accelerator.device), Times()
        self._stored: list[Event] = []
        self._chosen: list[int] = []
        self._done = Event()
        self._lanes.accelerator.submit_work(self._run, (), self._done)

    def wait(self) -> None:
        """Until it is done, but for what cohorts have under way. Raises what failed."""
        self._done.wait()
        self._lanes.check()

    def chosen(self) -> list[int]:
        """The likeliest tokens, by output, those of sub-batch 0 first."""
        return self._chosen

    @property
    def joined(self) -> list[bool]:
        """Which of the cohorts went on."""
        return [part.joined for part in self._joining]

    def seconds(self) -> Seconds:
        """Of its parts, added up over layers; none for a lane that had nothing to do."""
        spent, times = self._spans.seconds(), self._times
        late = sum(part.host_seconds for part in self._joining if part.joined)
        return {
            "linear": (spent.get("linear.0", 0.0), spent.get("linear.1", 0.0)),
            "ends": spent.get("ends", 0.0),
            "gpu_attention": spent.get("gpu_attention", 0.0),
            "cpu_attention": times.seconds("cpu_attention") + late,
            "to_host": times.seconds("to_host"),
            "to_device": times.seconds("to_device"),
            "swap_out": times.seconds("swap_out") + times.seconds("store"),
            "swap_in": times.seconds("swap_in") + times.seconds("fetch"),
            "weights": times.seconds("weights"),
        }

    def _run(self) -> None:
        """On the accelerator's lane."""
        sides = [
            Side(number, batch, [part for part in self._joining if part.batch == number], self._lanes, self._routed)
            for number, batch in enumerate(self._batches)
        ]
        for come in [self._look_up(side, self._table) for side in sides if self._table is not None]:
            come.wait()
        self._spans.end(None)
        for layer in range(self._layers):
            moved = self._swaps(layer)
            for side in sides:
                self._layer(side, layer, moved)
        for side in sides:
            side.last(self._layers - 1, self._spans)
        self._finish(sides)
        for event in self._stored[-2:]:
            event.wait()

    def _look_up(self, side: Side, table: LookedUpTable) -> Event:
        """Submit the copy of the table's rows for a sub-batch's tokens, and return the event of its end."""
        assert self._lanes.to_device is not None, "a table that lies on a host"
        home, fmt, rows, columns, targets = table
        ids, done = side.embedded(), Event()
        if not len(ids):
            done.signal()
            return done
        tokens = Arena(ids.nbytes).alloc(ids.nbytes, "tokens")
        view(tokens, np.int32)[:] = ids
        place, times = (targets[side.number], 0), self._times.of("weights")
        held = of_kind(home, HostBuffer)
        self._lanes.to_device.submit_lookup(*place, held, fmt, rows, columns, tokens, len(ids), (), done, times)
        return done

    def _layer(self, side: Side, layer: int, moved: list[Event]) -> None:
        side.linear(layer, self._spans)
        if side.number == 0:
            moved = [*moved, *self._stored[-2:][:1]] if len(self._stored) > 1 else moved
        for event in moved:
            event.wait()
        self._spans.end(None)
        ready = side.append(layer, self._spans)
        side.cross(layer, ready, moved, self._times)
        if side.number == 0:
            self._fetch(layer)
        ready = side.attend(layer, self._spans)
        if side.number == 0 and "store" in self._copies:
            self._stored.append(self._copy(self._lanes.to_host, "store", layer, [*moved, ready]))

    def _fetch(self, layer: int) -> None:
        """Fetch the caches of prompts that pass through."""
        if "fetch" in self._copies:
            self._copy(self._lanes.to_device, "fetch", layer, ()).wait()
            self._spans.end(None)

    def _swaps(self, layer: int) -> list[Event]:
        """Caches of whole requests on their way, which everything in this layer waits for."""
        swaps: list[Event] = []
        if self._moves("swap_out", layer):
            swaps.append(self._copy(self._lanes.to_host, "swap_out", layer, ()))
        if self._moves("swap_in", layer):
            swaps.append(self._copy(self._lanes.to_device, "swap_in", layer, tuple(swaps)))
        return swaps

    def _moves(self, what: Moves, layer: int) -> bool:
        """Whether caches of requests move in this layer: in as many as there are caches, which come before they are
        needed."""
        return what in self._copies and layer < self._copies[what][0][2]

    def _copy(self, lane: CopyLane | None, what: Moves, layer: int, wait: Sequence[WaitPoint]) -> Event:
        assert lane is not None, "caches that move need a link both ways"
        (source, stride, layers), (target, target_stride, target_layers), pieces = self._copies[what]
        done, times = Event(), self._times.of(what)
        at, begin = layer % target_layers * target_stride, layer % layers * stride
        lane.submit_pieces(target, at, source, begin, np.asarray(pieces, np.int64), wait, done, times)
        return done

    def _finish(self, sides: list[Side]) -> None:
        """The final norm and the head, of both sub-batches together: the head's weights are read once."""
        hidden = torch.cat([side.outputs() for side in sides])
        if len(hidden):
            self._chosen = sides[0].stage.finish(hidden)
        self._spans.end("ends").wait()
        for joining in self._joining:
            if joining.joined and not joining.stays and joining.at == self._layers - 1:
                joining.cohort.reset()
