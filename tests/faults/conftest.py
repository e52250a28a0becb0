"""What all tests of faults share: the files that commands read while the system fails beneath them, and the process
that forks the commands."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import Forking
from faulty_commands import prepare


@pytest.fixture(scope="session")
def forking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forking]:
    """Forks commands; what one imports, those after it have."""
    with Forking(tmp_path_factory.mktemp("library")) as found:
        yield found


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a machine, plans and a checkpoint that commands read, and `outputs` for what they write."""
    folder = tmp_path_factory.mktemp("inputs")
    prepare(folder)
    return folder
