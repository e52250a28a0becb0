"""What tests of all rooms share."""

import gc
import os
from pathlib import Path

import keep_bytecode  # noqa: F401  importing it is what it is for: it switches bytecode on before all other imports
import pytest
from hypothesis import HealthCheck, settings

# Garbage is looked for as seldom as in a process of a command (helmsman.cli.app): it is a sixth of the time of a plan.
gc.set_threshold(50_000, 20, 100)

for library in ("OPENBLAS", "OMP"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")  # oracles are small, and workers have a core each

settings.register_profile("any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any speed")

HERE = Path(__file__).parent
ROOMS = ("faults", "docs", "e2e", "fuzz", "gate", "studies", "service", "executor", "cli", "planner", "analysis",
         "benchmarks", "library", "lowering", "simulator", "client", "schemas", "scheduler", "hwdb", "engines",
         "detection")  # fmt: skip
"""Folders of tests in the order in which they run: first those of long files, so that the last file of one worker does
not keep another waiting."""


def pytest_configure(config: pytest.Config) -> None:
    """Workers take files in the order of `ROOMS`, not of their numbers of tests."""
    config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Other folders come first."""
    places = {room: place for place, room in enumerate(ROOMS)}
    items.sort(key=lambda item: places.get(item.path.relative_to(HERE).parts[0], -1))


def pytest_collection_finish() -> None:
    """Modules and tests stay until the end: collections of garbage need not walk over them, 0.2 s with torch, again."""
    gc.collect()
    gc.freeze()
