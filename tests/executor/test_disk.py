"""The disk tier."""

from pathlib import Path

import numpy as np
import pytest

from helmsman.executor._kernels import Arena, DiskFile


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


def test_bad_ranges_are_refused(tmp_path: Path) -> None:
    file = DiskFile(str(tmp_path / "tier"), 8192, False, True)
    target = Arena(8192).alloc(8192, "target")
    for offset, at, size in ((1, 0, 1), (4096, 0, 4097), (0, 8000, 500), (-4096, 0, 1)):
        with pytest.raises(ValueError, match=r"multiple|do not fit|must be"):
            file.read(offset, target, at, size)
