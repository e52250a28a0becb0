"""Cases of the gate for tests: each is measured by a command that prints the next seconds of a list."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from plans import make_plan
from shapes import small_model

PROGRAM = """
import pathlib
path = pathlib.Path(__file__).with_name("seconds.txt")
first, *rest = path.read_text().split()
path.write_text(" ".join([*rest, first]))
print('{"step": %s}' % first)
"""

STEADY = tuple(1.7e-4 * (1.0 + number / 500) for number in (0, 3, 1, 4, 2, 5, 1.5, 3.5))
"""Seconds of a step near those that the plan predicts."""

MakeCase = Callable[..., Path]


def make_gate_case(suite: Path, name: str = "tiny", seconds: Sequence[float] = STEADY, **fields: object) -> Path:
    """Make a case measured by a command that prints `seconds`, one each run; `fields`: others of its document."""
    folder = suite / name
    folder.mkdir()
    (folder / "plan.json").write_text(make_plan(small_model("llama"), 2).to_json())
    (folder / "print.py").write_text(PROGRAM)
    set_seconds(folder, seconds)
    measure = {"by": "command", "argv": ["{python}", "-S", "{case}/print.py"]}
    content = {"schema": "helm.gate-case/1", "plan": "plan.json", "measure": measure, "runs": len(STEADY)}
    (folder / "case.json").write_text(json.dumps(content | fields))
    return folder


def set_seconds(folder: Path, seconds: Sequence[float]) -> None:
    (folder / "seconds.txt").write_text(" ".join(f"{value:.9f}" for value in seconds))
