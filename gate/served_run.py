"""One run of a server: `helm-serve` in a process of its own, requests replayed against it, and what they waited for."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

from helmsman.gate.cases import Case
from helmsman.gate.expectation import SERVED
from helmsman.gate.interpreters import helm_command
from helmsman.gate.processes import last_line, printed_by
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.gate_case import ServeMeasure
from helmsman.schemas.read import read_document
from helmsman.schemas.served_table import ServedTable, read_served
from helmsman.schemas.server_ready import ServerReady

_POLL_S = 0.05
_GRACE_S = 60.0
"""Seconds that a server gets to end."""


def served_figures(case: Case, how: ServeMeasure, python: str, folder: Path) -> dict[str, float]:
    """Return the median latencies of the requests of one run, with a new server.

    Raises BadInputError where the server does not come up or a request is not answered."""
    table = folder / "served.parquet"
    requests = how.requests if how.requests.startswith("synthetic:") else str(case.path(how.requests))
    with _server(case, how, python, folder) as url:
        argv = helm_command(python, "bench_serve", "--url", url, "--requests", requests, "-o", table, "-q")
        printed_by(argv, case.folder, how.limit_s, str(case.file), "measure")
    return _medians(read_served(table), str(case.file))


@contextmanager
def _server(case: Case, how: ServeMeasure, python: str, folder: Path) -> Iterator[str]:
    """Start a server, give its URL, and end it."""
    ready, log = folder / "ready.json", folder / "server.log"
    ready.unlink(missing_ok=True)
    argv = helm_command(
        *(python, "serve", case.plan_file, "--checkpoint", case.path(how.checkpoint), "--policy", how.policy),
        *("--port", 0, "-q", "-o", ready),
    )
    with log.open("wb") as err, subprocess.Popen(argv, cwd=case.folder, stdout=err, stderr=err) as process:
        try:
            _wait(process, ready, how.limit_s, log, str(case.file))
            yield read_document(ServerReady, ready).url
        finally:
            process.terminate()
            try:
                process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait(process: "subprocess.Popen[bytes]", ready: Path, limit_s: float, log: Path, file: str) -> None:
    """Wait until the server says that it is ready. Raises BadInputError where it ends, or takes too long."""
    until = monotonic() + limit_s
    while not ready.exists():
        if process.poll() is not None:
            told = last_line(log.read_text(errors="replace"))
            message, value = f"the server fails: {told}", f"exit code {process.returncode}"
            raise BadInputError(message, file=file, field="measure", value=value, remedy="run helm-serve by hand")
        if monotonic() > until:
            remedy = "serve a smaller model, or allow more with limit_s"
            raise BadInputError("the server does not come up", file=file, field="measure.limit_s", remedy=remedy)
        sleep(_POLL_S)


def _medians(table: ServedTable, file: str) -> dict[str, float]:
    from helmsman.simulator.serving.report import report

    served = report(table)
    if served.counts.finished < served.counts.asked:
        lost = served.counts.asked - served.counts.finished
        remedy = "ask for less at once, or see what helm-bench-serve says"
        raise BadInputError("requests were not answered", file=file, field="measure", value=lost, remedy=remedy)
    spreads = {figure: getattr(served.latency, figure) for figure in SERVED}
    return {figure: spread.p50 for figure, spread in spreads.items() if spread is not None}
