"""The arguments of `helm-sim PLAN --requests`: who asks, who serves, and what is to be found out."""

import argparse
from pathlib import Path
from typing import get_args

from helmsman.cli.parser import Parser
from helmsman.cli.request_arguments import add_request_arguments, check_number, check_request_arguments
from helmsman.scheduler.policies import POLICIES
from helmsman.schemas.errors import UsageError
from helmsman.schemas.serving_question import MAX_REPLICAS, MAX_USERS, ROUTERS, Stage

STAGES: tuple[Stage, ...] = get_args(Stage)
_REPLAY = ("trace", "per_layer", "layer")


def add_serving_arguments(parser: Parser) -> None:
    """Options that --requests needs or allows."""
    group = parser.add_argument_group(
        "serving requests",
        "-o FILE.parquet writes the table of requests, --plot latencies with their limits, requests and caches over "
        "time, --timeline every request",
    )
    add_request_arguments(group, "serve")
    _add_loop_arguments(group)
    group.add_argument(
        "--policy",
        metavar="NAME",
        help=f"who decides what each pass does: {', '.join(POLICIES)} (default gpu-only); --sweep takes several",
    )
    group.add_argument(
        "--policy-option", action="append", default=[], metavar="KEY=VALUE", help="an option of the policy"
    )
    _add_machine_arguments(group)
    _add_study_arguments(group)


def _add_loop_arguments(group: "argparse._ArgumentGroup") -> None:
    add = group.add_argument
    users = "users of a closed loop: each sends a request when it has thought after the end of the one before"
    add("--users", type=int, metavar="N", help=users)
    add("--think", metavar="TIME", help="that users think: 10s (exponential, with this mean) or fixed:10s (default 0s)")


def _add_machine_arguments(group: "argparse._ArgumentGroup") -> None:
    add = group.add_argument
    add("--replicas", type=int, metavar="N", help="copies of the plan that share the requests (default 1)")
    add("--router", choices=ROUTERS, help="which replica a request goes to (default round-robin)")
    add("--tensor-parallel", type=int, metavar="N", help="equal accelerators that divide every layer (default 1)")
    add("--pipeline-parallel", type=int, metavar="N", help="stages of layers on equal accelerators (default 1)")
    add_limit_arguments(group)
    ahead = "passes are decided when the one before begins, so that first tokens come a pass later (default: for vLLM)"
    add("--ahead", action=argparse.BooleanOptionalAction, help=ahead)
    add("--mispredict", action="append", default=[], metavar="STAGE=FACTOR",
        help=f"a stage takes that many times what the policy believes: {', '.join(STAGES)}")  # fmt: skip


def add_limit_arguments(group: "argparse._ArgumentGroup") -> None:
    """Options of whoever serves, in virtual time or for real: the same ones, or none, make the same limits."""
    add, native = group.add_argument, "where native devices serve"
    batch = f"most tokens in a pass (default: 2048 {native}, else as many as have room)"
    add("--batch-tokens", type=int, metavar="N", help=batch)
    add("--chunk", type=int, metavar="TOKENS", help="most tokens of prompts and decodes in a pass; 0: prompts whole")
    running = f"most requests that run at a time on a replica (default: 64 {native}, else 512)"
    add("--sequences", type=int, metavar="N", help=running)
    add("--utilisation", type=float, metavar="SHARE", help="of an accelerator's memory for weights and caches (0.9)")
    room, enough = "as many as have room", f"as many as have room, {native} no more than --sequences requests need"
    for home, where, default in (("gpu", "accelerator's", room), ("cpu", "host's", enough)):
        what = f"KV tokens in the {where} cache at most (default: {default})"
        add(f"--{home}-tokens", type=_tokens, metavar="N", help=what)
    kept = (
        "of models that keep states: how many are kept for prompts that begin alike (default: --sequences / 4, in an "
    )
    add("--snapshots", type=int, metavar="N", help=f"{kept}eighth of the room of caches at most)")


def _tokens(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 12):
        raise UsageError("not a number of tokens", value=text, remedy="write a whole number, 0 or more")
    return int(text)


def _add_study_arguments(group: "argparse._ArgumentGroup") -> None:
    add = group.add_argument
    add(
        "--sweep",
        metavar="WHAT=FIRST:LAST:STEP",
        help="runs over rate, output, input (tokens) or cpu-bandwidth (factors); exit code 4 where none keeps --slo",
    )
    add("--relative-to", metavar="POLICY", help="with --sweep: run this policy too, and compare throughput with it")
    add("--find-capacity", action="store_true", help="the maximum rate under --slo, with its confidence interval")
    add("--find-users", action="store_true", help="the most users under --slo, who think for --think between requests")
    add("--find-replicas", action="store_true", help="the fewest replicas that keep --slo at --rate or for --users")
    seeds = "with these: as many draws, of as many requests as there are (default: both as it takes)"
    add("--seeds", type=int, metavar="N", help=seeds)
    add("--export-vllm", type=Path, metavar="FILE", help="also write what vllm bench serve --save-detailed writes")
    add("--export-aiperf", type=Path, metavar="FILE", help="also write AIPerf's records, JSON Lines")


_SERVING = (
    "policy", "policy_option", "rate", "arrivals", "sort", "limit", "users", "think", "seed", "slo", "replicas",
    "router", "tensor_parallel", "pipeline_parallel", "batch_tokens", "chunk", "sequences", "utilisation",
    "gpu_tokens", "cpu_tokens", "ahead", "snapshots", "mispredict", "sweep", "relative_to", "find_capacity",
    "find_users", "find_replicas", "seeds", "export_vllm", "export_aiperf",
)  # fmt: skip
_COUNTS = {
    "users": MAX_USERS,
    "replicas": MAX_REPLICAS,
    "tensor_parallel": 1024,
    "pipeline_parallel": 1024,
    "seeds": 1000,
}
"""Options that are counts of at least one, and the most they may be."""

_LIMITS = {"batch_tokens": (1, 10**9), "chunk": (0, 10**9), "sequences": (1, 10**6), "snapshots": (0, 10**6)}
"""The least and the most that limits may be."""


def check_serving_arguments(args: argparse.Namespace) -> None:
    """Raise UsageError for options that make no sense together, or values out of range."""
    if args.requests is None:
        _refuse_given(args, _SERVING, "needs requests", "add --requests FILE")
        return
    _refuse_given(args, _REPLAY, "is about one batch, not about requests", "leave it or --requests out")
    for name, most in _COUNTS.items():
        check_number(name, getattr(args, name), 1, most)
    check_request_arguments(args)
    check_limit_arguments(args)
    _check_studies(args)


def check_limit_arguments(args: argparse.Namespace) -> None:
    """Raise UsageError for limits out of range."""
    for name, (least, most) in _LIMITS.items():
        check_number(name, getattr(args, name), least, most)


FINDS = ("find_capacity", "find_users", "find_replicas")
"""Options that ask how much can be served."""


def _check_studies(args: argparse.Namespace) -> None:
    finds = ["--" + name.replace("_", "-") for name in FINDS if getattr(args, name)]
    _check_finds(args, finds)
    if "," in (args.policy or "") and (args.sweep is None or args.policy_option):
        remedy = "add --sweep, or name one policy" if args.sweep is None else "leave --policy-option out"
        raise UsageError("several policies", field="--policy", value=args.policy, remedy=remedy)
    if args.relative_to is not None and args.sweep is None:
        raise UsageError("needs a sweep", field="--relative-to", remedy="add --sweep output=50:800:50")
    if args.seeds is not None and not finds:
        raise UsageError("needs --find-capacity", field="--seeds", remedy="leave it out, or use --seed")
    if args.sweep is not None or finds:
        exports = ("export_vllm", "export_aiperf", "timeline")
        _refuse_given(args, exports, "is about one run", "leave it out")
        if is_table(args.out):
            raise UsageError("a table is of one run", field="--out", value=str(args.out), remedy="name a .json file")


def _check_finds(args: argparse.Namespace, finds: list[str]) -> None:
    studies = [*(["--sweep"] if args.sweep is not None else []), *finds]
    if len(studies) > 1:
        raise UsageError("one study at a time", field=studies[-1], remedy=f"leave {' or '.join(studies)} out")
    if finds and args.slo is None:
        raise UsageError("needs an SLO", field=finds[0], remedy="add --slo ttft=2s,tpot=100ms")


def is_table(out: Path | None) -> bool:
    """Whether --out asks for the table of requests instead of the report."""
    return out is not None and out.suffix.lower() == ".parquet"


def _refuse_given(args: argparse.Namespace, names: tuple[str, ...], message: str, remedy: str) -> None:
    for name in names:
        if getattr(args, name) not in (None, False, []):
            raise UsageError(message, field="--" + name.replace("_", "-"), remedy=remedy)
