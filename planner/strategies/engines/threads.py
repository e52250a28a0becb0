"""A machine whose processors an engine works on with fewer threads than they have cores.

Fewer threads do as much less arithmetic, and read memory more slowly once they cannot keep its channels busy: as
measured with so many threads where the machine's record has that, else as cores of the class do at most, which is known
within a factor of 2.5, and as one socket's memory does for threads that fit there. More threads than cores gain nothing
here."""

import re

from helmsman.hwdb.core_reads import CORE_READS, CORE_READS_SOURCE, read_by
from helmsman.hwdb.machine_line import facts_of
from helmsman.schemas.errors import UsageError
from helmsman.schemas.figures import Figure, scaled_figure
from helmsman.schemas.hardware import Device, Hardware

MOST_THREADS = 4096


def check_threads(threads: int | None) -> None:
    """Raise UsageError for what is no number of threads."""
    if threads is not None and not 1 <= threads <= MOST_THREADS:
        remedy = f"use 1 to {MOST_THREADS}, or leave it out for all cores"
        raise UsageError("not a number of threads", field="threads", value=threads, remedy=remedy)


def with_threads(hardware: Hardware, threads: int | None) -> Hardware:
    """Return the machine whose processors work with so many threads; None: with all cores."""
    if threads is None:
        return hardware
    devices = tuple(_with_fewer(device, threads, hardware) for device in hardware.devices)
    sources = {**hardware.sources, CORE_READS: CORE_READS_SOURCE}
    return hardware.model_copy(update={"devices": devices, "sources": sources})


def _with_fewer(device: Device, threads: int, hardware: Hardware) -> Device:
    """Return a processor with fewer threads than cores; any other device as it is."""
    if device.kind != "cpu" or device.cores is None or threads >= device.cores:
        return device
    share = threads / device.cores
    compute = tuple(row.model_copy(update={"flops": scaled_figure(row.flops, share)}) for row in device.compute)
    return device.model_copy(update={"cores": threads, "compute": compute, "read": _read(device, threads, hardware)})


def _read(device: Device, threads: int, hardware: Hardware) -> Figure:
    """Return the reads of so many threads: those of all cores, scaled as measured, or what they reach at most."""
    facts = facts_of(hardware)
    reads = {} if facts is None else facts.reads
    if threads in reads:
        return scaled_figure(device.read, min(1.0, reads[threads] / max(reads.values())))
    most = read_by(threads, device.device_class)
    limits = (most, _of_one_socket(device, threads), device.read)
    return min((limit for limit in limits if limit is not None), key=lambda limit: limit.value)


def _of_one_socket(device: Device, threads: int) -> Figure | None:
    """Return what the memory of one socket hands out, to which threads that fit there are mostly kept (15 rows of two
    sources, with half as many threads as cores on two sockets); None for more threads, and for one socket."""
    sockets = re.match(r"(\d+)x ", device.product or "")
    if sockets is None or device.cores is None or threads * int(sockets[1]) > device.cores:
        return None
    read = device.read
    return Figure(value=read.value / int(sockets[1]), p10=read.p10 / int(sockets[1]), p90=read.p90, source=CORE_READS)
