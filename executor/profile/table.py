"""All columns of an operation table, measured one after the other (PARK-46..50), each a point of `profile.quality`: in
a quiet spell if there is one, and again while it was disturbed."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from statistics import fmean
from typing import Any, Protocol, TypeVar

from helmsman.executor._kernels import CopyEngine, Pool
from helmsman.executor.profile.bench import MeasurementBuffers
from helmsman.executor.profile.layer import Layers, Seconds, needed_bytes, stored_bytes
from helmsman.executor.profile.layer_expansion import ExpansionTimes, measure_expansion
from helmsman.executor.profile.layer_reshape import TurnTimes, measure_reshape
from helmsman.executor.profile.layer_storage import StorageTimes, check_storage, measure_storage
from helmsman.executor.profile.layer_times import DeviceTimes, measure_times, sweep
from helmsman.executor.profile.layer_traffic import Column, LayerTraffic
from helmsman.executor.profile.quality import MeasuredPoint, Session, Watch
from helmsman.executor.profile.question import LayerQuestion, MeasuredDevice
from helmsman.executor.profile.samples import UnsettledPoints
from helmsman.executor.profile.table_place import TablePlace
from helmsman.executor.system.interference import cpu_times, others_share
from helmsman.executor.system.machine import Machine
from helmsman.schemas.errors import HardwareUnavailableError
from helmsman.schemas.units import format_bytes

Tell = Callable[[str], None]
STEPS = 8
"""How often `tell` is called: after every part of measuring."""
USABLE = 0.9
"""Share of the free RAM that a profile may use."""


@dataclass(frozen=True)
class TableSamples:
    """The samples measured of `question`.

    `swept`: the host by threads; `transfers`: seconds of every operation's transfer by column; `rates`: by what
    computed meanwhile, bytes/s of the link's large copies; `reshape`: of the keys (PARK-15) by device; `others`: share
    of the CPU time that other processes took; `parts`: seconds of every part of measuring (PARK-50); `left`: what
    stayed disturbed."""

    question: LayerQuestion
    host: DeviceTimes
    swept: dict[int, DeviceTimes]
    accelerator: DeviceTimes
    transfers: Mapping[Column, Seconds]
    rates: dict[str, list[float]]
    reshape: Mapping[str, TurnTimes]
    expansion: ExpansionTimes
    storage: StorageTimes | None
    took_s: float
    others: float | None
    parts: Mapping[str, float]
    left: UnsettledPoints = field(default_factory=UnsettledPoints)

    @property
    def moving_disturbed(self) -> float:
        """The share of the time that others took while transfers were measured: beside both devices."""
        return fmean((self.host.disturbed, self.accelerator.disturbed))


def measure_table(
    place: TablePlace, question: LayerQuestion, tell: Tell = lambda _: None, watch: Watch | None = None
) -> TableSamples:
    """Measure everything; `watch` sees what others do. Raises HardwareUnavailableError when RAM or storage has no room,
    UsageError for folders that cannot be written."""
    check_room(place.machine, question)
    began, before = time.monotonic(), cpu_times()
    parts = _Parts(tell)
    setting = _Setting(place, question)
    parts.done("layers in memory")
    swept: dict[int, DeviceTimes] = {}
    first = Session(watch or Watch(), setting.drop)
    first.take(setting.sweep(swept))
    left = first.finish()
    parts.done("host by threads")
    threads = min(swept, key=lambda count: swept[count].layer_s)
    kept = _PointSamples()
    session = Session(watch or Watch(), setting.drop, first.left)
    for name, points in setting.points(threads, kept):
        session.take(points)
        parts.done(name)
    left = left.plus(session.finish())
    parts.done("disturbed parts again")
    host, accelerator = (kept.times[seat.name] for seat in (place.host, place.accelerator))
    return TableSamples(
        question=question,
        host=host,
        swept=swept,
        accelerator=accelerator,
        transfers=_together(host.moved, accelerator.moved),
        rates={name: times.rates for name, times in kept.times.items()},
        reshape=kept.reshape,
        expansion=kept.expansion[ALL],
        storage=kept.storage.get(ALL),
        took_s=time.monotonic() - began,
        others=others_share(before, cpu_times()),
        parts=parts.seconds,
        left=left,
    )


def _together(one: Mapping[Column, Seconds], other: Mapping[Column, Seconds]) -> dict[Column, Seconds]:
    """The samples of both."""
    return {column: {op: seconds + other[column][op] for op, seconds in one[column].items()} for column in one}


def check_room(machine: Machine, question: LayerQuestion) -> None:
    """Raise HardwareUnavailableError when RAM has no room for copies of the layer, and what `check_storage` does."""
    needed = needed_bytes(question, machine.cache_bytes)
    if needed > USABLE * machine.memory:
        raise HardwareUnavailableError(
            f"copies of the layer take {format_bytes(needed)}, and {format_bytes(machine.memory)} are free",
            field="batch",
            value=question.batch,
            remedy="profile a smaller `batch` or `context`, or free some memory",
        )
    for folder in question.storage:
        check_storage(folder, stored_bytes(question))


class _Parts:
    """Seconds since the part before, told as they end."""

    def __init__(self, tell: Tell) -> None:
        self.seconds: dict[str, float] = {}
        self._tell, self._since = tell, time.monotonic()

    def done(self, name: str) -> None:
        now = time.monotonic()
        self.seconds[name], self._since = now - self._since, now
        self._tell(name)


class _HasDisturbance(Protocol):
    disturbed: float


MeasuredT = TypeVar("MeasuredT", bound=_HasDisturbance)
KeyT = TypeVar("KeyT")
ALL = "all"
"""The name of what is measured once."""


@dataclass(frozen=True)
class _PointSamples:
    """The samples of points, by device or `ALL`."""

    times: dict[str, DeviceTimes] = field(default_factory=dict)
    reshape: dict[str, TurnTimes] = field(default_factory=dict)
    expansion: dict[str, ExpansionTimes] = field(default_factory=dict)
    storage: dict[str, StorageTimes] = field(default_factory=dict)


def _point(
    group: str,
    measure: Callable[[], MeasuredT],
    kept: dict[KeyT, MeasuredT],
    key: KeyT,
    spread: Callable[[MeasuredT], float] = lambda _: 0.0,
) -> MeasuredPoint[MeasuredT]:
    def keep(samples: MeasuredT, share: float) -> None:
        samples.disturbed = share
        kept[key] = samples

    return MeasuredPoint(group, measure, keep, spread)


class _Setting:
    """The copies of a layer, the traffic over the link, and the threads of the devices."""

    def __init__(self, place: TablePlace, question: LayerQuestion) -> None:
        self._place, self._question = place, question
        self._layers = Layers(question, place.machine.cache_bytes)
        self._bench = MeasurementBuffers(place.machine.cache_bytes)
        self._shared = place.accelerator.cpus[-1]
        self._pool = Pool(list(place.accelerator.cpus))
        engine = CopyEngine(place.link.bandwidth.value, place.link.latency.value, self._shared)
        self._traffic = LayerTraffic(self._layers, engine, place.link)

    def drop(self) -> None:
        """Nothing is measured with buffers that others need."""

    def sweep(self, swept: dict[int, DeviceTimes]) -> Iterator[MeasuredPoint[DeviceTimes]]:
        """The host by 1, 2, 4, ... threads, briefly; one count alone needs no comparison."""
        cpus = self._place.host.cpus
        counts = sorted({min(2**power, len(cpus)) for power in range(len(cpus).bit_length() + 1)})
        if len(counts) == 1:
            swept[counts[0]] = DeviceTimes(counts[0], shared=False)
            return
        for threads in counts:
            setting = self._measured(self._host_pool(threads), self._place.host)
            yield _point("host by threads", partial(sweep, *setting), swept, threads)

    def points(self, threads: int, kept: _PointSamples) -> Iterator[tuple[str, list[MeasuredPoint[Any]]]]:
        """The parts of a table, the host on as many threads as was fastest, and the points of each."""
        host, accelerator = self._place.host, self._place.accelerator
        pools = {host.name: self._host_pool(threads), accelerator.name: self._pool}
        for seat, shared, part in ((host, False, "host"), (accelerator, True, "accelerator")):
            name = f"{part} beside the link"
            times = partial(measure_times, *self._measured(pools[seat.name], seat), shared=shared)
            yield name, [_point(name, times, kept.times, seat.name, attrgetter("spread"))]
        name = "turning of keys"
        yield (
            name,
            [
                _point(name, partial(self._reshape, pool), kept.reshape, device, attrgetter("spread"))
                for device, pool in pools.items()
            ],
        )
        name = "expansion of 4-bit groups"
        yield name, [_point(name, self._expansion, kept.expansion, ALL)]
        stored = [_point("storage", self._storage, kept.storage, ALL)] if self._question.storage else []
        yield "storage", stored

    def _reshape(self, pool: Pool) -> TurnTimes:
        """A device turning a cache that is kept in the order of tokens."""
        return measure_reshape(self._layers, pool, self._bench, self._traffic)

    def _expansion(self) -> ExpansionTimes:
        """The accelerator expanding what has arrived."""
        recorded = self._place.read(self._place.accelerator)
        return measure_expansion(self._pool, self._shared, self._question, self._bench, self._traffic, recorded)

    def _storage(self) -> StorageTimes:
        """Reads from storage into the accelerator's memory."""
        return measure_storage(self._question.storage, self._shared, self._layers, self._traffic)

    def _host_pool(self, threads: int) -> Pool:
        return Pool(list(self._place.host.cpus[:threads]))

    def _measured(
        self, pool: Pool, seat: MeasuredDevice
    ) -> tuple[Pool, Layers, MeasurementBuffers, LayerTraffic, float]:
        return pool, self._layers, self._bench, self._traffic, self._place.read(seat)
