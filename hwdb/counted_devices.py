"""Several equal devices by name: `2x NAME`, or `NAME, NAME`."""

from typing import Literal

from helmsman.hwdb.catalogue import find_cpu, find_gpu, read_catalogue
from helmsman.hwdb.device_names import listed_names
from helmsman.schemas.errors import UsageError

MAX_EQUAL = 8
"""Equal GPUs, or sockets, of one machine."""


def counted(text: str, kind: Literal["gpu", "cpu"], field: str) -> tuple[int, str]:
    """Return the count and the name of `2x NAME`, of NAME alone, and of equal names with `,`, `+`, `&` or `and`
    between; `field`: what the text was given as.

    Raises UsageError for a number that no machine has, and for different devices."""
    named = listed_names(text, read_catalogue(f"{kind}s")[f"{kind}s"])
    find = find_gpu if kind == "gpu" else find_cpu
    if len(named) > 1 and len({find(name)[0].name for _, name in named}) > 1:
        remedy = "name equal ones, as 2x NAME, or write a record of the machine (docs/how-to/add-machine.md)"
        raise UsageError("different devices cannot be composed by name", field=field, value=text, remedy=remedy)
    count = sum(number for number, _ in named)
    if not 1 <= count <= MAX_EQUAL:
        raise UsageError("not a number of devices", field=field, value=text, remedy=f"use 1x to {MAX_EQUAL}x NAME")
    return count, named[0][1]
