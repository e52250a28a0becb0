"""Threads of processors that a flag of an engine says: as many as cores, or fewer, which is an option of strategies."""

from helmsman.planner.settings.command_flags import GivenFlag
from helmsman.planner.settings.engine_format import OptionValue, SettingsSubject


def host_cores(subject: SettingsSubject) -> list[int]:
    """Return the cores of every processor whose number of them is known."""
    return [device.cores for device in subject.hardware.devices if device.kind == "cpu" and device.cores is not None]


def fewer_threads(flag: GivenFlag | None, subject: SettingsSubject) -> dict[str, OptionValue]:
    """Return the option of threads, where fewer than the cores work."""
    count = _count(flag)
    return {"threads": count} if any(0 < count < cores for cores in host_cores(subject)) else {}


def threads_are_priced(flag: GivenFlag, subject: SettingsSubject) -> bool:
    """Whether a prediction knows what a flag says of threads: no more of them than there are cores."""
    return 0 < _count(flag) <= max(host_cores(subject), default=0)


def _count(flag: GivenFlag | None) -> int:
    """Return the threads of a flag; 0 for one that is not given, or leaves them to the engine."""
    text = "" if flag is None else flag.values[0]
    return int(text) if text.isdecimal() else 0
