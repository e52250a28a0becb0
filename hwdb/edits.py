"""Machines with something changed, as a study asks: `vram=12GB,link=pcie4x8`, `dram_bw=x1.5`, `gpu=RTX 3090`,
`+1 gpu`, `cuda.read=low`."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from helmsman.hwdb.another_gpu import with_more_gpus
from helmsman.hwdb.exchanged_gpu import gpu_named, with_gpu
from helmsman.hwdb.interval_ends import at_end, is_figure
from helmsman.hwdb.links import PCIE_SHARE, raw_rate
from helmsman.schemas.errors import UsageError
from helmsman.schemas.figures import Figure, Source, scaled_figure
from helmsman.schemas.hardware import Compute, Device, Hardware, Link, Memory
from helmsman.schemas.units import parse_capacity, parse_rate

AS_IT_IS = "as it is"
"""The edit that changes nothing."""

_GPUS = re.compile(r"^\+\s*(\d{1,2})\s*gpus?$", re.IGNORECASE)
_FACTOR = re.compile(r"^x\s*([0-9]*\.?[0-9]+)$", re.IGNORECASE)
_MOST_TIMES = 1000.0
_CHANGED = "changed"
"""The key of the source that edited figures name."""

Part = Literal["host", "accelerators"]


@dataclass(frozen=True, slots=True)
class Edit:
    """One kind of edit: `about` says in words what it changes; `parse` reads a value that is no factor; `apply` takes a
    machine and the text after `=`."""

    about: str
    parse: Callable[[str], float]
    apply: Callable[[Hardware, str], Hardware]


def edited(hardware: Hardware, text: str) -> Hardware:
    """Return the machine after every edit of `text`, which commas divide, under a name that says so.

    Raises UsageError for an edit that there is not, or that makes no sense of this machine."""
    if text.strip() == AS_IT_IS:
        return hardware
    for item in text.split(","):
        hardware = _edited_once(hardware, item.strip())
    source = Source(kind="user", where=text[:200])
    name = f"{hardware.name} with {text}"[:200]
    return hardware.model_copy(update={"name": name, "sources": {**hardware.sources, _CHANGED: source}})


def check_edit(text: str) -> None:
    """Raise UsageError where an edit is none, whatever the machine."""
    for item in text.split(",") if text.strip() != AS_IT_IS else ():
        name, _, value = item.partition("=")
        if not _GPUS.match(item.strip()) and not is_figure(name.strip()):
            edit = _edit_named(item.strip())
            if not _FACTOR.match(value.strip()):
                edit.parse(value.strip())


def _edited_once(hardware: Hardware, item: str) -> Hardware:
    more = _GPUS.match(item)
    if more is not None:
        return with_more_gpus(hardware, int(more[1]), item)
    name, _, value = item.partition("=")
    if is_figure(name.strip()):
        return at_end(hardware, name.strip(), value.strip())
    return _edit_named(item).apply(hardware, value.strip())


def _edit_named(item: str) -> Edit:
    """Return the edit that an item names. Raises UsageError."""
    name, equals, _ = item.partition("=")
    if not equals or name.strip() not in EDITS:
        remedy = f"write {AS_IT_IS!r}, '+1 gpu', or one of {', '.join(f'{known}=' for known in EDITS)}"
        raise UsageError("not an edit of a machine", field="changes", value=item, remedy=remedy)
    return EDITS[name.strip()]


def _sized(part: Part) -> Callable[[Hardware, str], Hardware]:
    """Return the edit of the bytes of a part's memories; what they keep for others stays as large."""

    def apply(hardware: Hardware, value: str) -> Hardware:
        chosen = _memories(hardware, part, value)

        def resized(memory: Memory) -> Memory:
            capacity = round(_amount(value, memory.capacity, _bytes))
            kept = {"available": memory.available, **({} if memory.free is None else {"free": memory.free})}
            left = {name: max(capacity - (memory.capacity - size), capacity // 2) for name, size in kept.items()}
            return memory.model_copy(update={"capacity": capacity, **left, "source": _CHANGED})

        return _with_memories(hardware, {name: resized(hardware.memory(name)) for name in chosen})

    return apply


def _read_at(part: Part) -> Callable[[Hardware, str], Hardware]:
    """Return the edit of how fast a part's memories, and its devices from them, are read."""

    def apply(hardware: Hardware, value: str) -> Hardware:
        memories, factors = dict[str, Memory](), dict[str, float]()
        for name in _memories(hardware, part, value):
            memory = hardware.memory(name)
            factors[name] = _factor(value, memory.bandwidth.value, _rate)
            joint = None if memory.joint is None else _scaled(memory.joint, factors[name])
            faster = {"bandwidth": _scaled(memory.bandwidth, factors[name]), "joint": joint}
            memories[name] = memory.model_copy(update=faster)
        hardware = _with_memories(hardware, memories)
        readers = [device for device in hardware.devices if device.memory in factors]
        return _with_devices(hardware, {d.name: _read(d, factors[d.memory]) for d in readers})

    return apply


def _read(device: Device, factor: float) -> Device:
    """Return the device with its reads `factor` times as fast."""
    edited = device.edited.model_copy(update={"read": factor * device.edited.read})
    return device.model_copy(update={"read": _scaled(device.read, factor), "edited": edited})


def _computing_at(part: Part) -> Callable[[Hardware, str], Hardware]:
    """Return the edit of the FLOP/s of a part's devices."""

    def apply(hardware: Hardware, value: str) -> Hardware:
        devices = _devices(hardware, part, value)
        factor = _factor(value, 1.0, _no_rate)

        def faster(device: Device) -> Device:
            compute = tuple(_computed(row, factor) for row in device.compute)
            edited = device.edited.model_copy(update={"flops": factor * device.edited.flops})
            return device.model_copy(update={"compute": compute, "edited": edited})

        return _with_devices(hardware, {device.name: faster(device) for device in devices})

    return apply


def _computed(row: Compute, factor: float) -> Compute:
    return row.model_copy(update={"flops": _scaled(row.flops, factor)})


def _linked(hardware: Hardware, value: str) -> Hardware:
    """Return the machine with other links between the host's memories and those of accelerators."""
    away = set(_memories(hardware, "accelerators", value))
    if away <= _host_memories(hardware):
        raise UsageError("this machine has no link to a GPU", field="changes", value=f"link={value}")

    def faster(link: Link) -> Link:
        if (link.source_memory in away) == (link.target_memory in away):
            return link
        pcie = _is_pcie(value)
        factor = _pcie_factor(link, value) if pcie else _factor(value, link.bandwidth.value, _rate)
        carries = None if link.carries is None else _scaled(link.carries, factor)
        kind = value.lower() if pcie else link.kind
        return link.model_copy(update={"bandwidth": _scaled(link.bandwidth, factor), "carries": carries, "kind": kind})

    return hardware.model_copy(update={"links": tuple(map(faster, hardware.links))})


def _pcie_factor(link: Link, value: str) -> float:
    """Return by how much faster a link is as `value`: as its own PCIe name says, or else as such links are."""
    try:
        return raw_rate(value) / raw_rate(link.kind)
    except UsageError:
        return PCIE_SHARE * raw_rate(value) / link.bandwidth.value


def _bytes(text: str) -> float:
    return float(parse_capacity(text, "changes"))


def _rate(text: str) -> float:
    return parse_rate(text, "changes")


def _link_rate(text: str) -> float:
    return raw_rate(text) if _is_pcie(text) else _rate(text)


def _is_pcie(text: str) -> bool:
    return text.lower().startswith("pcie")


def _no_rate(text: str) -> float:
    raise UsageError("not a factor", field="changes", value=text, remedy="write for example gpu_flops=x1.5")


def _memories(hardware: Hardware, part: Part, value: str) -> list[str]:
    names = dict.fromkeys(device.memory for device in _devices(hardware, part, value))
    return list(names)


def _host_memories(hardware: Hardware) -> set[str]:
    return {device.memory for device in hardware.devices if device.kind == "cpu"}


def _devices(hardware: Hardware, part: Part, value: str) -> list[Device]:
    """Return the devices of a part. Raises UsageError where an accelerator is edited that there is not."""
    chosen = [device for device in hardware.devices if (device.kind == "cpu") == (part == "host")]
    if not chosen:
        raise UsageError("this machine has no GPU", field="changes", value=value, remedy="leave this machine out")
    return chosen


def _with_memories(hardware: Hardware, changed: dict[str, Memory]) -> Hardware:
    return hardware.model_copy(update={"memories": tuple(changed.get(row.name, row) for row in hardware.memories)})


def _with_devices(hardware: Hardware, changed: dict[str, Device]) -> Hardware:
    return hardware.model_copy(update={"devices": tuple(changed.get(row.name, row) for row in hardware.devices)})


def _scaled(figure: Figure, factor: float) -> Figure:
    return scaled_figure(figure, factor).model_copy(update={"source": _CHANGED})


def _factor(value: str, now: float, parse: Callable[[str], float]) -> float:
    return _amount(value, now, parse) / now


def _amount(value: str, now: float, parse: Callable[[str], float]) -> float:
    """Return what `x1.5` makes of a number, or another number instead of it. Raises UsageError for nothing at all, and
    for more than a thousand times or less than a thousandth."""
    times = _FACTOR.match(value)
    amount = now * float(times[1]) if times else parse(value)
    if not now / _MOST_TIMES <= amount <= now * _MOST_TIMES:
        problem, remedy = (
            "more than a thousand times or less than a thousandth",
            "write a value with its unit, such as 12GB, or a factor such as x1.5",
        )
        raise UsageError(problem, field="changes", value=value, remedy=remedy)
    return amount


def _card(text: str) -> float:
    """Return bytes of the memory of a card. Raises UsageError for one that is not known."""
    return float(gpu_named(text)[1].capacity)


EDITS = {
    "gpu": Edit("each GPU, as 'RTX 3090' or '2x RTX 3090' of the catalogue", _card, with_gpu),
    "vram": Edit("bytes of each GPU's memory", _bytes, _sized("accelerators")),
    "ram": Edit("bytes of the host's memory", _bytes, _sized("host")),
    "vram_bw": Edit("bytes/s of each GPU's memory", _rate, _read_at("accelerators")),
    "dram_bw": Edit("bytes/s of the host's memory", _rate, _read_at("host")),
    "link": Edit("PCIe generation and lanes, or bytes/s, of each GPU's link", _link_rate, _linked),
    "gpu_flops": Edit("FLOP/s of each GPU, as a factor", _no_rate, _computing_at("accelerators")),
    "cpu_flops": Edit("FLOP/s of the CPUs, as a factor", _no_rate, _computing_at("host")),
}
"""Every edit by name."""
