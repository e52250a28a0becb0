"""The whole profile: every processor, the link, and what it joins while it is busy."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from helmsman.executor._kernels import CopyEngine, Pool
from helmsman.executor.interference import cpu_times, others_share
from helmsman.executor.machine import Machine
from helmsman.executor.profile import processor
from helmsman.executor.profile.between_passes import measure_between_passes
from helmsman.executor.profile.copies import Traffic, measure_link
from helmsman.executor.profile.cuda import measure_cuda, present
from helmsman.executor.profile.handovers import measure_handovers
from helmsman.executor.profile.host import host_facts
from helmsman.executor.profile.inplace import measure_stage
from helmsman.executor.profile.joint import Pair, measure_joint
from helmsman.executor.profile.processor import Bench, measure, measure_reads
from helmsman.executor.profile.record import record
from helmsman.executor.profile.requests import measure_requests
from helmsman.executor.profile.samples import (
    BusySamples,
    HandoverSamples,
    JointSamples,
    LinkSamples,
    ProcessorProfile,
    ProcessorSamples,
    Profile,
)
from helmsman.executor.profile.settings import Loopback
from helmsman.schemas.errors import HardwareUnavailableError
from helmsman.schemas.hardware import Hardware

TOOL = "helm-profile"
BUSY_PAIRS = 5
"""Fewer than elsewhere: what a busy link costs is the difference between two figures, not a figure of its own."""

Tell = Callable[[str], None]


@dataclass
class _Subject:
    """A processor being measured."""

    name: str
    kind: str
    pool: Pool
    excludes: tuple[str, ...] = ()
    samples: ProcessorSamples = field(default_factory=ProcessorSamples)


def profile(machine: Machine, loopback: Loopback | None, date: str, tell: Tell = lambda _: None) -> Hardware:
    """Measure this machine; `date` goes into the record, `tell` hears of every step.

    Raises HardwareUnavailableError when the loopback would leave no core, or no memory, to the host."""
    _check(machine, loopback)
    before = cpu_times()
    bench = Bench(machine.cache_bytes)
    reads = _reads(machine, bench)
    tell("reads by threads")
    engines = _engines(machine, loopback)
    subjects = _subjects(machine, loopback)
    busy = _measure_processors(subjects, bench, engines, loopback, tell)
    joint = _joint(subjects, bench, engines, loopback, tell)
    handovers = _handovers(subjects, machine, engines, loopback, tell)
    found = Profile(
        host=host_facts(machine),
        free_memory=machine.memory,
        date=date,
        tool=TOOL,
        processors=tuple(_in_a_stage(subject, bench, tell) for subject in subjects),
        reads=reads,
        loopback=loopback,
        links={name: _link(name, engine, tell) for name, engine in engines.items()},
        busy=busy,
        joint=joint,
        handovers=handovers,
        cuda=measure_cuda() if present() else None,
        others=others_share(before, cpu_times()),
    )
    made = record(found)
    passes = measure_between_passes(made, machine)
    tell("between passes")
    return record(replace(found, between_passes=passes))


def steps(loopback: Loopback | None) -> int:
    """How often `tell` will be called."""
    each = processor.steps()
    return 1 + 3 * (each + 1) + 2 * each + 2 + 3 + 1 if loopback else 1 + each + 1 + 1


def _reads(machine: Machine, bench: Bench) -> dict[int, ProcessorSamples]:
    """Plain reads by 1, 2, 4, ... threads; all CPUs together are one of the processors."""
    found: dict[int, ProcessorSamples] = {}
    threads = 1
    while threads < len(machine.cpus):
        found[threads] = ProcessorSamples()
        measure_reads(Pool(machine.cpus[:threads]), bench, found[threads], processor.PAIRS)
        threads *= 2
    return found


def _engines(machine: Machine, loopback: Loopback | None) -> dict[str, CopyEngine]:
    if loopback is None:
        return {}
    return {name: CopyEngine(loopback.link, loopback.latency, machine.cpus[-1]) for name in ("h2d", "d2h")}


def _measure_processors(
    subjects: list[_Subject],
    bench: Bench,
    engines: dict[str, CopyEngine],
    loopback: Loopback | None,
    tell: Tell,
) -> BusySamples | None:
    """All processors, and the two at the ends of the link again while it is busy, side by side: step by step, so
    that a step's matrices serve them all and are then dropped."""
    running = [_told(s.name, measure(s.pool, bench, s.samples, processor.PAIRS), tell) for s in subjects]
    busy = None
    if loopback is not None:
        busy, traffic = BusySamples(), Traffic(engines["h2d"], loopback.link)
        busy.link = traffic.rates
        for subject, samples in ((subjects[0], busy.host), (subjects[-1], busy.accelerator)):
            again = measure(subject.pool, bench, samples, BUSY_PAIRS)
            running.append(_told(f"{subject.name} while the link is busy", _beside(traffic, again), tell))
    for _ in zip(*running, strict=True):
        bench.drop()
    return busy


def _joint(
    subjects: list[_Subject], bench: Bench, engines: dict[str, CopyEngine], loopback: Loopback | None, tell: Tell
) -> JointSamples | None:
    """Host and accelerator at once, the link to the accelerator idle and busy."""
    if loopback is None:
        return None
    found, ends = JointSamples(), (subjects[0], subjects[-1])
    pair = Pair((ends[0].name, ends[1].name), (ends[0].pool, ends[1].pool))
    measure_joint(pair, bench, "idle", found)
    tell("both devices at once")
    with Traffic(engines["h2d"], loopback.link).flowing():
        measure_joint(pair, bench, "busy", found)
    tell("both devices at once while the link is busy")
    bench.drop()
    return found


def _handovers(
    subjects: list[_Subject], machine: Machine, engines: dict[str, CopyEngine], loopback: Loopback | None, tell: Tell
) -> HandoverSamples | None:
    if loopback is None:
        return None
    seats = (machine.cpus[: -loopback.cores], machine.cpus[-loopback.cores :])
    ends = [
        (subject.name, subject.pool, cpus[0] if len(cpus) == 1 else -1)
        for subject, cpus in zip((subjects[0], subjects[-1]), seats, strict=True)
    ]
    found = measure_handovers(ends, engines, loopback)
    tell("hand-overs")
    return found


def _beside(traffic: Traffic, measuring: Iterator[str]) -> Iterator[str]:
    """Every step of `measuring` while the traffic flows."""
    for _ in range(processor.steps()):
        with traffic.flowing():
            done = next(measuring)
        yield done


def _told(name: str, measuring: Iterator[str], tell: Tell) -> Iterator[str]:
    for done in measuring:
        tell(f"{name}: {done}")
        yield done


def _check(machine: Machine, loopback: Loopback | None) -> None:
    if loopback is None:
        return
    if loopback.cores >= len(machine.cpus):
        raise HardwareUnavailableError(
            f"this machine has {len(machine.cpus)} usable CPUs, and the host needs one",
            field="--loopback cores",
            value=loopback.cores,
            remedy=f"use at most {len(machine.cpus) - 1}",
        )
    if loopback.vram > machine.memory // 2:
        raise HardwareUnavailableError(
            f"half of the free memory is {machine.memory // 2} bytes", field="--loopback vram", value=loopback.vram
        )


def _subjects(machine: Machine, loopback: Loopback | None) -> list[_Subject]:
    """Every processor to measure, the host of splits first."""
    everything = Pool(machine.cpus)
    if loopback is None:
        return [_Subject("cpu", "cpu", everything)]
    return [
        _Subject("cpu", "cpu", Pool(machine.cpus[: -loopback.cores])),
        _Subject("cpu-all", "cpu", everything, ("cpu", "loopback")),
        _Subject("loopback", "loopback", Pool(machine.cpus[-loopback.cores :])),
    ]


def _in_a_stage(subject: _Subject, bench: Bench, tell: Tell) -> ProcessorProfile:
    inplace = measure_stage(subject.pool)
    inplace.requests = measure_requests(subject.pool, bench.read)
    tell(f"{subject.name}: in a running stage")
    return ProcessorProfile(
        subject.name, subject.kind, subject.pool.threads, subject.excludes, subject.samples, inplace
    )


def _link(name: str, engine: CopyEngine, tell: Tell) -> LinkSamples:
    samples = measure_link(engine)
    tell(f"link {name}")
    return samples
