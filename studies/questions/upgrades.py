"""Single upgrades of a machine that can be bought: another GPU, one more, faster or more memory, a wider link."""

from collections.abc import Iterator

from helmsman.hwdb.another_gpu import MOST_GPUS
from helmsman.hwdb.catalogue import find_gpu
from helmsman.schemas.hardware import Device, Hardware

CARDS = (
    "RTX 3060 12GB", "RTX 5060 Ti 16GB", "RTX 4070 Ti SUPER", "RTX 5070 Ti", "RTX 3090", "RTX 4090", "RTX 5090",
    "RX 9070 XT", "RX 7900 XTX", "RTX PRO 6000 Blackwell 96GB",
)  # fmt: skip
"""Cards of the catalogue that are offered: others are asked about by name, `gpu=NAME`."""


def single_upgrades(hardware: Hardware) -> tuple[str, ...]:
    """Return the changes to ask about, as studies write them; of a chip whose GPU reads the processors' memory none of
    its parts but that memory."""
    hosts = {device.memory for device in hardware.devices if device.kind == "cpu"}
    gpus = [device for device in hardware.devices if device.kind != "cpu"]
    if any(device.memory in hosts for device in gpus):
        return ("ram=x2", "dram_bw=x2")
    return (*_cards(hardware, gpus), *_around(gpus), "dram_bw=x2", "ram=x2")


def _cards(hardware: Hardware, gpus: list[Device]) -> Iterator[str]:
    """Yield cards that have more memory than the machine's own, or read it faster."""
    own = hardware.memory(gpus[0].memory) if gpus else None
    for name in CARDS:
        card = find_gpu(name)[0]
        larger = own is None or card.capacity > own.capacity
        faster = own is None or card.bandwidth > own.bandwidth.value * _FASTER
        if larger or (faster and own is not None and card.capacity >= own.capacity):
            yield f"gpu={name}"


_FASTER = 1.1
"""A card that reads less than so many times as fast is no upgrade."""


def _around(gpus: list[Device]) -> Iterator[str]:
    if gpus:
        yield "link=x2"
    if gpus and len(gpus) < MOST_GPUS:
        yield "+1 gpu"
