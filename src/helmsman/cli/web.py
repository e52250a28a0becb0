"""`helm-web`: the planner over HTTP, with a web page."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from helmsman.cli.access_arguments import access_of, add_access_arguments, encryption_of
from helmsman.cli.app import run_command
from helmsman.cli.extras import check_installed
from helmsman.cli.output import emit
from helmsman.cli.parser import Parser, command_parser
from helmsman.schemas.errors import UsageError
from helmsman.schemas.units import parse_bytes, parse_seconds

if TYPE_CHECKING:
    from helmsman.service.planner.options import WebOptions

_NEEDED = ("fastapi", "uvicorn", "httptools", "prometheus_client")
_MOST_WORKERS = 256
_LEAST_MEMORY = 2**29
"""Bytes of address space with which a process can load what it computes with."""


def build_parser() -> Parser:
    """Return the arguments of helm-web."""
    parser = command_parser(
        "helm-web",
        "Serve the planner and its web page. Ctrl-C lets requests finish; jobs that have not go on at the next start.",
        "helm-web --port 8080",
    )
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1: this machine only)")
    add("--port", type=_port, default=8080, help="0: any that is free (default 8080)")
    add("--store", type=Path, metavar="DIR", help="where jobs are kept (default: helmsman/web in XDG_STATE_HOME)")
    workers = "processes that answer at once, and as many again for jobs (default: one for each CPU)"
    add("--jobs", type=_count, metavar="N", help=workers)
    add_access_arguments(parser, anonymous=False)
    parser.add_argument("--token-file", dest="api_key_file", type=Path, metavar="FILE", help="as --api-key-file")
    _add_limits(parser)
    return parser


def _add_limits(parser: Parser) -> None:
    add = parser.add_argument_group("limits").add_argument
    add("--memory", type=_memory, default=4 * 2**30, metavar="SIZE", help="of each process (default 4GiB)")
    add("--job-time", type=_seconds, default=3600.0, metavar="TIME", help="of a job (default 3600s)")
    add("--max-body", type=_size, default=2**22, metavar="SIZE", help="of a request (default 4MiB)")
    add("--rate", type=_count, default=1000, metavar="N", help="requests a second of a client (default 1000)")
    mine = "jobs of a client that may be queued or running (default 32)"
    add("--client-jobs", type=_count, default=32, metavar="N", help=mine)
    add("--points", type=_count, default=10**6, metavar="N", help="plans a day of a client (default 1000000)")
    add("--study-points", type=_count, default=20_000, metavar="N", help="questions of one study (default 20000)")
    add("--keep", type=_size, default=4 * 2**30, metavar="SIZE", help="of results of jobs that ended (default 4GiB)")
    grace = "for requests that run when it stops (default 10s)"
    add("--grace", type=_seconds, default=10.0, metavar="TIME", help=grace)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) < 2**16):
        raise UsageError("not a port", value=text, remedy="use 0 to 65535")
    return int(text)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= 10**9):
        raise UsageError("not a whole number from 1", value=text)
    return int(text)


def _size(text: str) -> int:
    size = parse_bytes(text, "")
    if not 1024 <= size <= 2**50:
        raise UsageError("out of range", value=text, remedy="use 1KiB to 1PiB")
    return size


def _memory(text: str) -> int:
    size = _size(text)
    if size < _LEAST_MEMORY:
        raise UsageError("a process does not begin with so little", value=text, remedy="use 512MiB or more")
    return size


def _seconds(text: str) -> float:
    seconds = parse_seconds(text, "")
    if not 0.0 < seconds <= 30 * 86400.0:
        raise UsageError("out of range", value=text, remedy="use more than 0s, up to 2592000s")
    return seconds


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    return run_command(build_parser(), execute, argv)


def execute(args: argparse.Namespace) -> int:
    """Listen, hold the store, serve until SIGINT or SIGTERM."""
    import asyncio

    # Products of small matrices gain nothing from threads, and copies of a process have none of its threads.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    _check(args)
    options, tls = _options(args), encryption_of(args)

    from helmsman.cli.open_files import allow_connections
    from helmsman.service.http.listening import listen
    from helmsman.service.planner.computing.worker import start_early
    from helmsman.service.planner.jobs.store import held_store
    from helmsman.service.planner.request_log import logged_to_stderr

    allow_connections()
    folder = _store(args)
    with (
        listen(args.host, args.port) as listener,
        held_store(folder) as (places, lock),
        logged_to_stderr(requests=not args.quiet),
    ):
        start_early()
        from helmsman.service.planner.server import serve_planner

        def say(url: str, recovered: int) -> None:
            _say(args, url, options.workers, folder, recovered)

        asyncio.run(serve_planner(listener, options, places, lock, say, tls))
    return 0


def _check(args: argparse.Namespace) -> None:
    check_installed("the service", _NEEDED, "web")
    if args.jobs is not None and args.jobs > _MOST_WORKERS:
        raise UsageError(f"must be between 1 and {_MOST_WORKERS}", field="--jobs", value=args.jobs)


def _options(args: argparse.Namespace) -> "WebOptions":
    from helmsman.service.http.bodies import BodyLimits
    from helmsman.service.planner.options import OPEN_PATHS, ClientLimits, JobLimits, WebOptions

    body = args.max_body
    return WebOptions(
        access=replace(access_of(args), open_paths=OPEN_PATHS),
        bodies=BodyLimits(body=body, together=max(2**26, 2 * body), client=max(2**25, body)),
        clients=ClientLimits(rate=args.rate, burst=2 * args.rate, jobs=args.client_jobs, points=args.points),
        jobs=JobLimits(points=args.study_points, bytes=args.keep),
        workers=args.jobs or _processors(),
        memory=args.memory,
        job_s=args.job_time,
        grace_s=args.grace,
    )


def _processors() -> int:
    """Return the number of CPUs that this process may use."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(count, _MOST_WORKERS)


def _store(args: argparse.Namespace) -> Path:
    """Return the folder of jobs. Raises UsageError for a user without a home folder."""
    if args.store is not None:
        return Path(args.store).absolute()
    base = os.environ.get("XDG_STATE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".local" / "state") / "helmsman" / "web"
    except RuntimeError:  # neither HOME nor an entry of this user
        remedy = "give --store a folder that can be written"
        raise UsageError("there is no home folder to keep jobs in", remedy=remedy) from None


def _say(args: argparse.Namespace, url: str, workers: int, folder: Path, recovered: int) -> None:
    """Say that the service is ready, and where."""
    from helmsman.schemas.web_ready import WebReady

    ready = WebReady(url=url, store=str(folder), workers=workers, recovered=recovered)
    again = f", {recovered} jobs go on" if recovered else ""
    emit(args, ready.to_json(), lambda: f"{url} with {workers} workers, jobs in {folder}{again} (Ctrl-C stops)")
