"""schemathesis against the service's own description: no server errors, no undocumented answers."""

import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any
from urllib.request import urlopen

from benchmarks.planner_clients import WebServer
from helmsman.schemas.errors import UsageError

_CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
_TOOL = "schemathesis"
PHASES = "examples,coverage,fuzzing"
"""Phases of schemathesis. Coverage makes as many cases as the schemas have corners: tens of thousands here."""
_LIMITS = ("--rate", "100000", "--client-jobs", "4", "--job-time", "5s")
"""Few jobs, and short ones: those that are refused are answers too."""
_REQUEST = '"message": "request"'
"""Part of the lines of the log that are of requests."""


def tool(given: Path | None) -> list[str]:
    """Return the command of schemathesis: the program that is `given`, else what is installed here, else what PATH has.
    Raises UsageError where there is none."""
    if given is not None:
        if which(given) is None:
            remedy = "give the program of that name, in the folder bin of its environment"
            raise UsageError("cannot be run", field="--schemathesis", value=str(given), remedy=remedy)
        return [str(given)]
    if find_spec(_TOOL) is not None:
        return [sys.executable, "-m", f"{_TOOL}.cli"]
    program = which(_TOOL)
    if program is None:
        remedy = f"pip install {_TOOL}, here or in an environment of its own, whose program --schemathesis names"
        raise UsageError(f"{_TOOL} is not installed", remedy=remedy)
    return [program]


def check(cases: int, seed: int, given: Path | None = None, phases: str = PHASES, paths: str | None = None) -> None:
    """Send about so many cases of fuzzing, and those of other phases, and print what was found.

    `given`: the program of schemathesis; `paths`: a pattern of those of the operations that are asked, all as
    often. Raises UsageError where there is none, SystemExit with schemathesis' own status."""
    program = tool(given)
    with tempfile.TemporaryDirectory(prefix="helm-web-") as folder:
        log = Path(folder) / "log"
        server = WebServer(Path(folder) / "store", *_LIMITS, log=log).wait()
        try:
            operations = _operations(server.port, paths)
            command = [*program, "run", f"http://127.0.0.1:{server.port}/openapi.json"]
            command += ["--checks", ",".join(_CHECKS), "--max-examples", str(max(1, cases // operations))]
            command += ["--seed", str(seed), "--continue-on-failure", "--no-color"]
            command += ["--phases", phases, "--request-timeout", "60"]
            command += [] if paths is None else ["--include-path-regex", paths]
            command += [
                "--suppress-health-check",
                "too_slow",
            ]  # of making cases, on a machine that does other things too
            run = subprocess.run(command, capture_output=True, text=True, check=False)
        finally:
            print(f"MiB of its own: {server.resident()}; ended within {server.stop():.2f} s")
        print(run.stdout[-8000:], run.stderr[-2000:])
        lines = log.read_text().splitlines()
        requests = [json.loads(line) for line in lines if _REQUEST in line]
        _print_answers(requests)
        mistakes = [line for line in lines if "internal error" in line and _REQUEST not in line]
        print(f"{len(mistakes)} internal errors in the log", *mistakes[:20], sep="\n")
        raise SystemExit(run.returncode or bool(mistakes))


def _operations(port: int, paths: str | None) -> int:
    """Return how many operations of the service have paths that match a pattern."""
    with urlopen(f"http://127.0.0.1:{port}/openapi.json") as answer:
        described = json.load(answer)["paths"]
    return sum(len(methods) for path, methods in described.items() if re.search(paths or "", path))


def _print_answers(requests: list[dict[str, Any]]) -> None:
    """Print by operation how many requests the service answered, and with which status."""
    answers = Counter((f"{said['method']} {said['route']}", said["status"]) for said in requests)
    by_operation: dict[str, dict[int, int]] = {}
    for (operation, status), count in sorted(answers.items()):
        by_operation.setdefault(operation, {})[status] = count
    for operation, by_status in by_operation.items():
        print(f"{operation}: {sum(by_status.values())} requests; {by_status}")
    print(f"{answers.total()} requests")
