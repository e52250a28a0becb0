"""All columns of an operation table, measured one after the other (PARK-46..50)."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from helmsman.executor._kernels import CopyEngine, Pool
from helmsman.executor.interference import cpu_times, others_share
from helmsman.executor.machine import Machine
from helmsman.executor.profile.layer import Layers, Seconds, needed_bytes, stored_bytes
from helmsman.executor.profile.layer_expansion import ExpansionTimes, measure_expansion
from helmsman.executor.profile.layer_reshape import TurnTimes, measure_reshape
from helmsman.executor.profile.layer_storage import StorageTimes, check_storage, measure_storage
from helmsman.executor.profile.layer_times import DeviceTimes, measure_times, sweep
from helmsman.executor.profile.layer_traffic import Column, LayerTraffic
from helmsman.executor.profile.processor import Bench
from helmsman.executor.profile.question import Question, Seat
from helmsman.executor.profile.table_place import TablePlace
from helmsman.schemas.errors import HardwareUnavailableError
from helmsman.schemas.units import format_bytes

Tell = Callable[[str], None]
STEPS = 7
"""How often `tell` is called: after every part of measuring."""
USABLE = 0.9
"""Share of the free RAM that a profile may use."""


@dataclass(frozen=True)
class TableSamples:
    """What was measured of `question`.

    `swept`: the host by threads; `transfers`: seconds of every operation's transfer by column; `rates`: by what
    computed meanwhile, bytes/s of the link's large copies; `reshape`: of the keys (PARK-15) by device; `others`: share
    of the CPU time that other processes took; `parts`: seconds of every part of measuring (PARK-50)."""

    question: Question
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


def measure_table(place: TablePlace, question: Question, tell: Tell = lambda _: None) -> TableSamples:
    """Measure everything. Raises HardwareUnavailableError when RAM or storage has no room, UsageError for folders
    that cannot be written."""
    check_room(place.machine, question)
    began, before = time.monotonic(), cpu_times()
    parts = _Parts(tell)
    setting = _Setting(place, question)
    parts.done("layers in memory")
    swept = setting.sweep()
    parts.done("host by threads")
    host = setting.host(min(swept, key=lambda threads: swept[threads].layer_s))
    transfers = {column: dict(found) for column, found in setting.traffic.seconds.items()}
    rates = {place.host.name: setting.traffic.take_rates()}
    parts.done("host beside the link")
    accelerator = setting.accelerator()
    rates[place.accelerator.name] = setting.traffic.take_rates()
    parts.done("accelerator beside the link")
    reshape = setting.reshape(host.threads)
    parts.done("turning of keys")
    expansion = setting.expansion()
    parts.done("expansion of 4-bit groups")
    storage = setting.storage()
    parts.done("storage")
    return TableSamples(
        question=question,
        host=host,
        swept=swept,
        accelerator=accelerator,
        transfers=transfers,
        rates=rates,
        reshape=reshape,
        expansion=expansion,
        storage=storage,
        took_s=time.monotonic() - began,
        others=others_share(before, cpu_times()),
        parts=parts.seconds,
    )


def check_room(machine: Machine, question: Question) -> None:
    """Raise HardwareUnavailableError when RAM has no room for copies of the layer, and what `check_storage` does."""
    needed = needed_bytes(question, machine.cache_bytes)
    if needed > USABLE * machine.memory:
        raise HardwareUnavailableError(
            f"copies of the layer take {format_bytes(needed)}, and {format_bytes(machine.memory)} are free",
            field="--batch",
            value=question.batch,
            remedy="profile a smaller --batch or --context, or free some memory",
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


class _Setting:
    """The copies of a layer, the traffic over the link, and the threads of the devices."""

    def __init__(self, place: TablePlace, question: Question) -> None:
        self._place, self._question = place, question
        self._layers = Layers(question, place.machine.cache_bytes)
        self._bench = Bench(place.machine.cache_bytes)
        self._shared = place.accelerator.cpus[-1]
        self._pool = Pool(list(place.accelerator.cpus))
        engine = CopyEngine(place.link.bandwidth.value, place.link.latency.value, self._shared)
        self.traffic = LayerTraffic(self._layers, engine, place.link)

    def sweep(self) -> dict[int, DeviceTimes]:
        """The host by 1, 2, 4, ... threads, briefly; one count alone needs no comparison."""
        cpus = self._place.host.cpus
        counts = sorted({min(2**power, len(cpus)) for power in range(len(cpus).bit_length() + 1)})
        if len(counts) == 1:
            return {counts[0]: DeviceTimes(counts[0], shared=False)}
        return {threads: sweep(*self._measured(self._host_pool(threads), self._place.host)) for threads in counts}

    def host(self, threads: int) -> DeviceTimes:
        """The host on as many threads as was fastest."""
        return measure_times(*self._measured(self._host_pool(threads), self._place.host), shared=False)

    def reshape(self, threads: int) -> dict[str, TurnTimes]:
        """Each device turning a cache that is kept in the order of tokens."""
        pools = {self._place.host.name: self._host_pool(threads), self._place.accelerator.name: self._pool}
        return {name: measure_reshape(self._layers, pool, self._bench, self.traffic) for name, pool in pools.items()}

    def accelerator(self) -> DeviceTimes:
        """The accelerator, whose core the copy engine shares."""
        return measure_times(*self._measured(self._pool, self._place.accelerator), shared=True)

    def expansion(self) -> ExpansionTimes:
        """The accelerator expanding what has arrived."""
        recorded = self._place.read(self._place.accelerator)
        return measure_expansion(self._pool, self._shared, self._question, self._bench, self.traffic, recorded)

    def storage(self) -> StorageTimes | None:
        """Reads from storage into the accelerator's memory."""
        if not self._question.storage:
            return None
        return measure_storage(self._question.storage, self._shared, self._layers, self.traffic)

    def _host_pool(self, threads: int) -> Pool:
        return Pool(list(self._place.host.cpus[:threads]))

    def _measured(self, pool: Pool, seat: Seat) -> tuple[Pool, Layers, Bench, LayerTraffic, float]:
        return pool, self._layers, self._bench, self.traffic, self._place.read(seat)
