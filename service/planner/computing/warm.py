"""Loads the planner before the first question comes: each worker is a copy of the process that has imported this.

A plan is made, so that documents and tables that are read with the first question are there too: by a strategy without
a solver, whose threads no copy would have."""

from pathlib import Path

from helmsman.planner.registry import OWN, RECOMMENDED, method
from helmsman.service.planner.computing.answer import WorkerAnswer
from helmsman.service.planner.computing.tasks import TASKS, TaskSetting, WorkerTask
from helmsman.service.planner.questions.catalogue import Catalogue

_QUESTION = b'{"model": "Qwen3-0.6B", "hardware": "rtx4060-laptop", "strategy": "layer-split"}'


def _warm() -> WorkerAnswer:
    """Load every strategy, and answer a question."""
    for name in (RECOMMENDED, *OWN):
        method(name)
    setting = TaskSetting(Catalogue(), Path(), Path(), 1)
    return TASKS["plan"](WorkerTask("", _QUESTION, setting, lambda done, total: None))


WARMED = _warm()
"""The answer to the first question, which nobody asked."""
