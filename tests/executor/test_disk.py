"""The disk tier."""

import errno
import os
import shutil
import subprocess
import sys
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


REFUSING = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/types.h>

static int refuses(int file) {
  return getenv("REFUSE_OPEN") == NULL && (fcntl(file, F_GETFL) & O_DIRECT) != 0;
}

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  int mode = flags & O_CREAT ? va_arg(rest, int) : 0;
  va_end(rest);
  if (flags & O_DIRECT && getenv("REFUSE_OPEN") != NULL) {
    errno = atoi(getenv("REFUSE_OPEN"));
    return -1;
  }
  int (*real)(const char*, int, ...) = dlsym(RTLD_NEXT, "open");
  return real(path, flags, mode);
}

ssize_t pread(int file, void* target, size_t size, off_t at) {
  if (refuses(file)) return errno = EINVAL, -1;
  ssize_t (*real)(int, void*, size_t, off_t) = dlsym(RTLD_NEXT, "pread");
  return real(file, target, size, at);
}

ssize_t pwrite(int file, const void* source, size_t size, off_t at) {
  if (refuses(file) && getenv("REFUSE_WRITES") != NULL) return errno = EINVAL, -1;
  ssize_t (*real)(int, const void*, size_t, off_t) = dlsym(RTLD_NEXT, "pwrite");
  return real(file, source, size, at);
}
"""
"""A file system that does not do what it is asked directly: when a file is opened, or only with the first transfer."""

USE = """
import sys
from helmsman.executor._kernels import Arena, DiskFile
size = (5 << 20) + 123
data = bytes(range(251)) * (size // 251 + 1)
file = DiskFile(sys.argv[1], 4096 + size, True, True)
opened = file.direct
file.write(4096, data[:size], size)
wrote = file.direct
target = Arena(size + 4096).alloc(size + 64, "target")
file.read(4096, target, 64, size)
assert bytes(memoryview(target))[64:] == data[:size]
print(opened, wrote, file.direct)
"""


@pytest.mark.parametrize(
    ("refused", "direct"),
    [
        ({"REFUSE_OPEN": str(errno.EINVAL)}, "False False False"),
        ({"REFUSE_OPEN": str(errno.EOPNOTSUPP)}, "False False False"),
        ({"REFUSE_WRITES": "1"}, "True False False"),
        ({}, "True True False"),
    ],
    ids=["open, EINVAL", "open, EOPNOTSUPP", "first write", "first read"],
)
def test_file_systems_without_direct_transfers_are_used_buffered(
    tmp_path: Path, refused: dict[str, str], direct: str
) -> None:
    """With the compiler that built the kernels."""
    compiler = shutil.which("cc") or "gcc"
    (tmp_path / "refuse.c").write_text(REFUSING)
    library = tmp_path / "refuse.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "refuse.c", "-ldl"], check=True)
    told = subprocess.run(
        [sys.executable, "-c", USE, str(tmp_path / "tier")],
        env={**os.environ, "LD_PRELOAD": str(library), **refused},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.stdout.split("\n")[0] == direct, told.stderr


def test_what_has_no_direct_transfers_may_still_be_no_file() -> None:
    """procfs refuses to be opened for them; what follows is the error of a buffered file."""
    with pytest.raises((OSError, ValueError), match="/proc/self/comm"):
        DiskFile("/proc/self/comm", 4096, True, False)


def test_bad_ranges_are_refused(tmp_path: Path) -> None:
    file = DiskFile(str(tmp_path / "tier"), 8192, False, True)
    target = Arena(8192).alloc(8192, "target")
    for offset, at, size in ((1, 0, 1), (4096, 0, 4097), (0, 8000, 500), (-4096, 0, 1)):
        with pytest.raises(ValueError, match=r"multiple|do not fit|must be"):
            file.read(offset, target, at, size)
