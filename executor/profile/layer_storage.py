"""Storage as a source of weights: reads into the accelerator's memory while the link is busy too (PARK-39..42)."""

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np

from helmsman.executor._kernels import Buffer, DiskFile, Queue
from helmsman.executor.profile.layer import Layers, Seconds, matrices
from helmsman.executor.profile.layer_traffic import LayerTraffic
from helmsman.planner.cost.balance import BalancedShares, balance
from helmsman.schemas.errors import HardwareUnavailableError, UsageError, unwritable
from helmsman.schemas.storage import BLOCK, in_blocks
from helmsman.schemas.units import format_bytes
from helmsman.schemas.write import temporary

TIME_LIMIT_S = 3.0
ROUNDS = (3, 12)
ROOM = 1.1
"""A disk is not filled to the last byte."""


@dataclass
class DiskTimes:
    """One device: bytes free, whether its reads pass the page cache by, its share of every weight when all devices
    read at once, bytes/s of its reads into the accelerator's memory then, and into the host's; seconds of a block."""

    folder: Path
    free: int
    direct: bool
    share: float
    rates: list[float] = field(default_factory=list)
    host_rates: list[float] = field(default_factory=list)
    latency: list[float] = field(default_factory=list)


@dataclass
class StorageTimes:
    """All devices, and seconds of every operation's weights from all of them together.

    `balancing`: how even the shares became, measurement by measurement; None for one device. It took `balancing_s`;
    `disturbed`: the share of the time that others took."""

    disks: list[DiskTimes]
    seconds: Seconds = field(default_factory=dict)
    balancing: BalancedShares | None = None
    balancing_s: float = 0.0
    disturbed: float = 0.0


@dataclass(frozen=True, slots=True)
class _Stored:
    op: str
    name: str
    offset: int
    size: int
    target: int


@dataclass(frozen=True)
class _Reader:
    """A file with all weights of a layer, and the thread that reads it (PARK-39)."""

    file: DiskFile
    queue: Queue


def check_storage(folder: Path, size: int) -> None:
    """Raise UsageError for what is no folder, HardwareUnavailableError when `size` bytes do not fit there."""
    if not folder.is_dir():
        raise UsageError("is not a folder", field="storage", value=str(folder), remedy="name a folder on the device")
    free = shutil.disk_usage(folder).free
    if free < ROOM * size:
        raise HardwareUnavailableError(
            f"the weights of a layer take {format_bytes(size)}, and {format_bytes(free)} are free",
            file=str(folder),
            field="storage",
            remedy="free some space or choose another folder",
        )
    try:
        TemporaryFile(dir=folder).close()
    except OSError as error:
        raise unwritable(error, str(folder)) from None


def measure_storage(folders: Sequence[Path], cpu: int, layers: Layers, traffic: LayerTraffic) -> StorageTimes:
    """Balance the devices, then read a layer's weights again and again; reads are submitted by threads on CPU `cpu`."""
    plan = list(_stored(layers, traffic))
    readers = _readers(folders, cpu, layers, plan)
    began = time.monotonic()
    balancing = _balanced(readers, plan, traffic) if len(readers) > 1 else None
    took, shares = time.monotonic() - began, balancing.shares if balancing else (1.0,)
    disks = [
        DiskTimes(folder, shutil.disk_usage(folder).free, reader.file.direct, share)
        for folder, reader, share in zip(folders, readers, shares, strict=True)
    ]
    times = StorageTimes(disks, {}, balancing, took if balancing else 0.0)
    began, (least, most) = time.monotonic(), ROUNDS
    for number in range(most):
        if number >= least and time.monotonic() - began > TIME_LIMIT_S:
            break
        _round(times, readers, plan, traffic, layers, number)
    return times


def _readers(folders: Sequence[Path], cpu: int, layers: Layers, plan: list[_Stored]) -> list[_Reader]:
    """Write the weights into a file in each folder, and return what reads them. A file loses its name at once, so that
    it ends with its reader."""
    readers = []
    for folder in folders:
        try:
            with temporary(folder / "weights") as place:
                file = _written(place, layers, plan)
        except OSError as error:
            raise unwritable(error, str(folder)) from None
        readers.append(_Reader(file, Queue(cpu)))
    return readers


def _written(path: Path, layers: Layers, plan: list[_Stored]) -> DiskFile:
    """All weights of the layer on every device (PARK-39)."""
    file = DiskFile(str(path), sum(in_blocks(stored.size) for stored in plan), True, True)
    for stored in plan:
        file.write(stored.offset, layers.blocks[0][stored.name], stored.size)
    return file


def _stored(layers: Layers, traffic: LayerTraffic) -> Iterator[_Stored]:
    offset = 0
    for tensor in matrices(layers.question):
        size = layers.blocks[0][tensor.name].size
        yield _Stored(tensor.op, tensor.name, offset, size, traffic.arrival(tensor.name))
        offset += in_blocks(size)


def _balanced(readers: list[_Reader], plan: list[_Stored], traffic: LayerTraffic) -> BalancedShares:
    """Shares of the devices that finish together under simultaneous transfers."""

    def measure(shares: tuple[float, ...]) -> tuple[float, ...]:
        with traffic.flowing():
            times = _read(readers, plan, shares, traffic.sets[0])
        return tuple(float(seconds) for seconds in (times[:, :, 1] - times[:, :, 0]).sum(axis=1))

    return balance((1.0 / len(readers),) * len(readers), measure, tolerance=1.02)


def _round(
    storage_times: StorageTimes,
    readers: list[_Reader],
    plan: list[_Stored],
    traffic: LayerTraffic,
    layers: Layers,
    number: int,
) -> None:
    shares = tuple(disk.share for disk in storage_times.disks)
    with traffic.flowing():
        times = _read(readers, plan, shares, traffic.sets[number % len(traffic.sets)])
    for place, stored in enumerate(plan):
        storage_times.seconds.setdefault(stored.op, []).append(float((times[:, place, 1] - times[:, place, 0]).max()))
    for place, (disk, reader) in enumerate(zip(storage_times.disks, readers, strict=True)):
        size = sum(_parts(stored.size, shares)[place] for stored in plan)
        disk.rates.append(size / float((times[place, :, 1] - times[place, :, 0]).sum()))
        _alone(disk, reader, plan, layers.blocks[number % layers.count])


def _alone(disk: DiskTimes, reader: _Reader, plan: list[_Stored], block: Mapping[str, Buffer]) -> None:
    """A block for its latency, and the largest weight into the host's memory."""
    largest = max(plan, key=lambda stored: stored.size)
    times = np.zeros((2, 2))
    reader.queue.read(reader.file, largest.offset, block[largest.name], 0, BLOCK, times[0].data)
    reader.queue.read(reader.file, largest.offset, block[largest.name], 0, largest.size, times[1].data)
    reader.queue.synchronize()
    small, large = (float(end - start) for start, end in times)
    disk.latency.append(small)
    disk.host_rates.append(largest.size / large)


def _read(
    readers: list[_Reader], plan: list[_Stored], shares: tuple[float, ...], target: Buffer
) -> "np.ndarray[tuple[int, int, int], np.dtype[np.float64]]":
    """(devices, weights, 2): start and end of every part of every weight, all devices at once."""
    times = np.zeros((len(readers), len(plan), 2))
    for place, stored in enumerate(plan):
        first = 0
        for number, (reader, size) in enumerate(zip(readers, _parts(stored.size, shares), strict=True)):
            at = times[number, place].data
            reader.queue.read(reader.file, stored.offset + first, target, stored.target + first, size, at)
            first += size
    for reader in readers:
        reader.queue.synchronize()
    return times


def _parts(size: int, shares: tuple[float, ...]) -> list[int]:
    """`size` bytes by shares, in whole blocks but for the end of the last one."""
    parts, left = list[int](), size
    for share in shares[:-1]:
        parts.append(min(left // BLOCK, round(size * share / BLOCK)) * BLOCK)
        left -= parts[-1]
    return [*parts, left]
