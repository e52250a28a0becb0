"""What solvers print does not reach standard output, which may be one JSON document."""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_output() -> Iterator[None]:
    """Discards what native code writes to standard output meanwhile; ours is not to print then."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        _flush_native()
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def _flush_native() -> None:
    """C's buffers are written now, not after standard output is back."""
    if os.name == "posix":
        ctypes.CDLL(None).fflush(None)
