"""The disk tier."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from disks import largest_file

from helmsman.executor._kernels import Arena, DiskFile
from helmsman.schemas.errors import HardwareUnavailableError, UsageError, unwritable


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("shift", [0, 64])
def test_what_was_written_is_read(tmp_path: Path, direct: bool, shift: int) -> None:
    size = (5 << 20) + 123
    data = np.random.default_rng(1).integers(0, 256, size, np.uint8)
    DiskFile(str(tmp_path / "tier"), 4096 + size, direct, True).write(4096, data, size)
    target = Arena(size + 8192).alloc(size + 8192, "target")
    file = DiskFile(str(tmp_path / "tier"), 4096 + size, direct, False)
    file.read(4096, target, shift, size)
    found = np.frombuffer(memoryview(target), np.uint8)
    np.testing.assert_array_equal(found[shift : shift + size], data)
    assert not found[shift + size :].any()


def test_errors_name_the_path(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="absent"):
        DiskFile(str(tmp_path / "absent"), 4096, True, False)
    (tmp_path / "short").write_bytes(b"x")
    with pytest.raises(ValueError, match="has 1 bytes"):
        DiskFile(str(tmp_path / "short"), 4096, False, False)


@pytest.mark.parametrize("direct", [False, True])
def test_no_room_for_a_file(tmp_path: Path, direct: bool) -> None:
    with largest_file(1 << 20), pytest.raises(OSError, match="tier") as caught:
        DiskFile(str(tmp_path / "tier"), 2 << 20, direct, True)
    assert caught.value.errno == errno.EFBIG
    shown = unwritable(caught.value, str(tmp_path / "tier"))
    assert isinstance(shown, HardwareUnavailableError)
    assert "no room on the disk" in str(shown)
    assert "\n" not in str(shown)


@pytest.mark.parametrize("direct", [False, True])
def test_no_room_while_writing(tmp_path: Path, direct: bool) -> None:
    size = 2 << 20
    file = DiskFile(str(tmp_path / "tier"), size, direct, True)
    with largest_file(size // 2), pytest.raises(OSError, match="tier") as caught:
        file.write(0, bytes(size), size)
    assert caught.value.errno == errno.EFBIG
    file.write(0, bytes([5]) * size, size)


def test_a_place_that_may_not_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    if os.access(folder, os.W_OK):
        folder = Path("/proc/self")  # a superuser may write everywhere else
    with pytest.raises(OSError, match="tier") as caught:
        DiskFile(str(folder / "tier"), 4096, False, True)
    assert caught.value.errno in (errno.EACCES, errno.EPERM, errno.ENOENT, errno.EROFS)
    shown = unwritable(caught.value, str(folder / "tier"))
    assert isinstance(shown, UsageError)
    assert "cannot be written" in str(shown)


def test_a_device_is_no_place_for_a_file() -> None:
    with pytest.raises(OSError, match="/dev/full"):
        DiskFile("/dev/full", 4096, False, True)


def test_bad_ranges_are_refused(tmp_path: Path) -> None:
    file = DiskFile(str(tmp_path / "tier"), 8192, False, True)
    target = Arena(8192).alloc(8192, "target")
    for offset, at, size in ((1, 0, 1), (4096, 0, 4097), (0, 8000, 500), (-4096, 0, 1)):
        with pytest.raises(ValueError, match=r"multiple|do not fit|must be"):
            file.read(offset, target, at, size)
