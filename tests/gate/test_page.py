"""The page about the gate: its case can be read, its workflow parses, and it explains every verdict and figure."""

import re
from pathlib import Path
from typing import get_args

import pytest
import yaml

from helmsman.gate.statistics import CONFIDENCE, LEAST_CHANGE, NOISES, SIGNIFICANCE, least_runs
from helmsman.gate.verdict import RESOLUTION
from helmsman.schemas.gate_case import MOST_PROCESSES, GateCase
from helmsman.schemas.gate_report import GateVerdict
from helmsman.schemas.read import parse_document

PAGE = (Path(__file__).parents[2] / "docs/gate.md").read_text()


def block(language: str) -> str:
    """Return the page's first fenced block of a language."""
    match = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert match is not None
    return match[1]


def test_the_case_is_one() -> None:
    case = parse_document(GateCase, block("json").encode(), "docs/gate.md")
    assert case.measure.by == "run" and case.runs == GateCase.model_fields["runs"].default < MOST_PROCESSES


def test_the_workflow_runs_both_comparisons() -> None:
    steps = yaml.safe_load(block("yaml"))["jobs"]["gate"]["steps"]
    commands = [step["run"] for step in steps if "helm-check" in step.get("run", "")]
    assert len(commands) == 2 and sum("--baseline-python" in command for command in commands) == 1
    assert all("--junit" in command and "--annotations" in command for command in commands)


@pytest.mark.parametrize("verdict", get_args(GateVerdict))
def test_every_verdict_is_explained(verdict: str) -> None:
    assert f"\n| `{verdict}` | " in PAGE


def test_the_page_names_the_numbers_in_use() -> None:
    assert f"max({LEAST_CHANGE:.0%}".replace("%", " %") in PAGE and f"{NOISES:g} x noise" in PAGE
    assert f"p < {SIGNIFICANCE:g}" in PAGE and f"{least_runs()} and {least_runs()} runs" in PAGE
    assert f"{RESOLUTION:.0%}".replace("%", " %") in PAGE and f"of {1 - CONFIDENCE:.0%}".replace("%", " %") in PAGE
