"""The arguments that say which requests come, and when: of who simulates them, and of who sends them."""

import argparse

from helmsman.schemas.errors import UsageError


def add_request_arguments(group: "argparse._ActionsContainer", what: str, required: bool = False) -> None:
    """Options of requests; `what` is done with them."""
    add, described = group.add_argument, "synthetic:n=2000,input=1000,output=200,rate=2"
    files = f"requests to {what}: CSV, JSON, JSON Lines, or {described}"
    add("--requests", required=required, metavar="FILE|synthetic:..", help=files)
    rate = "requests a second: stretches the file's times, or draws Poisson arrivals"
    add("--rate", type=float, metavar="R", help=rate)
    add("--arrivals", metavar="PROCESS", help="poisson, uniform, gamma:CV or all-at-once instead of the file's times")
    add("--sort", action="store_true", help="bring rows into order of arrival first")
    add("--limit", type=int, metavar="N", help="the first N requests only")
    add("--seed", type=int, metavar="N", help="of everything drawn (default 0)")
    limits = "ttft=2s,tpot=100ms,e2e=..,per-token=..,share=0.99, or mlperf-llama2-70b, ..; exit code 4 where missed"
    add("--slo", metavar="LIMITS", help=limits)


def check_request_arguments(args: argparse.Namespace) -> None:
    """Raise UsageError for values out of range."""
    check_number("limit", args.limit, 1, 10**9)
    check_number("seed", args.seed, 0, 2**31 - 1)
    if args.rate is not None and not 1e-9 <= args.rate <= 1e9:
        raise UsageError("not a rate", field="--rate", value=args.rate, remedy="write requests a second")


def check_number(name: str, value: int | None, least: int, most: int) -> None:
    """Raise UsageError for an option out of range; `name` as argparse keeps it."""
    if value is not None and not least <= value <= most:
        field = "--" + name.replace("_", "-")
        raise UsageError(f"must be between {least} and {most}", field=field, value=value)
