"""A file whose bytes are read where they are asked for, and never mapped: one that shrinks meanwhile is an error, where
a mapping of it would end the process."""

import weakref
from pathlib import Path

from helmsman.schemas.errors import BadInputError
from helmsman.schemas.read import check_regular


class FileBytes:
    """An open file that had `size` bytes when it was opened. One thread at a time may read it."""

    def __init__(self, path: Path) -> None:
        """Open `path`. Raises BadInputError where it cannot be read, or is no file."""
        self.path = path
        try:
            check_regular(path)
            self._file = path.open("rb", buffering=0)
            self._close = weakref.finalize(self, self._file.close)
            self.size = self._file.seek(0, 2)
        except OSError as error:
            raise _unreadable(path, error.strerror) from None

    def close(self) -> None:
        """Close it; it cannot be read afterwards."""
        self._close()

    def read(self, start: int, stop: int, field: str) -> bytes:
        """Return bytes [start, stop), which are for `field`. Raises BadInputError where the file does not have them."""
        content = bytearray(stop - start)
        self.read_into(memoryview(content), start, field)
        return bytes(content)

    def read_into(self, target: memoryview, start: int, field: str) -> None:
        """Fill `target`, contiguous bytes, with those from `start` on. Raises BadInputError as `read` does."""
        filled = 0
        try:
            self._file.seek(start)
            while filled < len(target):
                count = self._file.readinto(target[filled:])
                if not count:
                    raise self._shorter(field)
                filled += count
        except OSError as error:
            raise _unreadable(self.path, error.strerror, field) from None

    def _shorter(self, field: str) -> BadInputError:
        message = f"shorter than when it was opened: it had {self.size} bytes"
        remedy = "leave it as it is while it is read; if it is damaged, write or download it again"
        value = self._file.seek(0, 2)
        return BadInputError(message, file=str(self.path), field=field, value=value, remedy=remedy)


def _unreadable(path: Path, why: str | None, field: str | None = None) -> BadInputError:
    remedy = "check the path and its permissions"
    return BadInputError(f"cannot be read: {why}", file=str(path), field=field, remedy=remedy)
