"""Whether the accelerators of a machine differ in anything but names."""

from helmsman.planner.machine import Roles
from helmsman.schemas.hardware import Device, Hardware

_Figures = tuple[str, tuple[float, ...]]
"""All that a record says of an accelerator, its memory and its links with the host but names; and latencies."""


def alike(roles: Roles) -> bool:
    """Whether there are several accelerators with memories of their own that differ in nothing but names and, against
    the first one, in longer latencies of their links."""
    accelerators = _figured(roles)
    first = accelerators[0][1] if accelerators else ()
    later = all(mine <= other for _, latencies in accelerators for mine, other in zip(first, latencies, strict=True))
    return len(accelerators) > 1 and later and len({figures for figures, _ in accelerators}) == 1


def twins(roles: Roles) -> bool:
    """Whether they differ in nothing but names."""
    return alike(roles) and len(set(_figured(roles))) == 1


def _figured(roles: Roles) -> list[_Figures]:
    """The figures of accelerators; none where any has no memory of its own."""
    memories = {roles.host.memory, *(device.memory for device in roles.accelerators)}
    if len(memories) < 1 + len(roles.accelerators):
        return []
    return [_figures(roles.hardware, roles.host, device) for device in roles.accelerators]


def _figures(hardware: Hardware, host: Device, device: Device) -> _Figures:
    memory = hardware.memory(device.memory).model_copy(update={"name": ""})
    ends = ((host.memory, device.memory), (device.memory, host.memory))
    links = [link for pair in ends if (link := hardware.link(*pair)) is not None]
    names = {"name": "", "source_memory": "", "target_memory": "", "shares": None, "latency": None}
    alone = device.model_copy(update={"name": "", "memory": "", "excludes": ()})
    plain = (alone, memory, *(link.model_copy(update=names) for link in links))
    return repr(plain), tuple(link.latency.value for link in links)
