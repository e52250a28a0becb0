"""Finds an engine of the user's environment: a Python package in an interpreter, else a program on the path."""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from helmsman.gate.interpreters import check_interpreter
from helmsman.schemas.errors import HardwareUnavailableError, UsageError

DrivenName = Literal["llama.cpp", "openvino-genai"]
DRIVEN: tuple[DrivenName, ...] = ("llama.cpp", "openvino-genai")
"""Engines that are driven here."""

Purpose = Literal["run", "tests"]
"""run: a prompt is continued; tests: prompts and decode steps are timed as llama-bench does."""

_PATIENCE_S = 60.0
"""Seconds that an interpreter may take to say which version of a package it has."""


@dataclass(frozen=True, slots=True)
class EngineProgram:
    """A program that runs an engine: an interpreter with the engine's `package`, or a program of the engine itself.
    `version`: as the engine says it, empty where it does not."""

    engine: DrivenName
    kind: Literal["package", "llama-server", "llama-bench"]
    path: str
    version: str = ""

    @property
    def title(self) -> str:
        """Return the engine with what runs it: `llama.cpp (llama-cpp-python 0.3.36)`."""
        how = _DISTRIBUTIONS[self.engine] if self.kind == "package" else self.kind
        return f"{self.engine} ({f'{how} {self.version}'.strip()})"


_PACKAGES: dict[DrivenName, str] = {"llama.cpp": "llama_cpp", "openvino-genai": "openvino_genai"}
_DISTRIBUTIONS: dict[DrivenName, str] = {"llama.cpp": "llama-cpp-python", "openvino-genai": "openvino-genai"}
_PROGRAMS: dict[tuple[DrivenName, Purpose], Literal["llama-server", "llama-bench"]] = {
    ("llama.cpp", "run"): "llama-server",
    ("llama.cpp", "tests"): "llama-bench",
}


def find_program(engine: str, purpose: Purpose, python: Path | None = None) -> EngineProgram:
    """Return what runs an engine: its package in the interpreter `python`, in this one, or a program on the path.

    Raises UsageError for an engine that is not driven and for no interpreter, HardwareUnavailableError where the
    engine is not there."""
    name = next((known for known in DRIVEN if known == engine), None)
    if name is None:
        remedy = f"use one of {', '.join(DRIVEN)}"
        raise UsageError("no engine that can be driven", field="engine", value=engine, remedy=remedy)
    if python is not None:
        interpreter = check_interpreter(python, "engine_python", f"an environment that has {_DISTRIBUTIONS[name]}")
        version = _version(interpreter, name)
        if version is None:
            problem, remedy = f"this interpreter has no {_PACKAGES[name]}", f"install {_DISTRIBUTIONS[name]} there"
            raise HardwareUnavailableError(problem, field="engine_python", value=str(python), remedy=remedy)
        return EngineProgram(name, "package", interpreter, version)
    if find_spec(_PACKAGES[name]) is not None:
        return EngineProgram(name, "package", sys.executable, _version(sys.executable, name) or "")
    program = _PROGRAMS.get((name, purpose))
    path = None if program is None else shutil.which(program)
    if program is None or path is None:
        remedy = f"name an interpreter that has {_DISTRIBUTIONS[name]} with `engine_python`"
        remedy += "" if program is None else f", or put {program} on the path"
        raise HardwareUnavailableError(f"{name} is not here", field="engine", value=engine, remedy=remedy)
    return EngineProgram(name, program, path)


def _version(python: str, engine: DrivenName) -> str | None:
    """Return the version of an engine's package in an interpreter, empty where it is not said; None without it."""
    code = (
        "import importlib.metadata as m, importlib.util as u, sys\n"
        f"sys.exit(3) if u.find_spec({_PACKAGES[engine]!r}) is None else None\n"
        f"print(m.version({_DISTRIBUTIONS[engine]!r}))"
    )
    try:
        done = subprocess.run(
            [python, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PATIENCE_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode == 0:
        return done.stdout.strip()[:100]
    return None if done.returncode == 3 else ""
