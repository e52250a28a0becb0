"""`helm-list`: the names that other commands take."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args

from helmsman.cli.app import run_command
from helmsman.cli.output import emit, say, write_out
from helmsman.cli.parser import Parser, command_parser

if TYPE_CHECKING:
    from helmsman.schemas.listing import Listing


def build_parser() -> Parser:
    """Return the arguments of helm-list."""
    from helmsman.schemas.listing import Kind

    parser = command_parser(
        "helm-list",
        "List models, machines, GPUs, CPUs, strategies, policies or formats by the names that commands take.",
        "helm-list gpus",
    )
    parser.add_argument("kind", choices=get_args(Kind), metavar="KIND", help=", ".join(get_args(Kind)))
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    return run_command(build_parser(), execute, argv)


def execute(args: argparse.Namespace) -> int:
    """Print a line for every name; with --quiet the names alone, without spaces, as completions read them."""
    from helmsman.analysis.listing import listing

    names = listing(args.kind)
    if args.quiet and not args.json:
        write_out(args, names.to_json())
        say("\n".join(entry.name.replace(" ", "_") for entry in names.entries))
        return 0
    emit(args, names.to_json(), lambda: _table(names))
    return 0


def _table(listing: "Listing") -> str:
    width = max(len(entry.name) for entry in listing.entries)
    return "\n".join(f"{entry.name:<{width}}  {entry.about}" for entry in listing.entries)
