"""Compare the hardware and software of a machine with the requirements of every command."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from helmsman.detection.local_models import find_models
from helmsman.detection.machine import find_machine
from helmsman.detection.needs import MachineInventory, needs
from helmsman.detection.system import ObservedSystem
from helmsman.detection.tools import find_disks, find_engines, find_packages
from helmsman.hwdb.detected_hardware import hardware_of
from helmsman.hwdb.load_hardware import newest_profile
from helmsman.schemas.detected import DetectedMachine, DetectedProblem
from helmsman.schemas.doctor_report import DoctorReport, ProfileState
from helmsman.schemas.errors import HelmError, UsageError
from helmsman.schemas.hardware import Hardware

_DAY = 86400.0
_PORTABLE = "portable"


def diagnose(
    system: ObservedSystem, profiles: Path | None, kernels: Sequence[str], now_s: float, repair: bool = False
) -> DoctorReport:
    """Return what a system is, what works there, and what is missing.

    `profiles`: the folder of profiles, None where there is no place for one; `kernels`: instruction sets of Helm's
    kernels, that in use first; `now_s`: seconds since 1970; `repair`: make folders that are missing first."""
    repaired = tuple(_made(profiles)) if repair and profiles is not None else ()
    machine = find_machine(system)
    packages = find_packages(system)
    versions = {package.name: package.version or "" for package in packages}
    engines, models = find_engines(system), find_models(system)
    keeps = profiles is not None and _keeps(profiles)
    things = MachineInventory(machine, kernels, keeps, models, engines, versions)
    return DoctorReport(
        machine=machine,
        kernels=tuple(kernels),
        profile=None if profiles is None else _profile(profiles, machine, now_s),
        assumed=_assumed(machine),
        disks=find_disks(system),
        models=models,
        engines=engines,
        packages=packages,
        problems=(*machine.problems, *_problems(kernels, machine, profiles, keeps)),
        needs=needs(things),
        repaired=repaired,
    )


def loaded_kernels() -> tuple[str, ...]:
    """Return the instruction sets of Helm's kernels on this processor, that in use first; none where they cannot be
    loaded."""
    try:
        from helmsman.executor._kernels import isa, supported_isas
    except (ImportError, OSError):
        return ()
    return tuple(dict.fromkeys((isa(), *supported_isas())))


def now() -> float:
    """Return the seconds since 1970."""
    return time.time()


def _assumed(machine: DetectedMachine) -> tuple[str, ...]:
    try:
        return hardware_of(machine).assumed
    except HelmError:
        return ()


def _profile(folder: Path, machine: DetectedMachine, now_s: float) -> ProfileState | None:
    """Return the newest profile that can be read, and whether it still describes the machine."""
    newest = newest_profile(folder)
    if newest is None:
        return None
    path, record = newest
    age = (now_s - path.stat().st_mtime) / _DAY
    return ProfileState(path=str(path), age_days=max(0.0, round(age, 2)), stale=_stale(record, machine))


def _stale(record: Hardware, machine: DetectedMachine) -> str | None:
    """Return why a profile is of another machine than the one that was found; None where it is not."""
    host = record.host
    if host is None:
        return None
    if host.cpu != machine.processor.name:
        return f"it is of another processor, {host.cpu}"
    if host.cores != machine.processor.threads:
        return f"it is of {host.cores} processors, and this process may use {machine.processor.threads}"
    cards = sum(device.kind == "cuda" for device in record.devices)
    here = sum(gpu.kind == "cuda" for gpu in machine.gpus)
    return f"it has {cards} GPUs, and {here} are here" if here and cards != here else None


def _problems(
    kernels: Sequence[str], machine: DetectedMachine, profiles: Path | None, keeps: bool
) -> Iterator[DetectedProblem]:
    if "asimd" not in machine.processor.flags and tuple(kernels[:1]) == (_PORTABLE,):
        yield DetectedProblem(
            what="processor",
            problem=f"no AVX2, which {machine.processor.name} lacks or hides: kernels are portable and slow",
            remedy="in a virtual machine choose the host's CPU type; else expect a fraction of the speed",
        )
    if not keeps:
        place = "there is no home folder" if profiles is None else f"{profiles} cannot be written"
        remedy = "set XDG_CACHE_HOME to a folder that can be written"
        yield DetectedProblem(what="profiles", problem=f"{place}: no profile can be kept", remedy=remedy)


def _keeps(folder: Path) -> bool:
    """Whether files can be written in a folder, which may have to be made; nothing is left behind."""
    try:
        place = next(parent for parent in (folder, *folder.parents) if parent.exists())
        tempfile.TemporaryFile(dir=place).close()
    except OSError:
        return False
    return True


def _made(folder: Path) -> Iterator[str]:
    """Make the folder of profiles, and yield a line if it was not there. A place that cannot be written is a problem
    of its own."""
    if folder.is_dir():
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    yield f"made the folder {folder}"


def profiles_place() -> Path | None:
    """Return the folder of profiles, None for a user without a home."""
    from helmsman.profiles_folder import profiles_folder

    try:
        return profiles_folder()
    except UsageError:
        return None
