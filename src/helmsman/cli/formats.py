"""The arguments that say how weights, keys and values are stored."""

import argparse

from helmsman.schemas.formats import KV_FORMATS, STORED_FORMATS, format_named

NATIVE = "native"
"""The format of weights that stands for those of a model's files."""
MIX = "q4_k_m"
"""The format of weights that stands for a mixture."""


def add_format_arguments(group: argparse._ArgumentGroup, native: bool = False) -> None:
    """--format and --kv-format; with `native` what the model's file has may be asked for (`resolve_formats`)."""
    if native:
        weights = (
            "how weights are stored; q4_k_m: as most quantised files mix them; native: as a GGUF file or a checkpoint "
            "has them, or as a config says of quantised ones (default: native for quantised files, else f16)"
        )
        group.add_argument("--format", type=format_named, choices=(*STORED_FORMATS, MIX, NATIVE), help=weights)
    else:
        stored = "how weights are stored (default f16)"
        group.add_argument("--format", type=format_named, choices=STORED_FORMATS, default="f16", help=stored)
    kept = "how KV is stored (default f16)"
    group.add_argument("--kv-format", type=format_named, choices=KV_FORMATS, default="f16", help=kept)
