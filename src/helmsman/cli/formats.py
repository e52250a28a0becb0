"""The arguments that say how weights, keys and values are stored."""

import argparse

from helmsman.schemas.formats import KV_FORMATS, STORED_FORMATS

NATIVE = "native"
"""The format of weights that stands for those of a GGUF file."""


def add_format_arguments(group: argparse._ArgumentGroup, native: bool = False) -> None:
    """--format and --kv-format; with `native` what the model's file has may be asked for (`resolve_formats`)."""
    if native:
        weights = "how weights are stored; native: as a GGUF file has them (default: native for such files, else f16)"
        group.add_argument("--format", choices=(*STORED_FORMATS, NATIVE), help=weights)
    else:
        group.add_argument("--format", choices=STORED_FORMATS, default="f16", help="how weights are stored")
    group.add_argument("--kv-format", choices=KV_FORMATS, default="f16", help="how KV is stored")
