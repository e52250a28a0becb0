"""What tests of all rooms share."""

import gc
import os

from hypothesis import HealthCheck, settings

for library in ("OPENBLAS", "OMP"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")  # oracles are small, and workers have a core each

settings.register_profile("any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any speed")


def pytest_collection_finish() -> None:
    """Modules and tests stay until the end: collections of garbage need not walk over them, 0.2 s with torch, again."""
    gc.collect()
    gc.freeze()
