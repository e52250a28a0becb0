"""`helm-bench-serve`: replay requests in time against a server, and write what they waited for as helm-sim does."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from helmsman.cli.access_arguments import add_key_arguments, keys_of
from helmsman.cli.app import run_command, run_loop
from helmsman.cli.extras import check_installed
from helmsman.cli.output import show
from helmsman.cli.parser import Parser, command_parser
from helmsman.cli.request_arguments import add_request_arguments, check_number, check_request_arguments
from helmsman.schemas.errors import HardwareUnavailableError, TargetMissedError, UsageError
from helmsman.schemas.figures import DISTURBED
from helmsman.schemas.write import whole_file

if TYPE_CHECKING:
    from helmsman.schemas.requests import Requests
    from helmsman.schemas.served_table import ServedInfo, ServedTable
    from helmsman.service.inference.load.replay import ReplayResult
    from helmsman.service.inference.load.server import ServerDescription


def build_parser() -> Parser:
    """Return the arguments of helm-bench-serve."""
    parser = command_parser(
        "helm-bench-serve",
        "Replay requests in time against any server with OpenAI's interface: TTFT, TPOT, ITL, E2E, throughput.",
        "helm-bench-serve --url http://127.0.0.1:8000 --requests synthetic:n=100,input=64,output=32,rate=2"
        " -o served.parquet",
        out="TABLE",
    )
    add = parser.add_argument
    add("--url", default="http://127.0.0.1:8000", help="of the server (default http://127.0.0.1:8000)")
    add_request_arguments(parser, "send", required=True)
    add("--concurrency", type=int, metavar="N", help="at most so many at once: others wait, and that counts")
    add("--model", metavar="NAME", help="the model to ask for (default: the first that the server names)")
    add("--chat", action="store_true", help="conversations of one message instead of completions")
    add("--words", action="store_true", help="prompts are words: for servers that take no token ids, and with --chat")
    add_key_arguments(add, "that the server asks for; the first is sent")
    plain = "send OpenAI's own fields only; answers may then end early, and chunks may hold several tokens"
    add("--plain", action="store_true", help=plain)
    parser.set_defaults(seed=0)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    return run_command(build_parser(), execute, argv)


def execute(args: argparse.Namespace) -> int:
    """Read requests, replay them, write, print; 4 where the SLO is missed, 6 where nothing was answered."""
    check_installed("sending requests", ("aiohttp",), "serve")
    from helmsman.cli.open_files import allow_connections
    from helmsman.schemas.served_table import write_served
    from helmsman.service.inference.load.replay_table import table_of_replay
    from helmsman.service.inference.load.server import describe
    from helmsman.service.inference.load.server_counters import notes_between, read_counters
    from helmsman.simulator.serving.report import report
    from helmsman.simulator.serving.slo import parse_slo
    from helmsman.simulator.serving.text import report_text, slo_text

    _check(args)
    slo = None if args.slo is None else parse_slo(args.slo)
    requests = _requests(args)
    allow_connections()
    args.url = args.url.rstrip("/")
    key = next(iter(keys_of(args)), None)
    server = run_loop(lambda: describe(args.url, key))
    before = run_loop(lambda: read_counters(args.url, key))
    replayed = _replay(args, requests, server, key)
    after = run_loop(lambda: read_counters(args.url, key))
    notes = {"sent_late_s": _lag(requests, replayed), **notes_between(before, after)}
    served = table_of_replay(requests, replayed, _info(args, server, notes))
    with whole_file(args.out) as stream:
        write_served(served, stream)
    summary = report(served, slo)
    show(args, summary.to_json(), lambda: report_text(summary))
    _warn(args, served, replayed)
    _check_answered(args, replayed)
    if summary.goodput is None or summary.goodput.met:
        return 0
    kept = f"kept by {summary.goodput.share:.2%} of the requests: {slo_text(summary.goodput.slo)}"
    raise TargetMissedError(kept, field="--slo", remedy="lower --rate, or allow more time").after_report()


def _check(args: argparse.Namespace) -> None:
    if args.chat and not args.words:
        raise UsageError("a message is no list of token ids", field="--chat", remedy="add --words")
    check_request_arguments(args)
    check_number("concurrency", args.concurrency, 1, 10**9)


def _requests(args: argparse.Namespace) -> "Requests":
    from helmsman.simulator.serving.requests.arrivals import parse_arrivals
    from helmsman.simulator.serving.requests.request_source import open_source

    arrivals = None if args.arrivals is None else parse_arrivals(args.arrivals)
    return open_source(args.requests, args.rate, arrivals, args.sort, args.limit).requests(args.seed)


def _replay(
    args: argparse.Namespace, requests: "Requests", server: "ServerDescription", key: str | None
) -> "ReplayResult":
    from helmsman.cli.progress import progress
    from helmsman.service.inference.load.prompts import id_prompts, word_prompts
    from helmsman.service.inference.load.replay import replay
    from helmsman.service.inference.load.request_form import RequestForm

    prompts = (word_prompts if args.words else id_prompts)(requests, args.seed)
    form = RequestForm(requests, prompts, args.chat, args.model or server.model, args.plain)
    with progress(len(requests), args.quiet or args.json) as tell:
        return run_loop(
            lambda: replay(args.url, form, args.concurrency, lambda ended: tell(f"request {ended.row}"), key)
        )


def _lag(requests: "Requests", replayed: "ReplayResult") -> float:
    """Return seconds by which the latest request was sent too late."""
    arrivals: list[float] = requests.arrival_s.tolist()
    sent = (record.sent - replayed.start for record in replayed.observed)
    return max(moment - arrival for moment, arrival in zip(sent, arrivals, strict=True))


def _info(args: argparse.Namespace, server: "ServerDescription", notes: Mapping[str, float]) -> "ServedInfo":
    from helmsman.schemas.served_table import ServedInfo
    from helmsman.schemas.serving_question import shown

    return ServedInfo(
        source="measured",
        plan_sha256=server.plan_sha256,
        policy=server.policy or "unknown",
        requests=shown(args.requests),
        seed=args.seed,
        notes=dict(notes),
    )


def _check_answered(args: argparse.Namespace, replayed: "ReplayResult") -> None:
    """Raise HardwareUnavailableError where the server answered nothing of what it was asked."""
    if any(record.moments or record.status == "cancelled" for record in replayed.observed):
        return
    error = next((record.error for record in replayed.observed if record.error), "no token came")
    remedy = "look at the server's log; --words and --plain are for servers that refuse token ids or other fields"
    raise HardwareUnavailableError(
        f"no request was answered: {error[:200]}", field="--url", value=args.url, remedy=remedy
    ).after_report()


def _warn(args: argparse.Namespace, served: "ServedTable", replayed: "ReplayResult") -> None:
    """Say what went wrong first, if something did, and whether the client kept up."""
    error = next((record.error for record in replayed.observed if record.error), None)
    if error is not None:
        print(f"helm-bench-serve: warning: the first that failed or was refused: {error[:200]}", file=sys.stderr)
    others = float(served.info.notes.get("others_cpu_share", 0.0))
    if others > DISTURBED:
        told = f"others used {others:.0%} of the server's processors: measure again when nothing else runs"
        print(f"helm-bench-serve: warning: disturbed: {told}", file=sys.stderr)
    late = float(served.info.notes["sent_late_s"])
    if late > _LATE_S and args.concurrency is None:
        print(f"helm-bench-serve: warning: requests were sent up to {late:.2f} s late", file=sys.stderr)


_LATE_S = 0.1
