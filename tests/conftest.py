"""What tests of all rooms share."""

import pytest


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
