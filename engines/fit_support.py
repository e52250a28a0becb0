"""Whether what runs llama.cpp here can place layers and experts itself (`--fit`)."""

import json
import subprocess

from helmsman.engines.engine_process import WORKERS
from helmsman.engines.programs import EngineProgram
from helmsman.schemas.errors import HardwareUnavailableError

_PATIENCE_S = 60.0
"""Seconds that a program may take to say what it can do."""
_FLAG = "--fit-target"
"""The flag with which llama-bench fits (tools/llama-bench of llama.cpp)."""


def check_fit(program: EngineProgram) -> None:
    """Raise HardwareUnavailableError where the build of llama.cpp has no fit: its package no library with that
    function, or llama-bench no such flag."""
    if not (_of_package if program.kind == "package" else _of_bench)(program):
        remedy = "use a newer llama.cpp, whose llama-bench has --fit-target, or compare with its default"
        raise HardwareUnavailableError("this build has no --fit", field="engine", value=program.title, remedy=remedy)


def _of_package(program: EngineProgram) -> bool:
    try:
        answer = json.loads(_said([program.path, str(WORKERS[program.engine]), "--fit"]))
    except ValueError:
        return False
    return isinstance(answer, dict) and answer.get("fit") is True


def _of_bench(program: EngineProgram) -> bool:
    return _FLAG in _said([program.path, "--help"])


def _said(argv: list[str]) -> str:
    """Return what a program prints; nothing where it cannot be run."""
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=_PATIENCE_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
