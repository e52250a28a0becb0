"""Open NVIDIA's driver by its library and, with `load`, copy to every GPU for a moment and print what its link does
then: a line with the address, the speed and the width as the system's files have them, tabs between.

Run as a program of its own, without any package: the library may end the process. Ends with 1 and a line that says why
where it cannot be used."""

import ctypes
import sys
import time
from collections.abc import Iterator
from pathlib import Path

BYTES = 64 << 20
LOAD_S = 0.25
DEVICES = Path("/sys/bus/pci/devices")
_MOST = 16
"""GPUs that are asked."""


class DriverError(Exception):
    """Says what the driver refused, and with which number."""


def _checked(what: str, code: int) -> None:
    if code != 0:
        raise DriverError(f"{what} fails with error {code}")


def _links(cuda: ctypes.CDLL) -> Iterator[tuple[str, str, str]]:
    """Yield the address of every GPU, and the speed and the width of its link while data moves."""
    count = ctypes.c_int()
    _checked("cuDeviceGetCount", cuda.cuDeviceGetCount(ctypes.byref(count)))
    for number in range(min(count.value, _MOST)):
        device, context = ctypes.c_int(), ctypes.c_void_p()
        _checked("cuDeviceGet", cuda.cuDeviceGet(ctypes.byref(device), number))
        name = ctypes.create_string_buffer(32)
        _checked("cuDeviceGetPCIBusId", cuda.cuDeviceGetPCIBusId(name, len(name), device))
        _checked("cuCtxCreate", cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device))
        try:
            yield name.value.decode("ascii", "replace").lower(), *_under_load(cuda, name.value.decode().lower())
        finally:
            cuda.cuCtxDestroy_v2(context)


def _under_load(cuda: ctypes.CDLL, address: str) -> tuple[str, str]:
    """Return the speed and the width of a link after copies of `LOAD_S` seconds."""
    there, here = ctypes.c_uint64(), ctypes.c_void_p()
    _checked("cuMemAlloc", cuda.cuMemAlloc_v2(ctypes.byref(there), ctypes.c_size_t(BYTES)))
    _checked("cuMemAllocHost", cuda.cuMemAllocHost_v2(ctypes.byref(here), ctypes.c_size_t(BYTES)))
    end = time.monotonic() + LOAD_S
    speed = width = ""
    while time.monotonic() < end:
        _checked("cuMemcpyHtoD", cuda.cuMemcpyHtoD_v2(there, here, ctypes.c_size_t(BYTES)))
        speed, width = (_text(address, name) for name in ("current_link_speed", "current_link_width"))
    return speed, width


def _text(address: str, name: str) -> str:
    try:
        return (DEVICES / address / name).read_text().strip()
    except OSError:
        return ""


def main() -> int:
    """Open the library, and load links where that is asked."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
        _checked("cuInit", cuda.cuInit(0))
        for line in _links(cuda) if sys.argv[1:] == ["load"] else ():
            sys.stdout.write("\t".join(line) + "\n")
    except (OSError, AttributeError, DriverError) as error:
        sys.stdout.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
