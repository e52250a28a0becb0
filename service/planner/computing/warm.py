"""Loads the planner before the first question comes: each worker is a copy of the process that has imported this.

Questions of the page are answered, those of a visitor without a link and of one with a mixed file, so that documents
and tables that are read with a first question are there too: by a strategy without a solver, whose threads no copy
would have."""

import json
from pathlib import Path

from helmsman.planner.registry import OWN, RECOMMENDED, method
from helmsman.service.planner.computing.answer import WorkerAnswer
from helmsman.service.planner.computing.tasks import CATALOGUE, TASKS, TaskSetting, WorkerTask
from helmsman.service.planner.questions.catalogue import FIRST

_QUESTION = {"model": FIRST[0], "hardware": FIRST[1], "strategy": "layer-split", "context": 4096}
_FORMATS = ("q4_k", "q4_k_m")


def _warm() -> tuple[WorkerAnswer, ...]:
    """Load every strategy, and answer questions."""
    for name in (RECOMMENDED, *OWN):
        method(name)
    setting = TaskSetting(CATALOGUE, Path(), Path(), 1)
    questions = [json.dumps({**_QUESTION, "format": fmt}).encode() for fmt in _FORMATS]
    return tuple([TASKS["plan"](WorkerTask("", question, setting, lambda _, __: None)) for question in questions])


WARMED = _warm()
"""The answers to the first questions, which nobody asked."""
