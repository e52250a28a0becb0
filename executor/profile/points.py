"""Makes the measurement points of a profile beside those of products: of both devices at once, stages, links, GPUs and
disks. Each point measures samples and stores them where the profile collects them."""

from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path

from helmsman.executor._kernels import CopyEngine, Pool
from helmsman.executor.profile.bench import MeasurementBuffers
from helmsman.executor.profile.between_passes import measure_between_passes
from helmsman.executor.profile.copies import Traffic, measure_link
from helmsman.executor.profile.cuda import measure_cuda
from helmsman.executor.profile.handovers import measure_handovers
from helmsman.executor.profile.joint import Pair, measure_joint
from helmsman.executor.profile.prompt_attention import measure_prompt_attention
from helmsman.executor.profile.quality import MeasuredPoint
from helmsman.executor.profile.random_reads import measure_random_reads
from helmsman.executor.profile.requests import measure_requests
from helmsman.executor.profile.samples import (
    AttentionSamples,
    BetweenPassesSamples,
    CudaSamples,
    DiskSamples,
    HandoverSamples,
    JointSamples,
    LinkSamples,
    ProcessorProfile,
    ProcessorSamples,
    StageSamples,
)
from helmsman.executor.profile.settings import Loopback
from helmsman.executor.profile.synthetic_stage import measure_stage
from helmsman.executor.system.machine import Machine
from helmsman.schemas.hardware import Hardware


@dataclass
class Subject:
    """Holds a processor that is measured, with its samples."""

    name: str
    kind: str
    pool: Pool
    excludes: tuple[str, ...] = ()
    samples: ProcessorSamples = field(default_factory=ProcessorSamples)
    stage: StageSamples = field(default_factory=StageSamples)

    def profiled(self) -> ProcessorProfile:
        """Return all that was measured of it."""
        return ProcessorProfile(self.name, self.kind, self.pool.threads, self.excludes, self.samples, self.stage)


def joint_point(
    subjects: list[Subject],
    bench: MeasurementBuffers,
    engine: CopyEngine,
    loopback: Loopback,
    kept: list[JointSamples],
) -> MeasuredPoint[JointSamples]:
    """Return the point that measures host and accelerator at once, the link to the accelerator idle and busy, in
    several visits: the rate of both in a memory lay between 0.8 and 1.4 of what all CPUs read, for seconds at a time (2
    cores of an AMD EPYC, Zen 5)."""
    ends = (subjects[0], subjects[-1])
    names = (ends[0].name, ends[1].name)
    together = next(subject.pool for subject in subjects if set(names) <= set(subject.excludes))
    pair = Pair(names, (ends[0].pool, ends[1].pool), together)

    def more(samples: JointSamples) -> JointSamples:
        measure_joint(pair, bench, "idle", samples)
        with Traffic(engine, loopback.link).flowing():
            measure_joint(pair, bench, "busy", samples)
        samples.visits += 1
        return samples

    def keep(samples: JointSamples, share: float) -> None:
        kept.append(replace(samples, disturbed=share))

    return MeasuredPoint("joint", lambda: more(JointSamples()), keep, more=more)


def passes_point(
    hardware: Hardware, machine: Machine, kept: list[BetweenPassesSamples]
) -> MeasuredPoint[BetweenPassesSamples]:
    """Return the point that measures the time between the passes of a run, into `kept`."""

    def keep(samples: BetweenPassesSamples, share: float) -> None:
        kept.append(replace(samples, disturbed=share))

    return MeasuredPoint("between passes", lambda: measure_between_passes(hardware, machine), keep)


def handover_point(
    subjects: list[Subject],
    machine: Machine,
    engines: dict[str, CopyEngine],
    loopback: Loopback,
    kept: list[HandoverSamples],
) -> MeasuredPoint[HandoverSamples]:
    """Return the point that measures the seconds that work takes to cross from one device to the other."""

    def run() -> HandoverSamples:
        seats = (machine.cpus[: -loopback.cores], machine.cpus[-loopback.cores :])
        ends = [
            (subject.name, subject.pool, cpus[0] if len(cpus) == 1 else -1)
            for subject, cpus in zip((subjects[0], subjects[-1]), seats, strict=True)
        ]
        return measure_handovers(ends, engines, loopback)

    def keep(samples: HandoverSamples, share: float) -> None:
        kept.append(replace(samples, disturbed=share))

    return MeasuredPoint("hand-overs", run, keep)


def stage_point(subject: Subject, bench: MeasurementBuffers) -> MeasuredPoint[StageSamples]:
    """Return the point that measures a running stage, and several requests in one."""

    def run() -> StageSamples:
        stage = measure_stage(subject.pool)
        stage.requests = measure_requests(subject.pool, bench.read)
        return stage

    def keep(stage: StageSamples, share: float) -> None:
        subject.stage = replace(stage, disturbed=share)

    return MeasuredPoint("stage", run, keep)


def prompt_attention_point(subject: Subject) -> MeasuredPoint[AttentionSamples]:
    """Return the point that measures attention over prompts, in several visits: a disturbance of one of them moves no
    median, so that the point has no sign of being unsteady of its own."""

    def more(before: AttentionSamples) -> AttentionSamples:
        return {
            key: [*before.get(key, ()), *seconds] for key, seconds in measure_prompt_attention(subject.pool).items()
        }

    def keep(samples: AttentionSamples, share: float) -> None:
        subject.samples.prompt_attention, subject.samples.prompt_attention_disturbed = samples, share

    return MeasuredPoint("attention of prompts", lambda: more({}), keep, more=more)


def link_point(links: dict[str, LinkSamples], name: str, engine: CopyEngine) -> MeasuredPoint[LinkSamples]:
    """Return the point that measures copies over a link, into `links` by its name."""

    def keep(samples: LinkSamples, share: float) -> None:
        links[name] = replace(samples, disturbed=share)

    return MeasuredPoint(f"link {name}", lambda: measure_link(engine), keep, attrgetter("spread"))


def cuda_point(host: Subject, bench: MeasurementBuffers, kept: list[CudaSamples]) -> MeasuredPoint[CudaSamples]:
    """Return the point that measures the GPU, and its link while the host reads."""

    def keep(samples: CudaSamples, share: float) -> None:
        kept.append(replace(samples, disturbed=share))

    return MeasuredPoint("cuda", lambda: measure_cuda(lambda: bench.read(host.pool)), keep)


def disk_point(folder: Path, kept: list[DiskSamples]) -> MeasuredPoint[DiskSamples | None]:
    """Return the point that measures random reads of a folder's disk; of one without direct reads, or room, nothing is
    kept."""

    def keep(samples: DiskSamples | None, share: float) -> None:
        if samples is not None:
            kept.append(replace(samples, disturbed=share))

    return MeasuredPoint("disk", lambda: measure_random_reads(folder), keep)
