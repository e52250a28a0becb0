"""What tests of all rooms share."""

import gc
import os

import pytest

for library in ("OPENBLAS", "OMP"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")  # oracles are small, and workers have a core each


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Coverage is measured by every test's first case alone: traced, they take two to four times as long.

    Files that compare searches with oracles at length are no part of it at all (`no_cover`)."""
    seen = set()
    for item in items:
        function = item.nodeid.partition("[")[0]
        if function in seen:
            item.add_marker(pytest.mark.no_cover)
        seen.add(function)


def pytest_collection_finish() -> None:
    """Modules and tests stay until the end: collections of garbage need not walk over them, 0.2 s with torch, again."""
    gc.collect()
    gc.freeze()
