"""What an engine's own software costs: the launch times of a machine's record belong to the executor measured there.

HELM's machines carry the launch floors of HELM's executor; the engines it is compared with have others. A loopback
accelerator is run by ours, whatever engine a plan stands for, so that its record stays as it is."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from helmsman.hwdb.classes import DeviceClass, find_class
from helmsman.schemas.figures import Figure, Source
from helmsman.schemas.hardware import Device, Hardware


@dataclass(frozen=True, slots=True)
class Software:
    """How an engine launches operations. `host`: seconds of the host for each; None: a captured graph or native code
    launches them, as fast as devices of their class start work."""

    name: str
    host: Figure | None = None
    source: Source | None = None


EAGER = Software(
    "transformers",
    Figure(value=105e-6, p10=94e-6, p90=108e-6, n=7, source="transformers-launch"),
    Source(
        kind="fitted",
        where="fitted: HELM (2026) Table 6.1, seven rows of Accelerate and DeepSpeed without offloading (F127..F175): "
        "37.6..47.2 ms per token for 399 or 443 operations, from Python one by one",
    ),
)
"""transformers' modules, operation by operation from Python: Accelerate and DeepSpeed run them."""

NATIVE = Software("native")
"""Captured CUDA graphs (vLLM, llama.cpp) and native threads (llama.cpp)."""


def looped(hardware: Hardware) -> bool:
    """Whether a loopback accelerator stands for a GPU: our executor runs it."""
    return any(device.kind == "loopback" for device in hardware.devices)


def native(hardware: Hardware) -> Hardware:
    """`hardware` with the launch times of its devices' classes, where those are known."""
    driven = [_native(device) for device in hardware.devices]
    sources = {key: source for _, found in driven for key, source in found}
    devices = tuple(device for device, _ in driven)
    return hardware.model_copy(update={"devices": devices, "sources": {**hardware.sources, **sources}})


def launched(hardware: Hardware, device: str, software: Software, work: Sequence[float]) -> Hardware:
    """`hardware` whose `device` does `work`, seconds of the operations of a pass, as `software` launches them."""
    if software.host is None or software.source is None:
        return hardware
    host, own = software.host, hardware.device(device).launch
    least = own.value if own else 0.0
    floors = {end: max(least, floor(work, getattr(host, end))) for end in ("value", "p10", "p90")}
    changed = tuple(
        each.model_copy(update={"launch": host.model_copy(update=floors)}) if each.name == device else each
        for each in hardware.devices
    )
    sources = {**hardware.sources, host.source: software.source}
    return hardware.model_copy(update={"devices": changed, "sources": sources})


def floor(work: Sequence[float], host: float) -> float:
    """The least time per operation that makes a pass as long as the longer of its two sides (E-HELM-12).

    The host launches ahead while long operations run, so that the sum of max(work, floor) is the larger of the sum of
    `work` and of `host` seconds for each."""
    rising, total = sorted(work), host * len(work)
    below = [0.0, *accumulate(rising)]
    for count in range(len(rising), 0, -1):
        level = (total - (below[-1] - below[count])) / count
        if level >= rising[count - 1]:
            return level
    return 0.0


_Driven = tuple[Device, tuple[tuple[str, Source], ...]]


def _native(device: Device) -> _Driven:
    if device.device_class is None:
        return device, ()
    known = find_class(device.device_class)
    figures = {"launch": known.launch, "overhead": known.overhead}
    named = {key: figure and figure.model_copy(update={"source": _name(figure)}) for key, figure in figures.items()}
    return device.model_copy(update=named), tuple(_sources(known))


def _name(figure: Figure) -> str:
    return f"class-{figure.source}"


def _sources(known: DeviceClass) -> Iterator[tuple[str, Source]]:
    for figure in (known.launch, known.overhead):
        if figure is not None:
            yield _name(figure), known.sources[figure.source]
