"""The whole profile: every processor, the link, and the processor while the link is busy."""

from collections.abc import Callable
from pathlib import Path

from helmsman.executor._kernels import CopyEngine, Pool, isa
from helmsman.executor.machine import Machine
from helmsman.executor.profile.copies import measure_busy, measure_link
from helmsman.executor.profile.cuda import measure_cuda, present
from helmsman.executor.profile.inplace import measure_stage
from helmsman.executor.profile.processor import Bench, measure
from helmsman.executor.profile.record import ProcessorProfile, Profile, record
from helmsman.executor.profile.samples import LinkSamples
from helmsman.executor.profile.settings import Loopback
from helmsman.schemas.errors import HardwareUnavailableError
from helmsman.schemas.hardware import Hardware, Host

TOOL = "helm-profile"
STEPS_PER_PROCESSOR = 11

Tell = Callable[[str], None]


def profile(machine: Machine, loopback: Loopback | None, date: str, tell: Tell = lambda _: None) -> Hardware:
    """Measure this machine; `date` goes into the record, `tell` hears of every step.

    Raises HardwareUnavailableError when the loopback would leave no core, or no memory, to the host."""
    _check(machine, loopback)
    bench = Bench(machine.cache_bytes)
    processors = tuple(_processor(*role, bench, tell) for role in _roles(machine, loopback))
    links, busy = None, None
    if loopback is not None:
        engines = {name: CopyEngine(loopback.link, loopback.latency, machine.cpus[-1]) for name in ("h2d", "d2h")}
        links = {name: _link(name, engine, tell) for name, engine in engines.items()}
        tell("cpu while the link is busy")
        host = Pool(machine.cpus[: -loopback.cores])
        busy = measure_busy(host, engines["h2d"], loopback.link, bench)
    gpu = measure_cuda() if present() else None
    return record(Profile(_host(machine), machine.memory, date, TOOL, processors, loopback, links, busy, gpu))


def steps(loopback: Loopback | None) -> int:
    """How often `tell` will be called."""
    return 3 * STEPS_PER_PROCESSOR + 3 if loopback else STEPS_PER_PROCESSOR


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


Role = tuple[str, str, tuple[int, ...], tuple[str, ...]]


def _roles(machine: Machine, loopback: Loopback | None) -> tuple[Role, ...]:
    """(name, kind, cpus, excludes) of every processor to measure."""
    if loopback is None:
        return (("cpu", "cpu", machine.cpus, ()),)
    host, own = machine.cpus[: -loopback.cores], machine.cpus[-loopback.cores :]
    return (
        ("cpu", "cpu", host, ()),
        ("cpu-all", "cpu", machine.cpus, ("cpu", "loopback")),
        ("loopback", "loopback", own, ()),
    )


def _processor(
    name: str, kind: str, cpus: tuple[int, ...], excludes: tuple[str, ...], bench: Bench, tell: Tell
) -> ProcessorProfile:
    pool = Pool(cpus)
    for what, found in measure(pool, bench):
        tell(f"{name}: {what}")
        samples = found
    inplace = measure_stage(pool)
    tell(f"{name}: in a running stage")
    return ProcessorProfile(name, kind, len(cpus), excludes, samples, inplace)


def _link(name: str, engine: CopyEngine, tell: Tell) -> LinkSamples:
    samples = measure_link(engine)
    tell(f"link {name}")
    return samples


def _host(machine: Machine) -> Host:
    return Host(
        cpu=_cpu_name(),
        cores=len(machine.cpus),
        isa=(isa(),),
        ram=machine.total_memory,
        cache_bytes=machine.cache_bytes,
        os=_os_name(),
    )


def _cpu_name() -> str:
    import platform

    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _os_name() -> str:
    import platform

    return f"{platform.system()} {platform.release()}"
