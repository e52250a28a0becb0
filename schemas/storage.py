"""Storage devices among a machine's memories: their kind, and the blocks in which they are read and written."""

from typing import Final

STORAGE: Final = "nvme"
"""The kind of a memory that is files on a device."""

BLOCK: Final = 4096
"""Bytes that direct reads are made of: whatever is kept in a file, or comes from one, begins at a multiple of this."""


def in_blocks(size: int) -> int:
    """`size` in whole blocks."""
    return -(-size // BLOCK) * BLOCK
