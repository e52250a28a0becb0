"""Costs of an engine's own software: the launch times of a machine's record belong to the executor measured there.

HELM's machines carry what HELM's executor takes to launch; the engines it is compared with take other times. A loopback
accelerator is run by ours, whatever engine a plan stands for, so that its record stays as it is."""

from collections.abc import Iterator
from dataclasses import dataclass

from helmsman.hwdb.classes import DeviceClass, find_class
from helmsman.schemas.figures import Figure, Source
from helmsman.schemas.hardware import Device, Dispatch, Hardware


@dataclass(frozen=True, slots=True)
class Software:
    """How an engine launches operations. `dispatch`: from a thread of the host; None: a captured graph or native code
    launches them, as fast as devices of their class start work; `heads_apart`: whether processors attend head by head
    (`heads_apart.py`)."""

    name: str
    dispatch: Dispatch | None = None
    source: Source | None = None
    heads_apart: bool = False


EAGER = Software(
    "transformers",
    Dispatch(seconds=Figure(value=105e-6, p10=94e-6, p90=108e-6, n=7, source="transformers-launch")),
    Source(
        kind="fitted",
        where="fitted: HELM (2026) Table 6.1, seven rows of Accelerate and DeepSpeed without offloading (F127..F175): "
        "37.6..47.2 ms per token for 399 or 443 operations, from Python one by one",
    ),
)
"""transformers' modules, operation by operation from Python: Accelerate and DeepSpeed run them."""

NATIVE = Software("native")
"""Captured CUDA graphs (vLLM)."""

GGML = Software("ggml", heads_apart=True)
"""Captured CUDA graphs and native threads (llama.cpp)."""


def looped(hardware: Hardware) -> bool:
    """Whether a loopback accelerator stands for a GPU: our executor runs it."""
    return any(device.kind == "loopback" for device in hardware.devices)


def native(hardware: Hardware) -> Hardware:
    """`hardware` with the launch times of its devices' classes, where those are known."""
    driven = [_native(device) for device in hardware.devices]
    sources = {key: source for _, sources_of in driven for key, source in sources_of}
    devices = tuple(device for device, _ in driven)
    return hardware.model_copy(update={"devices": devices, "sources": {**hardware.sources, **sources}})


_Driven = tuple[Device, tuple[tuple[str, Source], ...]]


def _native(device: Device) -> _Driven:
    device = device.model_copy(update={"overheads": None, "prompt_launch": None})  # are our executor's
    if device.device_class is None:
        return device, ()
    known = find_class(device.device_class)
    figures = {"launch": known.launch, "overhead": known.overhead}
    named = {key: figure and figure.model_copy(update={"source": _name(figure)}) for key, figure in figures.items()}
    return device.model_copy(update={**named, "dispatch": None, "launching": None}), tuple(_sources(known))


def _name(figure: Figure) -> str:
    return f"class-{figure.source}"


def _sources(known: DeviceClass) -> Iterator[tuple[str, Source]]:
    for figure in (known.launch, known.overhead):
        if figure is not None:
            yield _name(figure), known.sources[figure.source]
