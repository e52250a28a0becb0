"""schemathesis against the service's own description: no server errors, no undocumented answers."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.planner_clients import WebServer

_CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
_OPERATIONS = 19
"""Operations of the service: each has its share of the cases."""
_LIMITS = ("-q", "--rate", "100000", "--client-jobs", "4", "--job-time", "5s")
"""Few jobs, and short ones: those that are refused are answers too."""


def check(cases: int, seed: int) -> None:
    """Send about so many cases, and print what was found. Raises SystemExit with schemathesis' own status."""
    with tempfile.TemporaryDirectory(prefix="helm-web-") as folder:
        log = Path(folder) / "log"
        server = WebServer(Path(folder) / "store", *_LIMITS, log=log).wait()
        try:
            command = [sys.executable, "-m", "schemathesis.cli", "run", f"http://127.0.0.1:{server.port}/openapi.json"]
            command += ["--checks", ",".join(_CHECKS), "--max-examples", str(max(1, cases // _OPERATIONS))]
            command += ["--seed", str(seed), "--continue-on-failure", "--no-color"]
            command += ["--phases", "examples,coverage,fuzzing", "--request-timeout", "60"]
            run = subprocess.run(command, capture_output=True, text=True, check=False)
        finally:
            print(f"MiB of its own: {server.resident()}; ended within {server.stop():.2f} s")
        print(run.stdout[-8000:], run.stderr[-2000:])
        mistakes = len(re.findall("internal error", log.read_text()))
        print(f"{mistakes} internal errors in the log")
        if mistakes:
            print(log.read_text()[-4000:])
        raise SystemExit(run.returncode or bool(mistakes))
