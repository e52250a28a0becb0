"""Probes of devices and links in turns, beside a run: what each reads, computes and moves now (rule 7 of measuring)."""

from collections.abc import Iterator, Sequence
from statistics import fmean, median

from helmsman.executor.devices.base import Device
from helmsman.executor.devices.cpu import CpuDevice
from helmsman.executor.devices.opening import Devices
from helmsman.executor.machine import Machine
from helmsman.executor.probe import (
    JOINT_REPEATS,
    PRODUCT_TOKENS,
    JointProducts,
    joint_read_rate,
    probe_pieces,
    product_matrices,
)
from helmsman.lowering.pools import Pools
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.plan import Plan
from helmsman.schemas.trace import Probe


class Prober:
    """Probes devices that are open for a plan, with buffers that it keeps.

    `pieces`: what reads read; `latencies`: by link and run the seconds of a small copy, `latency_s.LINK.RUN`."""

    def __init__(self, plan: Plan, machine: Machine) -> None:
        self._plan = plan
        self.pieces = probe_pieces(machine.cache_bytes)
        self._format = computed_format(plan)
        self._matrices, self._joint = product_matrices(self._format), JointProducts()
        self.latencies: dict[str, str | int | float] = {}

    def probe(self, devices: Devices, run: int, turns: int) -> list[Probe]:
        """Every probe `turns` times, and of each what is usual (`middle`)."""
        return middle([tuple(self._turn(devices, run)) for _ in range(turns)])

    def _turn(self, devices: Devices, run: int) -> Iterator[Probe]:
        """Each probe once, products after reads: reads of both devices after products were 3 % faster than after reads,
        as a profile takes them (286 turns on 2 cores of an AMD EPYC, Zen 5)."""
        for device in devices.by_name.values():
            yield Probe(what="read", name=device.name, run=run, value=device.read_rate(self.pieces))
        sharers = sharing(self._plan, devices)
        together = {memory: [device.pool for device in each] for memory, each in sharers.items()}
        for memory, pools in together.items():
            yield Probe(what="joint", name=memory, run=run, value=joint_read_rate(pools, self.pieces))
        for lane in devices.links:
            sample = lane.sample()
            yield Probe(what="link", name=lane.name, run=run, value=sample.rate)
            self.latencies[f"latency_s.{lane.name}.{run}"] = sample.latency
        yield from (self.product(device, run) for device in devices.by_name.values())
        for memory, pools in together.items():
            yield Probe(what="joint_compute", name=memory, run=run, value=self._joint.kept(pools, JOINT_REPEATS))

    def product(self, device: Device, run: int) -> Probe:
        """FLOP/s of a device, with weights as most of the plan's are."""
        rate = device.product_rate(self._format, self._matrices)
        return Probe(what="compute", name=device.name, run=run, value=rate, format=self._format, tokens=PRODUCT_TOKENS)


def middle(turns: Sequence[Sequence[Probe]]) -> list[Probe]:
    """Of each probe the median of several turns, as one that is held up reads half; of the arithmetic that devices keep
    the mean: two processors are on one core for moments, and a run sees all of these."""

    def usual(same: Sequence[Probe]) -> float:
        values = [probe.value for probe in same]
        return fmean(values) if same[0].what == "joint_compute" else median(values)

    return [same[0].model_copy(update={"value": usual(same)}) for same in zip(*turns, strict=True)]


def sharing(plan: Plan, devices: Devices) -> dict[str, list[CpuDevice]]:
    """The devices that read one physical memory, by memory; none of those that have theirs to themselves."""
    pools, readers = Pools(plan.hardware), dict[str, list[CpuDevice]]()
    for device in devices.by_name.values():
        if isinstance(device, CpuDevice):
            readers.setdefault(pools.of_memory(device.memory.name), []).append(device)
    return {memory: sharers for memory, sharers in readers.items() if len(sharers) > 1}


def computed_format(plan: Plan) -> StoredFormat:
    """The format in which most matrices of a plan are used: its last rule covers what none before it does."""
    return plan.residence[-1].used
