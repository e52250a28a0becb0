"""What was found of a machine by looking: processor, memory, limits, GPUs, disks, models, engines, packages."""

from typing import Annotated, Literal

from pydantic import Field

from helmsman.schemas.base import Bytes, Count, Frozen, Index, Name, NonNegative, Positive

Text = Annotated[str, Field(min_length=1, max_length=1000)]
"""A line for people."""


class DetectedProcessor(Frozen):
    """The processor as the system names it.

    `threads`: that this process may use; `cores`: physical ones among them; `sockets`: that they are in; `flags`:
    instruction sets, as the system writes them; `virtual`: whether it is a virtual machine's; `hz`: its highest clock,
    where the system says one."""

    name: Name
    threads: Count
    cores: Count
    sockets: Count = 1
    flags: Annotated[tuple[Name, ...], Field(max_length=64)] = ()
    virtual: bool = False
    hz: Positive | None = None
    family: Index | None = None
    vendor: Name | None = None


class DetectedModules(Frozen):
    """Memory modules of one kind, `DDR5-5600`, in so many channels as have one."""

    kind: Name
    modules: Count
    channels: Count


class DetectedMemory(Frozen):
    """Bytes of RAM: all there are, those this process may use, and those free now. `limited`: by what, where that is
    less than all; `modules`: None where the system keeps them to itself."""

    total: Bytes
    allowed: Bytes
    free: Bytes
    limited: Name | None = None
    modules: DetectedModules | None = None


class DetectedLink(Frozen):
    """A PCIe link: the generation and lanes that both its ends can do, and the generation of this moment: an idle one
    saves power by a lower one; `loaded`: while data moved, where that was tried."""

    generation: Annotated[int, Field(ge=1, le=7)]
    lanes: Annotated[int, Field(ge=1, le=32)]
    now: Annotated[int, Field(ge=1, le=7)] | None = None
    loaded: Annotated[int, Field(ge=1, le=7)] | None = None


class DetectedGpu(Frozen):
    """A GPU. `name`: as its driver says; `pci`: vendor:device; `where`: its address; `capacity`, `free`: bytes, where
    the driver says; `devices`: names of the catalogue that it may have."""

    name: Name
    kind: Literal["cuda", "rocm", "metal", "xpu"]
    via: Name = Field(description="who said so: nvml, nvidia-smi, sysfs, system_profiler")
    pci: Name | None = None
    where: Name | None = None
    capacity: Bytes | None = None
    free: Bytes | None = None
    link: DetectedLink | None = None
    devices: Annotated[tuple[Name, ...], Field(max_length=16)] = ()


class DetectedDisk(Frozen):
    """A disk, or a folder's place: bytes in all and free ones, where known."""

    name: Name
    kind: Literal["nvme", "ssd", "hdd", "virtual", "unknown"]
    capacity: Bytes
    free: Bytes | None = None


class LocalModel(Frozen):
    """A model on the disk. `name`: by which commands take it, behind `local:`; `path`: of a checkpoint's folder or a
    GGUF file; `entry`: the model of the catalogue that it is, if its name says so."""

    name: Name
    store: Literal["hugging-face", "ollama", "lm-studio", "llama.cpp"]
    path: Annotated[str, Field(min_length=1, max_length=4096)]
    bytes: Bytes
    entry: Name | None = None


class DetectedTool(Frozen):
    """An engine's program on the path, or a Python package, with its version where that is cheap to know."""

    name: Name
    version: Name | None = None
    path: Annotated[str, Field(max_length=4096)] | None = None


class DetectedProblem(Frozen):
    """Something that is there and does not answer, and what to do about it."""

    what: Name
    problem: Text
    remedy: Text


class DetectedMachine(Frozen):
    """A machine as it was found, without measuring anything. `quota`: processors that its control group allows."""

    system: Name
    processor: DetectedProcessor
    memory: DetectedMemory
    quota: NonNegative | None = None
    gpus: Annotated[tuple[DetectedGpu, ...], Field(max_length=64)] = ()
    problems: Annotated[tuple[DetectedProblem, ...], Field(max_length=64)] = ()
