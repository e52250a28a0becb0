"""The fixture `inputs`: the folder of files that commands read while a test lets the system fail beneath them."""

from pathlib import Path

import pytest
from faulty_commands import prepare


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a machine, plans and a checkpoint that commands read, and `outputs` for what they write."""
    folder = tmp_path_factory.mktemp("inputs")
    prepare(folder)
    return folder
