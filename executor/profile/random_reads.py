"""Reads of pages at random places of a disk, past the page cache, by one reader and by several at once.

Each reader is a queue of its own that reads one page after the other, so that as many reads are under way as there are
readers. What a page costs alone is latency; how many a second a drive answers shows with many."""

import shutil
from pathlib import Path
from statistics import median

import numpy as np

from helmsman.executor._kernels import DiskFile, Queue
from helmsman.executor.devices.memory import arena_beside
from helmsman.executor.profile.buffers import filled
from helmsman.executor.profile.samples import DiskSamples
from helmsman.schemas.storage import BLOCK
from helmsman.schemas.write import temporary

READERS = (1, 2, 4, 8, 16, 32)
FILE_BYTES = 256 << 20
"""Bytes of the file: more than a drive's controller reads ahead, and less than a second of writing."""
WRITTEN = 8 << 20
"""Bytes that are written at a time."""
READS = 64
"""Reads of every reader in a sample."""
SAMPLES = 5
TIME_LIMIT_S = 1.5
"""Seconds of reads after which no number of readers has another sample."""
_ROOM = 4
"""Times the file's bytes that have to be free."""


def measure_random_reads(folder: Path) -> DiskSamples | None:
    """Return the reads of the disk of a folder; None where it has no direct reads, no room, or cannot be written."""
    try:
        if shutil.disk_usage(folder).free < _ROOM * FILE_BYTES:
            return None
        with temporary(folder / "random-reads") as place:
            file = _written(place)
    except OSError:
        return None
    samples = DiskSamples(str(folder), {readers: [] for readers in READERS}, [])
    random, spent = np.random.default_rng(7), 0.0
    for number in range(SAMPLES):
        for readers in READERS:
            if number and spent > TIME_LIMIT_S:
                break
            times = _read(file, readers, random)
            took = float(times[:, :, 1].max() - times[:, :, 0].min())
            spent += took
            samples.rates[readers].append(readers * READS * BLOCK / took)
            if readers == 1:
                samples.latency.append(median((times[0, :, 1] - times[0, :, 0]).tolist()))
    return samples if file.direct else None


def _written(place: Path) -> DiskFile:
    """Return a file full of numbers, which loses its name at once, so that it ends with its reader."""
    file = DiskFile(str(place), FILE_BYTES, True, True)
    (source,) = filled([arena_beside(WRITTEN).alloc(WRITTEN, "profile")])
    for offset in range(0, FILE_BYTES, WRITTEN):
        file.write(offset, source, min(WRITTEN, FILE_BYTES - offset))
    return file


def _read(
    file: DiskFile, readers: int, random: np.random.Generator
) -> "np.ndarray[tuple[int, int, int], np.dtype[np.float64]]":
    """(readers, reads, 2): start and end of every read; all are submitted before any is awaited."""
    target = arena_beside(readers * BLOCK).alloc(readers * BLOCK, "profile")
    offsets = BLOCK * random.integers(0, FILE_BYTES // BLOCK, (readers, READS))
    times = np.zeros((readers, READS, 2))
    queues = [Queue() for _ in range(readers)]
    for number, queue in enumerate(queues):
        for place, offset in enumerate(offsets[number].tolist()):
            queue.read(file, offset, target, number * BLOCK, BLOCK, times[number, place].data)
    for queue in queues:
        queue.synchronize()
    return times
