"""`helm-list`: the names that other commands take."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args

from helmsman.cli.app import run_command
from helmsman.cli.output import emit, say, write_out
from helmsman.cli.parser import Parser, command_parser
from helmsman.schemas.errors import UsageError

if TYPE_CHECKING:
    from helmsman.schemas.detected import LocalModel
    from helmsman.schemas.listing import Listing


def build_parser() -> Parser:
    """Return the arguments of helm-list."""
    from helmsman.schemas.listing import Kind

    parser = command_parser(
        "helm-list",
        "List models, machines, GPUs, CPUs, engines, strategies, policies or formats by the names that commands take.",
        "helm-list gpus",
    )
    parser.add_argument("kind", choices=get_args(Kind), metavar="KIND", help=", ".join(get_args(Kind)))
    parser.add_argument("--local", action="store_true", help="of models: those on the disk (default: the catalogue's)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    return run_command(build_parser(), execute, argv)


def execute(args: argparse.Namespace) -> int:
    """Print a line for every name; with --quiet the names alone, without spaces, as completions read them."""
    from helmsman.analysis.listing import listing

    if args.local and args.kind != "models":
        raise UsageError(
            "only models are on the disk", field="--local", value=args.kind, remedy="helm-list models --local"
        )
    names = _local_models() if args.local else listing(args.kind)
    if args.quiet and not args.json:
        write_out(args, names.to_json())
        say("\n".join(entry.name.replace(" ", "_") for entry in names.entries))
        return 0
    emit(args, names.to_json(), lambda: _table(names))
    return 0


def _local_models() -> "Listing":
    """Return the models on the disk, with their store, size, place and model of the catalogue."""
    from helmsman.models_here import models_here
    from helmsman.schemas.listing import Entry, Listing
    from helmsman.schemas.units import format_bytes

    def about(model: "LocalModel") -> str:
        return f"{model.store}, {format_bytes(model.bytes)}, {model.entry or 'not of the catalogue'}: {model.path}"[
            :1000
        ]

    entries = tuple(Entry(name=f"local:{model.name}"[:200], about=about(model)) for model in models_here())
    return Listing(kind="models", entries=entries)


def _table(listing: "Listing") -> str:
    width = max((len(entry.name) for entry in listing.entries), default=0)
    return "\n".join(f"{entry.name:<{width}}  {entry.about}" for entry in listing.entries)
