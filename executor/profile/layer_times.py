"""The times of the operations of a layer on a device, while the link brings weights and while it rests (PARK-47,
48)."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean, median

from helmsman.executor._kernels import Pool
from helmsman.executor.profile.bench import MeasurementBuffers
from helmsman.executor.profile.layer import Layers, Seconds, StageCopies
from helmsman.executor.profile.layer_traffic import Column, LayerTraffic
from helmsman.hwdb.fit import spread

TIME_LIMIT_S = 4.0
"""Seconds after which no further round begins, when every load was measured too."""
ROUNDS = (4, 24)
"""The least and the most."""
SWEEP_ROUNDS = 3


@dataclass
class DeviceTimes:
    """Seconds of every operation on `threads` threads, and bytes/s of the plain reads in between.

    A sample is the typical copy of one step. `shared`: that is the mean, as a step takes the sum of them and the copy
    engine, on the same core, delays some operations a lot and most of them not at all; else the median, as only
    strangers delay some. `busy`: while the link was moving weights, restated at the device's recorded bandwidth;
    `idle`: as they were; `took_s`: of measuring them; `moved`, `rates`: what the link's transfers took meanwhile, and
    bytes/s of its large copies; `disturbed`: the share of the time that others took."""

    threads: int
    shared: bool
    busy: Seconds = field(default_factory=dict)
    idle: Seconds = field(default_factory=dict)
    reads: list[float] = field(default_factory=list)
    took_s: float = 0.0
    moved: Mapping[Column, Seconds] = field(default_factory=dict)
    rates: list[float] = field(default_factory=list)
    disturbed: float = 0.0

    @property
    def spread(self) -> float:
        """How far the plain reads in between lie apart."""
        return spread(self.reads)

    @property
    def layer_s(self) -> float:
        """Seconds of the layer while the link is busy."""
        return sum(median(times) for times in self.busy.values())

    def typical(self, seconds: list[float]) -> float:
        """Of the copies of one step."""
        return fmean(seconds) if self.shared else median(seconds)


def measure_times(
    pool: Pool, layers: Layers, bench: MeasurementBuffers, traffic: LayerTraffic, recorded: float, shared: bool
) -> DeviceTimes:
    """Rounds of a plain read, a step at rest, a step beside the traffic, and a plain read.

    `recorded`: the plain read of the device's record, bytes/s; `shared`: whether the copy engine is on its cores.
    Goes on until the traffic has brought everything twice."""
    running, device_times = layers.running(pool), DeviceTimes(pool.threads, shared)
    running.run()
    traffic.take()
    began, rounds = time.monotonic(), 0
    while _goes_on(rounds, time.monotonic() - began, traffic.rounds < 2):
        _round(running, layers, bench, traffic, recorded, device_times)
        rounds += 1
    device_times.moved, device_times.rates = traffic.take()
    return device_times


def sweep(pool: Pool, layers: Layers, bench: MeasurementBuffers, traffic: LayerTraffic, recorded: float) -> DeviceTimes:
    """A few rounds, to compare numbers of threads; each costs `took_s` (PARK-73)."""
    began = time.monotonic()
    running, device_times = layers.running(pool), DeviceTimes(pool.threads, shared=False)
    running.run()
    for _ in range(SWEEP_ROUNDS):
        _round(running, layers, bench, traffic, recorded, device_times)
    device_times.took_s = time.monotonic() - began
    return device_times


def _goes_on(rounds: int, seconds: float, incomplete: bool) -> bool:
    least, most = ROUNDS
    return rounds < least or incomplete or (rounds < most and seconds < TIME_LIMIT_S)


def _round(
    running: StageCopies,
    layers: Layers,
    bench: MeasurementBuffers,
    traffic: LayerTraffic,
    recorded: float,
    device_times: DeviceTimes,
) -> None:
    before = bench.read(running.pool)
    idle = running.run()
    with traffic.flowing():
        busy = running.run()
    read = (before + bench.read(running.pool)) / 2
    device_times.reads.append(read)
    for op in layers.question.operations:
        alone = device_times.typical(idle[op.name])
        device_times.idle.setdefault(op.name, []).append(alone)
        at_record = restated(op.memory_bytes, alone, read, recorded)
        device_times.busy.setdefault(op.name, []).append(device_times.typical(busy[op.name]) * at_record)


def restated(size: int, alone: float, read: float, recorded: float) -> float:
    """Return the factor for seconds that were measured when plain reads reached `read` bytes/s, not `recorded` ones.

    Only the part that streams changes: of the seconds `alone` of an operation beside nothing else, those that a plain
    read of its `size` bytes takes. So tables and rooflines of a record speak of the same memory."""
    streaming = min(1.0, size / read / alone)
    return 1.0 + streaming * (read / recorded - 1.0)
