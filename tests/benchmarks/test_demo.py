"""The demo's steps with commands that only say what they would: what it repeats, tells and returns."""

import json
import sys

import pytest
from benchmarks import demo


def written(name: str, content: dict) -> None:
    (demo.FOLDER / f"{name}.json").write_text(json.dumps(content))


def check_document(verdict: str, error: float) -> dict:
    made = {
        "seconds": 9.3e-3,
        "parts": [
            {"op": "time between tasks", "resource": "cpu", "seconds": 3.1e-3},
            {"op": "down", "resource": "loopback", "seconds": 1.9e-3},
        ],
    }
    disturbance = 0.22 if verdict == "disturbed" else 0.01
    return {
        "verdict": verdict, "step": {"scaled_error": error}, "request": {"scaled_error": error / 2},
        "judged": ["step", "request"], "tolerance": 0.08, "disturbance": disturbance,
        "step_difference": made, "ttft_difference": None,
    }  # fmt: skip


@pytest.fixture
def commands(monkeypatch, tmp_path):
    """commands(verdicts): the titles of the steps that ran, whose checks end with these verdicts."""
    monkeypatch.setattr(sys, "argv", ["demo"])
    monkeypatch.setattr(demo, "FOLDER", tmp_path)
    monkeypatch.setattr(demo.time, "sleep", lambda seconds: None)
    codes = {"passed": 0, "missed": demo.TARGET_MISSED, "disturbed": demo.DISTURBED}

    def make(*verdicts: str) -> list[str]:
        ran, left = [], list(verdicts)
        seconds = {"seconds": {"mid": 0.03}}
        written("plan", {"label": "a plan", "predicted": {"decode": seconds, "ttft": seconds}})
        written("simulated", {"tpot_s": 0.03, "ttft_s": 0.03})
        written("measured", {"tpot_s": 0.04, "ttft_s": 0.03})
        written("hardware", {"readings": [{"what": "disturbance"}, {"what": "read"}]})

        def step(title: str, *words: object, allowed: tuple[int, ...] = (0,)) -> int:
            ran.append(title)
            if title != "check":
                return 0
            verdict = left.pop(0)
            written("check", check_document(verdict, 0.0 if verdict == "passed" else 0.29))
            assert codes[verdict] in allowed
            return codes[verdict]

        monkeypatch.setattr(demo, "step", step)
        return ran

    return make


def test_a_kept_promise_ends_with_0(commands, capsys):
    ran = commands("passed")
    assert demo.main() == 0 and ran.count("run") == 1
    assert "the check passes: +0.0% a step and +0.0% a request" in capsys.readouterr().out


def test_a_missed_promise_ends_with_4_and_names_terms_and_disturbance(commands, capsys):
    ran = commands("missed")
    assert demo.main() == 4 and ran.count("run") == 1
    out = capsys.readouterr().out
    assert "MISSES: +29.0% a step and +14.5% a request at the speeds of the run, beyond 8.0%" in out
    assert "of +9.30 ms: time between tasks on cpu +3.10 ms, down on loopback +1.90 ms" in out
    assert "others took 1% of the time of the runs; 1 points of the profile are disturbed" in out
    assert "noisy" not in out


def test_only_disturbed_runs_are_repeated_and_not_for_ever(commands, capsys):
    ran = commands("disturbed", "missed")
    assert demo.main() == 4 and ran.count("run") == 2
    ran = commands("disturbed", "disturbed", "passed")
    assert demo.main() == 0 and ran.count("run") == 3
    ran = commands(*["disturbed"] * 4)
    assert demo.main() == demo.DISTURBED and ran.count("run") == demo.ATTEMPTS
    assert "says nothing" in capsys.readouterr().out
