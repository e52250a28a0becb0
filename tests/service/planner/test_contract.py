"""The command that checks the contract: one clear line where what it needs is not there."""

import sys
from pathlib import Path

import pytest
from benchmarks import planner_contract, planner_service


def test_without_schemathesis_it_says_how_to_have_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(planner_contract, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "argv", ["planner_service", "contract"])
    assert planner_service.main() == 2
    told = capsys.readouterr()
    assert told.err == (
        "schemathesis is not installed; pip install schemathesis, here or in an environment of its own, whose program "
        "--schemathesis names\n"
    )
    assert told.out == ""


def test_a_program_that_is_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "schemathesis"
    monkeypatch.setattr(sys, "argv", ["planner_service", "contract", "--schemathesis", str(place)])
    assert planner_service.main() == 2
    told = capsys.readouterr().err
    assert "--schemathesis: cannot be run" in told and str(place)[:40] in told and told.count("\n") == 1
    place.write_text("#!/bin/sh\n")
    place.chmod(0o700)
    assert planner_contract.tool(place) == [str(place)]
