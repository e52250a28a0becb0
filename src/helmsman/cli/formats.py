"""The arguments that say how weights, keys and values are stored."""

import argparse

from helmsman.schemas.formats import KV_FORMATS, NATIVE, STORED_FORMATS, WEIGHTS_FORMATS, format_named

BEST = "best"
"""The format of weights that stands for the most precise one with room and speed enough."""


def add_format_arguments(group: argparse._ArgumentGroup, native: bool = False) -> None:
    """--format and --kv-format; with `native` what the model's file has may be asked for (`resolve_formats`)."""
    if native:
        weights = (
            "how weights are stored: one format, or a mixture as llama.cpp's files have it (Q4_K_M); native: as files "
            "or configs say; best: what loses least (default: native for quantised models and, without a GPU, for "
            "bf16, else f16; helm-list formats)"
        )
        choices = (*WEIGHTS_FORMATS, NATIVE, BEST)
        group.add_argument("--format", type=format_named, choices=choices, metavar="NAME", help=weights)
    else:
        stored = "how weights are stored (default f16)"
        group.add_argument("--format", type=format_named, choices=STORED_FORMATS, default="f16", help=stored)
    kept = "how KV is stored (default f16)"
    group.add_argument("--kv-format", type=format_named, choices=KV_FORMATS, default="f16", help=kept)
