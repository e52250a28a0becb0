"""Probes of devices and links in turns, beside a run: what each reads, computes and moves now."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from statistics import fmean, median

from helmsman.executor._kernels import Buffer
from helmsman.executor.devices.base import ExecutorDevice
from helmsman.executor.devices.cpu import CpuDevice
from helmsman.executor.devices.opening import Devices
from helmsman.executor.devices.probe import (
    JOINT_REPEATS,
    PRODUCT_TOKENS,
    JointProductProbe,
    cut,
    dealt,
    joint_read_rate,
    panel_bytes,
    probe_pieces,
    product_matrices,
    weights_rate,
)
from helmsman.executor.passes.phase_pass import passes_of
from helmsman.executor.system.machine import Machine, beyond_caches
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.plan import Plan
from helmsman.schemas.trace import Probe
from helmsman.timing.pools import Pools


class Prober:
    """Probes devices that are open for a plan, with buffers that it keeps.

    Reads are of the device's own matrices where those of all devices are beyond the caches, else of noise: pages of a
    virtual machine lie near and far, and one region of 256 MiB is read at 11.0 GB/s for good where another is at 13.5
    (2 cores of an Intel Xeon). Processors multiply them with one token, as weights in the plan's format.

    `latencies`: by link and run the seconds of a small copy, `latency_s.LINK.RUN`."""

    def __init__(self, plan: Plan, machine: Machine) -> None:
        self._plan, self._cache_bytes = plan, machine.cache_bytes
        self._format = computed_format(plan)
        self._matrices, self._joint = product_matrices(self._format), JointProductProbe()
        self.latencies: dict[str, str | int | float] = {}

    def probe(self, devices: Devices, run: int, turns: int) -> list[Probe]:
        """Every probe `turns` times, and of each what is usual (`middle`)."""
        pieces = self.pieces(devices)
        return middle([tuple(self._turn(devices, run, pieces)) for _ in range(turns)])

    def pieces(self, devices: Devices) -> dict[str, list[Buffer]]:
        """Return the pieces that reads of each device read, by its name."""
        native = {device.name: device.memory for device in devices.by_name.values() if isinstance(device, CpuDevice)}
        held = {memory.name: sum(buffer.size for buffer in memory.matrices) for memory in native.values()}
        most = beyond_caches(self._cache_bytes)
        if sum(held.values()) < most:
            return dict.fromkeys(devices.by_name, self.noise)
        own = {name: weight_pieces(memory.matrices, self._format, most) for name, memory in native.items()}
        return {name: own.get(name) or self.noise for name in devices.by_name}

    @cached_property
    def noise(self) -> list[Buffer]:
        """Pieces beyond the caches, which hold nothing."""
        return probe_pieces(self._cache_bytes)

    def _turn(self, devices: Devices, run: int, pieces: Mapping[str, list[Buffer]]) -> Iterator[Probe]:
        """Each probe once, products after reads: reads of both devices after products were 3 % faster than after reads,
        as a profile takes them (286 turns on 2 cores of an AMD EPYC, Zen 5)."""
        for device in devices.by_name.values():
            yield self._read(device, run, pieces[device.name])
        sharers = sharing(self._plan, devices)
        together = {memory: [device.pool for device in sharer] for memory, sharer in sharers.items()}
        for memory, pools in together.items():
            own = [pieces[sharer.name][place :: len(pools)] for place, sharer in enumerate(sharers[memory])]
            if not all(own):  # fewer matrices than devices
                own = [self.noise[place :: len(pools)] for place in range(len(pools))]
            yield Probe(what="joint", name=memory, run=run, value=joint_read_rate(pools, dealt(own)))
        for lane in devices.links:
            sample = lane.sample()
            yield Probe(what="link", name=lane.name, run=run, value=sample.rate)
            self.latencies[f"latency_s.{lane.name}.{run}"] = sample.latency
        yield from (self.product(device, run) for device in devices.by_name.values())
        for memory, pools in together.items():
            yield Probe(what="joint_compute", name=memory, run=run, value=self._joint.kept(pools, JOINT_REPEATS))

    def _read(self, device: ExecutorDevice, run: int, pieces: Sequence[Buffer]) -> Probe:
        """Measure the bytes/s at which a device reads: a native device multiplies weights in the plan's format with one
        token, any other device reads plainly."""
        if not isinstance(device, CpuDevice):
            return Probe(what="read", name=device.name, run=run, value=device.read_rate(pieces))
        rate, mean = weights_rate(device.pool, self._format, pieces), round(fmean(piece.size for piece in pieces))
        return Probe(
            what="read", name=device.name, run=run, value=rate, format=self._format, tokens=1, matrix_bytes=mean
        )

    def product(self, device: ExecutorDevice, run: int) -> Probe:
        """FLOP/s of a device, with weights as most of the plan's are."""
        rounding = self._plan.hardware.device(device.name).rounds.of(self._format)
        rate = device.product_rate(self._format, self._matrices, rounding)
        return Probe(what="compute", name=device.name, run=run, value=rate, format=self._format, tokens=PRODUCT_TOKENS)


def weight_pieces(matrices: Sequence[Buffer], fmt: StoredFormat, most: int) -> list[Buffer]:
    """Return the pieces of `matrices` that a read probe multiplies: READ_PIECE bytes each at most, about `most` bytes
    together, none smaller than a panel of rows in `fmt`."""
    return [piece for piece in cut(matrices, most) if piece.size >= panel_bytes(fmt)]


def middle(turns: Sequence[Sequence[Probe]]) -> list[Probe]:
    """Return of each probe the median of several turns, as one that is held up reads half; of arithmetic, and of what
    devices keep of it, the mean: two processors are on one core for moments, and units compute at two rates by turns. A
    run sees all of these."""

    def usual(same: Sequence[Probe]) -> float:
        values = [probe.value for probe in same]
        return fmean(values) if same[0].what in ("compute", "joint_compute") else median(values)

    return [same[0].model_copy(update={"value": usual(same)}) for same in zip(*turns, strict=True)]


def sharing(plan: Plan, devices: Devices) -> dict[str, list[CpuDevice]]:
    """The devices that read one physical memory, by memory; none of those that have theirs to themselves."""
    pools, readers = Pools(plan.hardware), dict[str, list[CpuDevice]]()
    for device in devices.by_name.values():
        if isinstance(device, CpuDevice):
            readers.setdefault(pools.of_memory(device.memory.name), []).append(device)
    return {memory: sharers for memory, sharers in readers.items() if len(sharers) > 1}


def computed_format(plan: Plan) -> StoredFormat:
    """Return the format in which the products of a decode step read most bytes: a head of 8-bit codes can outweigh the
    4-bit experts that a token chooses."""
    read: Counter[StoredFormat] = Counter()
    _, step = passes_of(plan)
    for task in step.tasks:
        if task.kind in ("linear", "experts"):
            read[task.format] += task.bytes
    return read.most_common(1)[0][0]
