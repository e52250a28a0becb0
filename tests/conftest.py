"""What tests of all rooms share."""

import gc
import os

for library in ("OPENBLAS", "OMP"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")  # oracles are small, and workers have a core each


def pytest_collection_finish() -> None:
    """Modules and tests stay until the end: collections of garbage need not walk over them, 0.2 s with torch, again."""
    gc.collect()
    gc.freeze()
