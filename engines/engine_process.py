"""Fresh processes of an engine's interpreter that answer requests, a JSON object on a line each way."""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from helmsman.engines.programs import DrivenName, EngineProgram
from helmsman.gate.processes import last_line
from helmsman.schemas.errors import BadInputError, HardwareUnavailableError

_FOLDER = Path(__file__).parent / "workers"
WORKERS: dict[DrivenName, Path] = {
    "llama.cpp": _FOLDER / "llama_worker.py",
    "openvino-genai": _FOLDER / "openvino_worker.py",
}
_SHOWN = 300
"""Characters that are shown of what an engine says last."""
_ENDING_S = 5.0
"""Seconds that a process which has failed may take to end."""


def worker_command(program: EngineProgram, settings: Mapping[str, object]) -> list[str]:
    """Return the words that start the worker of an engine's package."""
    return [program.path, str(WORKERS[program.engine]), json.dumps(settings)]


class EngineProcess:
    """A process that has loaded a model. `peak`: bytes of resident memory once it had; `said`: what it writes beside
    its answers."""

    def __init__(self, process: "subprocess.Popen[str]", said: IO[bytes], name: str) -> None:
        """Wait until the model is loaded; `name`: of the engine, for errors. Raises as `answers`."""
        self._process, self._said, self._name = process, said, name
        self.peak = int(self._read()["peak"])

    def answers(self, request: Mapping[str, object]) -> Iterator[dict[str, Any]]:
        """Yield what the process answers to a request, the last one too. Raises BadInputError where it fails."""
        assert self._process.stdin is not None, "a pipe"
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failure() from None
        answer: dict[str, Any] = {}
        while not answer.get("done"):
            answer = self._read()
            yield answer

    def seconds(self, prompt: int, steps: int, depth: int) -> float:
        """Return the seconds of a prompt, or of decode steps, on top of `depth` tokens."""
        (answer,) = self.answers({"test": [prompt, steps, depth]})
        return float(answer["seconds"])

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None, "a pipe"
        try:
            answer = json.loads(self._process.stdout.readline())
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise self._failure()
        return answer

    def _failure(self) -> BadInputError:
        try:
            code = self._process.wait(_ENDING_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._said.seek(0)
        said = last_line(self._said.read().decode("utf-8", "replace"))[:_SHOWN]
        problem = f"{self._name} fails: {said}" if said else f"{self._name} fails and says nothing"
        remedy = "see that it loads this file by itself, with less context or fewer layers where memory is short"
        return BadInputError(problem, value=f"exit code {code}", remedy=remedy)


@contextmanager
def engine_process(command: Sequence[str], name: str) -> Iterator[EngineProcess]:
    """Start a process, and end it, whatever it does then; `name`: of the engine, for errors.

    Raises HardwareUnavailableError where it cannot be started, BadInputError where it does not load its model."""
    with TemporaryFile() as said:
        try:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True)
        except OSError as error:
            problem, remedy = f"cannot be started: {error.strerror}", "name another interpreter"
            raise HardwareUnavailableError(problem, field="engine_python", value=command[0], remedy=remedy) from None
        with process:
            try:
                yield EngineProcess(process, said, name)
            finally:
                process.kill()
                with suppress(BrokenPipeError):
                    if process.stdin is not None:
                        process.stdin.close()
