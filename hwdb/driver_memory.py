"""The memory of a card as its driver reports it to programs: less than the data sheet's, by what error correction and
the driver keep.

Fitted to totals that programs print: vLLM's logs (`total_gpu_memory`) and PyTorch's `total_memory`, of cards from 8 to
96 GB, which it meets within 0.2 GiB (`tests/hwdb/test_driver_memory.py` has them)."""

import re

GIB = 2**30

_KEPT = round(0.30 * GIB), 0.0085
"""Bytes that the driver keeps of every card, and the part of its memory that it keeps beside."""

_CORRECTED = 15, 16
"""The part of GDDR memory that is left where error correction keeps its codes there."""

_CORRECTING = re.compile(r"^(A2|A10|A10G|A16|A40|L2|L4|L20|L40|L40S|T4|Tesla P4|Tesla P40)\b")
"""Cards with GDDR memory whose drivers correct errors unless told not to; memory stacked beside the chip has codes of
its own, and on workstations' cards correction is off."""


def reported_bytes(product: str, capacity: int) -> int:
    """Return bytes of memory that the driver of a card reports, of `capacity` by its data sheet."""
    kept, part = _KEPT
    left, of = _CORRECTED if _CORRECTING.match(product) else (1, 1)
    return capacity * left // of - kept - round(part * capacity)
