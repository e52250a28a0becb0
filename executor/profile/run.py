"""The whole profile: every processor, the link, and what it joins while it is busy."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle
from pathlib import Path

from helmsman.executor._kernels import CopyEngine, Pool
from helmsman.executor.measuring.host_facts import host_facts
from helmsman.executor.profile import processor
from helmsman.executor.profile.bench import MeasurementBuffers
from helmsman.executor.profile.copies import Traffic
from helmsman.executor.profile.disturbance import marked
from helmsman.executor.profile.points import (
    Subject,
    cuda_point,
    disk_point,
    handover_point,
    joint_point,
    link_point,
    passes_point,
    prompt_attention_point,
    stage_point,
)
from helmsman.executor.profile.processor import measure, read_point
from helmsman.executor.profile.prompts import Step
from helmsman.executor.profile.quality import BUDGET_S, MeasuredPoint, SamplesT, Session, Watch
from helmsman.executor.profile.record import record
from helmsman.executor.profile.samples import (
    BetweenPassesSamples,
    BusySamples,
    CudaSamples,
    DiskSamples,
    HandoverSamples,
    JointSamples,
    LinkSamples,
    ProcessorSamples,
    Profile,
)
from helmsman.executor.profile.settings import Loopback
from helmsman.executor.profile.spread_samples import SpreadSamples
from helmsman.executor.system.interference import cpu_times, others_share
from helmsman.executor.system.machine import Machine, beyond_caches
from helmsman.schemas.errors import HardwareUnavailableError
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.units import format_bytes

TOOL = "helm-profile"
BUSY_PAIRS = 5
"""Fewer than elsewhere: what a busy link costs is the difference between two figures, not a figure of its own."""
BUSY_FORMATS: tuple[StoredFormat, ...] = ("bf16", "q8_0")
"""Fewer, too: one figure, the median of all products, says what the busy link costs the host."""
MIN_REGIONS = 2
"""The number of regions beyond the caches without which no profile is begun."""
MIN_BYTES = 768 << 20
"""The bytes beside these regions without which no profile is begun: one took 1.5 GiB in all beside a cache of 32 MiB,
and 2 GB beside one of 480 MiB. More is refused where it is asked for (`arena_beside`)."""
MIN_CPUS = 8
"""Of which one is left to whoever drives a GPU; of fewer the host's operations would miss it."""
PASSES_S = 6.0
"""Seconds of the budget that are kept for the time between passes, which needs a record of all else."""

Tell = Callable[[str], None]


def profile(
    machine: Machine,
    loopback: Loopback | None,
    date: str,
    tell: Tell = lambda _: None,
    watch: Watch | None = None,
    folders: Sequence[Path] = (),
) -> Hardware:
    """Measure this machine; `date` goes into the record, `tell` hears of every step, `watch` sees what others do;
    `folders`: whose disks are read at random places.

    Every point is measured in a quiet spell if there is one, and again while it was disturbed and 90 s last; figures
    that stayed disturbed have a wider spread and say so.

    Raises HardwareUnavailableError when measuring has no room in memory, or the loopback would leave no core, or no
    memory, to the host."""
    _check(machine, loopback)
    watch = watch or Watch()
    before = cpu_times()
    bench = MeasurementBuffers(machine.cache_bytes)
    subjects = _subjects(machine, loopback)
    together = _together(subjects, bench, watch)
    session = Session(watch, bench.drop, BUDGET_S - PASSES_S, _in_turn(together))
    reads = _reads(machine, bench, session)
    tell("reads by threads")
    engines = _engines(machine, loopback)
    busy = _measure_processors(subjects, bench, engines, loopback, session, tell)
    joint: list[JointSamples] = []
    handovers: list[HandoverSamples] = []
    if loopback is not None:
        session.take([joint_point(subjects, bench, engines["h2d"], loopback, joint)])
        tell("both devices at once")
        session.take([handover_point(subjects, machine, engines, loopback, handovers)])
        tell("hand-overs")
    for subject in subjects:
        session.take([stage_point(subject, bench), prompt_attention_point(subject)])
        tell(f"{subject.name}: in a running stage")
    links = {name: LinkSamples() for name in engines}
    for name, engine in engines.items():
        session.take([link_point(links, name, engine)])
        tell(f"link {name}")
    cuda: list[CudaSamples] = []
    if machine.accelerators:
        session.take([cuda_point(subjects[0], bench, cuda)])
    disks: list[DiskSamples] = []
    for folder in folders:
        session.take([disk_point(folder, disks)])
        tell("random reads of a disk")
    left = session.finish()
    tell("disturbed points again")
    measured = Profile(
        host=host_facts(machine),
        free_memory=machine.memory,
        date=date,
        tool=TOOL,
        processors=tuple(subject.profiled() for subject in subjects),
        reads=reads,
        loopback=loopback,
        links=links,
        busy=busy,
        joint=_throughout(joint[0], *together) if joint else None,
        handovers=handovers[0] if handovers else None,
        cuda=cuda[0] if cuda else None,
        disks=tuple(disks),
        others=others_share(before, cpu_times()),
    )
    passes: list[BetweenPassesSamples] = []
    rest = Session(watch, bench.drop, session.left + PASSES_S)
    rest.take([passes_point(record(measured), machine, passes)])
    left = left.plus(rest.finish())
    tell("between passes")
    measured = replace(measured, between_passes=passes[0], left=left)
    return marked(record(measured), measured)


def steps(loopback: Loopback | None, folders: int = 0) -> int:
    """How often `tell` will be called, with so many folders whose disks are read."""
    processor_steps = processor.steps()
    with_loopback = 2 + 3 * (processor_steps + 1) + processor_steps + 2 + 2 + 1
    return folders + (with_loopback if loopback else 2 + processor_steps + 1 + 1)


def _reads(machine: Machine, bench: MeasurementBuffers, session: Session) -> dict[int, ProcessorSamples]:
    """Plain reads by 1, 2, 4, ... threads; all CPUs together are one of the processors."""
    reads: dict[int, ProcessorSamples] = {}
    threads = 1
    while threads < len(machine.cpus):
        reads[threads] = ProcessorSamples()
        session.take([read_point(Pool(machine.cpus[:threads]), bench, reads[threads], processor.PAIRS)])
        threads *= 2
    return reads


def _engines(machine: Machine, loopback: Loopback | None) -> dict[str, CopyEngine]:
    if loopback is None:
        return {}
    return {name: CopyEngine(loopback.link, loopback.latency, machine.cpus[-1]) for name in ("h2d", "d2h")}


def _measure_processors(
    subjects: list[Subject],
    bench: MeasurementBuffers,
    engines: dict[str, CopyEngine],
    loopback: Loopback | None,
    session: Session,
    tell: Tell,
) -> BusySamples | None:
    """All processors, and the host again while the link is busy, side by side: step by step, so that a step's matrices
    serve them all and are then dropped. Not the accelerator, whose processors move the data: what that costs is an
    interruption (`handovers`)."""
    running = [_named(s.name, measure(s.pool, bench, s.samples, processor.PAIRS)) for s in subjects]
    busy = None
    if loopback is not None:
        busy, traffic = BusySamples(), Traffic(engines["h2d"], loopback.link)
        busy.link = traffic.rates
        again = measure(subjects[0].pool, bench, busy.host, BUSY_PAIRS, BUSY_FORMATS, ())
        running.append(_named(f"{subjects[0].name} while the link is busy", _beside(traffic, again)))
    for steps_at_once in zip(*running, strict=True):
        for name, points in steps_at_once:
            session.take(points)
            tell(name)
        bench.drop()
    return busy


def _together(subjects: list[Subject], bench: MeasurementBuffers, watch: Watch) -> tuple[SpreadSamples, ...]:
    """Return the collectors of joint reads (bytes/s of host and accelerator at once) and of joint arithmetic (the share
    of its FLOP/s that each keeps); none where there is one processor."""
    if len(subjects) == 1:
        return ()
    ends = [subject.pool for subject in (subjects[0], subjects[-1])]
    measures = partial(bench.read_together, ends), partial(bench.kept_together, ends)
    return tuple(SpreadSamples(watch, measure) for measure in measures)


def _in_turn(together: tuple[SpreadSamples, ...]) -> Callable[[], None]:
    """Return a function that takes a sample for the next of the collectors each time it is called."""
    if not together:
        return lambda: None
    turns = cycle(together)
    return lambda: next(turns).add()


def _throughout(joint: JointSamples, reads: SpreadSamples, kept: SpreadSamples) -> JointSamples:
    """Return `joint` with the collected samples, and the largest share of the time that others took from any of
    them."""
    disturbed = max(joint.disturbed, reads.disturbed, kept.disturbed)
    return replace(joint, throughout=reads.undisturbed, kept=kept.undisturbed, disturbed=disturbed)


def _named(name: str, measuring: Iterator[Step]) -> Iterator[Step]:
    for step, points in measuring:
        yield f"{name}: {step}", points


def _beside(traffic: Traffic, measuring: Iterator[Step]) -> Iterator[Step]:
    """Every point of `measuring` while the traffic flows."""
    for step, points in measuring:
        yield step, [_while_flowing(traffic, point) for point in points]


def _while_flowing(traffic: Traffic, point: MeasuredPoint[SamplesT]) -> MeasuredPoint[SamplesT]:
    measure, more = point.measure, point.more

    def run() -> SamplesT:
        with traffic.flowing():
            return measure()

    def again(samples: SamplesT) -> SamplesT:
        assert more is not None
        with traffic.flowing():
            return more(samples)

    return replace(point, measure=run, more=None if more is None else again)


def _check(machine: Machine, loopback: Loopback | None) -> None:
    needed = MIN_REGIONS * beyond_caches(machine.cache_bytes) + MIN_BYTES
    if needed > machine.memory:
        raise HardwareUnavailableError(
            f"measuring takes at least {format_bytes(needed)} of memory, and {format_bytes(machine.memory)} are free",
            remedy="free some memory, or allow this process more",
        )
    if loopback is None:
        return
    if loopback.cores >= len(machine.cpus):
        raise HardwareUnavailableError(
            f"this machine has {len(machine.cpus)} usable CPUs, and the host needs one",
            field="loopback cores",
            value=loopback.cores,
            remedy=f"use at most {len(machine.cpus) - 1}",
        )
    if loopback.vram > machine.memory // 2:
        raise HardwareUnavailableError(
            f"half of the free memory is {machine.memory // 2} bytes", field="loopback vram", value=loopback.vram
        )


def _subjects(machine: Machine, loopback: Loopback | None) -> list[Subject]:
    """Every processor to measure, the host of splits first."""
    if loopback is None:
        return [Subject("cpu", "cpu", Pool(machine.cpus[: -1 if _drives_gpu(machine) else None]))]
    everything = Pool(machine.cpus)
    return [
        Subject("cpu", "cpu", Pool(machine.cpus[: -loopback.cores])),
        Subject("cpu-all", "cpu", everything, ("cpu", "loopback")),
        Subject("loopback", "loopback", Pool(machine.cpus[-loopback.cores :])),
    ]


def _drives_gpu(machine: Machine) -> bool:
    """Whether the threads that hand a GPU its work get a CPU of their own: beside a pool on every CPU, whose threads
    wait for their next operation awake, a copy of 4 KiB took 0.1 ms longer (16 CPUs, an H100)."""
    return len(machine.cpus) >= MIN_CPUS and bool(machine.accelerators)
