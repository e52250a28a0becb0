"""What tests of driven engines share: quick facts and probes of the machine, and a file that calls itself a model."""

from pathlib import Path

import pytest

from helmsman.engines import ask_run, contest, rounds, side_by_side
from helmsman.hwdb.machine_line import MachineFacts
from helmsman.schemas.trace import Probe

FACTS = MachineFacts("A processor", 2, ("avx2",), {1: 1e10})


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing read memory for its speed, and nothing be disturbed by what else runs."""
    for module in (ask_run, contest, side_by_side):
        monkeypatch.setattr(module, "facts_here", lambda machine: FACTS)
    for measuring in (ask_run, rounds, side_by_side):
        monkeypatch.setattr(measuring, "others_share", lambda before, after: None)
    monkeypatch.setattr(ask_run, "disturbance", lambda before, after: 0.0)
    monkeypatch.setattr(
        ask_run, "read_probe", lambda plan, machine, run: Probe(what="read", name="cpu-all", run=run, value=1e10)
    )


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    place = tmp_path / "m.gguf"
    place.write_bytes(b"GGUF")
    return place
