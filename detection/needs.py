"""Check the requirements of every command against the hardware and software of a machine."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from helmsman.schemas.detected import DetectedMachine, DetectedTool, LocalModel
from helmsman.schemas.doctor_report import Purpose, PurposeNeed
from helmsman.schemas.units import format_bytes

GIB = 2**30
_FLOOR = GIB
"""Bytes of memory without which nothing is planned."""
_ROOM = 2 * GIB
"""Bytes of memory that profiling, and running the smallest models, take."""
Lack = tuple[str, str]
"""A requirement that is not met, and one line of remedy."""


@dataclass(frozen=True, slots=True)
class MachineInventory:
    """Lists hardware and software of a machine. `kernels`: instruction sets of Helm's kernels, that in use first, none
    where they cannot be loaded; `keeps`: whether profiles can be kept; `packages`: of Python, by name."""

    machine: DetectedMachine
    kernels: Sequence[str]
    keeps: bool
    models: Sequence[LocalModel]
    engines: Sequence[DetectedTool]
    packages: Mapping[str, str]


def needs(things: MachineInventory) -> tuple[PurposeNeed, ...]:
    """Return for each purpose whether it works on a machine."""
    return tuple(_need(purpose, command, lack(things)) for purpose, (command, lack) in _PURPOSES.items())


def _need(purpose: Purpose, command: str, lack: Lack | None) -> PurposeNeed:
    missing, remedy = lack or (None, None)
    return PurposeNeed(purpose=purpose, command=command, ready=lack is None, missing=missing, remedy=remedy)


def _plan(things: MachineInventory) -> Lack | None:
    if things.machine.memory.allowed < _FLOOR:
        return f"{format_bytes(things.machine.memory.allowed)} of memory", "allow the process 1 GiB or more"
    return None


def _profile(things: MachineInventory) -> Lack | None:
    if not things.keeps:
        return "profiles cannot be kept", "set XDG_CACHE_HOME to a folder that can be written"
    return _run(things)


def _run(things: MachineInventory) -> Lack | None:
    if not things.kernels:
        return "the native kernels cannot be loaded", "install Helm again for this Python and processor"
    free = things.machine.memory.free
    if free < _ROOM:
        return f"{format_bytes(free)} of memory are free", f"free memory, or allow more: {format_bytes(_ROOM)} or more"
    return None


def _serve(things: MachineInventory) -> Lack | None:
    return _run(things) or _packages(things, "serve", ("aiohttp", "prometheus-client"))


def _web(things: MachineInventory) -> Lack | None:
    return _packages(things, "web", ("fastapi", "uvicorn", "prometheus-client"))


def _gpu(things: MachineInventory) -> Lack | None:
    """Plans with a GPU are run by PyTorch, on NVIDIA's."""
    machine = things.machine
    if machine.problems:
        problem = machine.problems[0]
        return f"{problem.what}: {problem.problem}", problem.remedy
    if not machine.gpus:
        return "no GPU is here", "plans run on the processor; with helm-profile --loopback some of its cores play a GPU"
    if not any(gpu.kind == "cuda" for gpu in machine.gpus):
        return "no NVIDIA GPU, and Helm runs plans on no other", "run plans for this one through llama.cpp"
    return _packages(things, "torch", ("torch", "transformers"))


def _engines(things: MachineInventory) -> Lack | None:
    if things.engines or {"llama-cpp-python", "vllm"} & set(things.packages):
        return None
    return "no engine is on the path", "install llama.cpp, Ollama or vLLM to run plans through them"


def _packages(things: MachineInventory, extra: str, names: Collection[str]) -> Lack | None:
    missing = [name for name in names if name not in things.packages]
    return (f"{', '.join(missing)} not installed", f"pip install 'helmsman[{extra}]'") if missing else None


_PURPOSES: dict[Purpose, tuple[str, Callable[[MachineInventory], Lack | None]]] = {
    "plan": ("helm-plan", _plan),
    "profile": ("helm-profile", _profile),
    "run": ("helm-run", _run),
    "serve": ("helm-serve", _serve),
    "web": ("helm-web", _web),
    "gpu": ("helm-run with a GPU", _gpu),
    "engines": ("other engines", _engines),
}
