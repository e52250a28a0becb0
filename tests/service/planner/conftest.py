"""One service for all tests that leave it as it was: it takes a second to start."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from web_service import OPTIONS, WebSite, web_site


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebSite]:
    store: Path = tmp_path_factory.mktemp("web") / "store"
    with web_site(store, OPTIONS) as running:
        yield running
