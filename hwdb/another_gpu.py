"""More GPUs like the first: devices, memories and links of their own, all as fast as that one's."""

from helmsman.hwdb.catalogue import find_gpu
from helmsman.hwdb.links import peer_links
from helmsman.schemas.errors import UsageError
from helmsman.schemas.hardware import Device, Hardware, Link, Memory

MOST_GPUS = 8
"""The number of equal GPUs that a machine has at most."""


def with_more_gpus(hardware: Hardware, count: int, text: str) -> Hardware:
    """Return the machine with `count` more GPUs. Each has a link like the first one's: say `link=` as well where the
    lanes of a slot are divided. Raises UsageError without a GPU that has its own memory, or beyond `MOST_GPUS`."""
    hosts = {device.memory for device in hardware.devices if device.kind == "cpu"}
    gpus = [device for device in hardware.devices if device.kind != "cpu" and device.memory not in hosts]
    if not gpus:
        remedy = "leave this machine out"
        raise UsageError("this machine has no GPU with a memory of its own", field="changes", value=text, remedy=remedy)
    if count < 1:
        raise UsageError("adds no GPU", field="changes", value=text, remedy="write '+1 gpu'")
    if count > MOST_GPUS - len(gpus):
        problem = f"a machine has at most {MOST_GPUS} GPUs, and this one has {len(gpus)}"
        raise UsageError(problem, field="changes", value=text, remedy="ask for fewer")
    for _ in range(count):
        hardware = _with_another(hardware, gpus)
    return _joined(hardware, gpus[0]) if len(gpus) == 1 else hardware


def _joined(hardware: Hardware, first: Device) -> Hardware:
    """Return the machine with what joins GPUs like the `first` on their boards, if there is such a thing."""
    try:
        gpu, _ = find_gpu(first.product or "")
    except UsageError:
        return hardware
    cards = [device.memory for device in hardware.devices if device.kind == first.kind]
    links, sources = peer_links(cards, gpu, None)
    changed = {"links": (*hardware.links, *links), "sources": {**hardware.sources, **sources}}
    return hardware.model_copy(update=changed)


def _with_another(hardware: Hardware, gpus: list[Device]) -> Hardware:
    """Return the machine with one more GPU like the first of `gpus`."""
    first, memory = gpus[0], hardware.memory(gpus[0].memory)
    taken = {*(row.name for row in hardware.devices), *(row.name for row in hardware.memories)}
    suffix = next(
        str(number)
        for number in range(1, MOST_GPUS + 1)
        if f"{first.name}{number}" not in taken and f"{memory.name}{number}" not in taken
    )
    device = first.model_copy(update={"name": first.name + suffix, "memory": memory.name + suffix})
    links = tuple(_links(hardware, memory, memory.name + suffix, suffix))
    peers = tuple(_peer_links(hardware, memory, gpus, memory.name + suffix))
    return hardware.model_copy(
        update={
            "devices": (*hardware.devices, device),
            "memories": (*hardware.memories, memory.model_copy(update={"name": memory.name + suffix})),
            "links": (*hardware.links, *links, *peers),
        }
    )


def _links(hardware: Hardware, memory: Memory, name: str, suffix: str) -> list[Link]:
    """Return the first GPU's links as the new one has them, whose memory is `name`."""
    own = [link for link in hardware.links if memory.name in (link.source_memory, link.target_memory)]
    renamed = {link.name: link.name + suffix for link in own}
    return [
        link.model_copy(
            update={
                "name": renamed[link.name],
                "source_memory": name if link.source_memory == memory.name else link.source_memory,
                "target_memory": name if link.target_memory == memory.name else link.target_memory,
                "shares": None if link.shares is None else renamed.get(link.shares, link.shares),
            }
        )
        for link in own
    ]


def _peer_links(hardware: Hardware, memory: Memory, gpus: list[Device], name: str) -> list[Link]:
    """Return the links between the first GPU and the new one, like those between the first and the second, if any."""
    second = gpus[1].memory if len(gpus) > 1 else None
    between = [link for link in hardware.links if {link.source_memory, link.target_memory} == {memory.name, second}]
    return [
        link.model_copy(
            update={
                "name": f"{link.name}-{name}",
                "source_memory": name if link.source_memory == second else link.source_memory,
                "target_memory": name if link.target_memory == second else link.target_memory,
            }
        )
        for link in between
    ]
