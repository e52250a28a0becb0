"""NVIDIA's GPUs: as the driver's library says by nvidia-ml-py, else by nvidia-smi."""

from typing import Any

from helmsman.detection.system import ObservedSystem
from helmsman.hwdb.catalogue import reported_gpus
from helmsman.schemas.detected import DetectedGpu, DetectedLink, DetectedProblem

_MIB = 2**20
_FIELDS = (
    *("name", "memory.total", "memory.free", "pci.bus_id"),
    *("pcie.link.gen.max", "pcie.link.gen.current", "pcie.link.width.max"),
)
_QUERY = (f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits")
_REMEDY = "reinstall the driver, or restart after it was updated; nvidia-smi has to list the GPU"
_BEYOND = "/usr/lib/wsl/lib/nvidia-smi"
"""Where Windows' subsystem has the program, which may not be on the path."""


def nvidia_gpus(system: ObservedSystem) -> tuple[list[DetectedGpu], list[DetectedProblem]]:
    """Return the GPUs that the driver lists, and what is wrong with it."""
    gpus, wrong = _by_library(system)
    if gpus:
        return gpus, []
    listed, problem = _by_program(system)
    return listed, [] if listed else [doubt for doubt in (problem, wrong) if doubt is not None][:1]


def _by_library(system: ObservedSystem) -> tuple[list[DetectedGpu], DetectedProblem | None]:
    """Ask the library that nvidia-ml-py loads. Whatever it raises is reported: a broken one raises of any kind."""
    if system.package("nvidia-ml-py") is None:
        return [], None
    try:
        library = system.module("pynvml")
        library.nvmlInit()
        handles = [library.nvmlDeviceGetHandleByIndex(number) for number in range(library.nvmlDeviceGetCount())]
        return [_described(library, handle) for handle in handles], None
    except Exception as error:  # the answer to a driver that does not fit its library is to say what it raised
        text = f"its library cannot be used: {type(error).__name__}: {str(error)[:200] or 'no reason given'}"
        return [], DetectedProblem(what="NVIDIA driver", problem=text, remedy=_REMEDY)


def _described(library: Any, handle: Any) -> DetectedGpu:
    def say(function: str, *more: Any) -> Any:
        """Return what a function says; None where the GPU cannot tell."""
        try:
            return getattr(library, function)(handle, *more)
        except Exception:  # a driver may lack a function, refuse it or answer bad text: the other figures still stand
            return None

    name, memory, pci = say("nvmlDeviceGetName"), say("nvmlDeviceGetMemoryInfo"), say("nvmlDeviceGetPciInfo")
    text = name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)
    address = getattr(pci, "busId", b"")
    where = address.decode("ascii", "replace") if isinstance(address, bytes) else str(address)
    return _gpu(
        text,
        "nvml",
        where,
        getattr(memory, "total", None),
        getattr(memory, "free", None),
        say("nvmlDeviceGetMaxPcieLinkGeneration"),
        say("nvmlDeviceGetCurrPcieLinkGeneration"),
        say("nvmlDeviceGetMaxPcieLinkWidth"),
    )


def _by_program(system: ObservedSystem) -> tuple[list[DetectedGpu], DetectedProblem | None]:
    names = ("nvidia-smi", str(system.at(_BEYOND)))
    answer = next((answer for name in names if (answer := system.output(name, *_QUERY)) is not None), None)
    if answer is None:
        return [], None
    gpus = [gpu for line in answer.text.splitlines() if (gpu := _listed(line)) is not None] if answer.code == 0 else []
    if gpus:
        return gpus, None
    ended = "does not end" if answer.code is None else f"ends with {answer.code}: {answer.first_line}"
    return [], DetectedProblem(what="NVIDIA driver", problem=f"nvidia-smi {ended}", remedy=_REMEDY)


def _listed(line: str) -> DetectedGpu | None:
    """Return the GPU of a line of nvidia-smi, None where it has other fields than were asked for."""
    fields = [part.strip() for part in line.split(",")]
    if len(fields) != len(_FIELDS) or not fields[0]:
        return None
    total, free = (_MIB * int(text) if text.isdecimal() else None for text in fields[1:3])
    numbers = [int(text) if text.isdecimal() else None for text in fields[4:]]
    return _gpu(fields[0], "nvidia-smi", fields[3], total, free, *numbers)


def _gpu(
    name: str,
    via: str,
    where: str,
    total: int | None,
    free: int | None,
    most: int | None,
    now: int | None,
    lanes: int | None,
) -> DetectedGpu:
    link = None
    if most is not None and lanes is not None and 1 <= most <= 7 and 1 <= lanes <= 32:
        link = DetectedLink(generation=most, lanes=lanes, now=now if now and 1 <= now <= 7 else None)
    return DetectedGpu(
        name=name[:200],
        kind="cuda",
        via=via,
        where=_address(where) or None,
        capacity=total,
        free=free,
        link=link,
        devices=tuple(reported_gpus(name, total)[:16]),
    )


def _address(where: str) -> str:
    """Return an address as Linux writes it: `00000000:01:00.0` is 0000:01:00.0."""
    return where.lower()[-12:] if len(where) > 12 else where.lower()
