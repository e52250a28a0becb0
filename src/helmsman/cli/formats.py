"""The arguments that say how weights, keys and values are stored."""

import argparse
from typing import TYPE_CHECKING

from helmsman.cli.native_formats import DEFAULT, NATIVE
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import KV_FORMATS, STORED_FORMATS, is_plain

if TYPE_CHECKING:
    from helmsman.schemas.model import Model


def add_format_arguments(group: argparse._ArgumentGroup, native: bool = False) -> None:
    """--format and --kv-format; with `native` what the model's file has may be asked for (`resolve_formats`)."""
    if native:
        weights = "how weights are stored; native: as a GGUF file has them (default: native for such files, else f16)"
        group.add_argument("--format", choices=(*STORED_FORMATS, NATIVE), help=weights)
    else:
        group.add_argument("--format", choices=STORED_FORMATS, default=DEFAULT, help="how weights are stored")
    group.add_argument("--kv-format", choices=KV_FORMATS, default="f16", help="how KV is stored")


def check_formats(args: argparse.Namespace, model: "Model") -> None:
    """Raise UsageError for a format into whose blocks a matrix, or a head's row, does not divide."""
    from helmsman.planner.format_check import cache_misfit, weights_misfit

    for flag, fmt, found in (
        ("--format", args.format, weights_misfit(model, args.format)),
        ("--kv-format", args.kv_format, cache_misfit(model, args.kv_format)),
    ):
        if found is not None:
            raise UsageError(found.message, field=flag, value=fmt, remedy=f"use {flag} {found.remedy}")


def check_compression(args: argparse.Namespace) -> None:
    """Raise UsageError where --compress would expand 4-bit groups to a format that is quantised itself."""
    for flag, fmt, what in (("--format", args.format, "weights"), ("--kv-format", args.kv_format, "kv")):
        if not is_plain(fmt) and args.compress in (what, "all", "best"):
            raise UsageError(
                f"4-bit groups are expanded to f32, f16 or bf16, and {flag} is {fmt}",
                field="--compress",
                value=args.compress,
                remedy=f"leave --compress out: {fmt} is quantised already; or use {flag} f16",
            )
