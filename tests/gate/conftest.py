from functools import partial
from pathlib import Path

import pytest
from gate_cases import MakeCase, make_gate_case


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    folder = tmp_path / "gate"
    folder.mkdir()
    return folder


@pytest.fixture
def make_case(suite: Path) -> MakeCase:
    """make_case(name, seconds, **fields): a case of the suite."""
    return partial(make_gate_case, suite)
