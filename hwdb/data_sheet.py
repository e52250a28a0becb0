"""Says what the data sheet of a device has: the rates that constants of engines are shares of."""

from helmsman.hwdb.catalogue import find_gpu
from helmsman.hwdb.classes import find_class
from helmsman.schemas.errors import HelmError
from helmsman.schemas.hardware import Device


def sheet_rates(device: Device) -> tuple[float, float]:
    """Return bytes/s and FLOP/s of an accelerator's data sheet, times what edits multiplied them by; of an unknown
    product what its record comes to."""
    try:
        gpu, _ = find_gpu(device.product or "")
    except HelmError:
        sustained = find_class(device.device_class).sustained.value if device.device_class else 1.0
        return device.read.value / sustained, device.compute[0].flops.value
    return gpu.bandwidth * device.edited.read, gpu.flops * device.edited.flops
