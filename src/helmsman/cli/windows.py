"""The arguments that give the accelerator a window of its key and value caches."""

import argparse
from typing import TYPE_CHECKING

from helmsman.schemas.errors import UsageError
from helmsman.schemas.page_cache import PAGE_STEP

if TYPE_CHECKING:
    from argparse import _ArgumentGroup

    from helmsman.planner.strategies.layer_windows import Window
    from helmsman.schemas.hardware import Hardware
    from helmsman.schemas.workload import Workload

AUTO = "auto"
_PAGE, _WATERMARK = 512, 0.8


def add_window_arguments(group: "_ArgumentGroup") -> None:
    """--kv-window and what pages of it look like."""
    window = "tokens of its KV that the accelerator keeps, the rest pages from host memory; auto: all that fit"
    group.add_argument("--kv-window", metavar="TOKENS|auto", help=window)
    group.add_argument("--page-tokens", type=int, metavar="N", help=f"tokens of a page (default {_PAGE})")
    above = f"of the window, above which pages leave (default {_WATERMARK})"
    group.add_argument("--watermark", type=float, metavar="SHARE", help=above)


def kv_window(args: argparse.Namespace, hardware: "Hardware", workload: "Workload") -> "Window | None":
    """The window that the arguments ask for. Raises UsageError for one that cannot be, or beside what it excludes."""
    if args.kv_window is None:
        for name in ("page_tokens", "watermark"):
            if getattr(args, name) is not None:
                flag = f"--{name.replace('_', '-')}"
                raise UsageError("is of a window", field=flag, remedy="add --kv-window auto, or leave it out")
        return None
    _check_beside(args, hardware, workload)
    from helmsman.planner.strategies.layer_windows import Window

    page, mark = _page(args), _mark(args)
    if args.kv_window == AUTO:
        return Window(None, page, mark)
    return Window(_tokens(args.kv_window, Window(None, page, mark)), page, mark)


def _check_beside(args: argparse.Namespace, hardware: "Hardware", workload: "Workload") -> None:
    from helmsman.planner.machine import roles

    excluded = {
        "--kv-offload": args.kv_offload,
        "--paper": args.paper,
        "--batches": workload.batches > 1,
        "--prefix-tokens": workload.prefix_tokens > 0,
    }
    for flag, given in excluded.items():
        if given:
            raise UsageError("does not go with --kv-window", field=flag, remedy="leave one of them out")
    if not roles(hardware).separate:
        message, remedy = f"{hardware.name} has no accelerator with a memory of its own", "leave it out"
        raise UsageError(message, field="--kv-window", value=args.kv_window, remedy=remedy)


def _page(args: argparse.Namespace) -> int:
    page: int = _PAGE if args.page_tokens is None else args.page_tokens
    if page < PAGE_STEP or page % PAGE_STEP or page > 1 << 20:
        remedy = f"use a multiple of {PAGE_STEP}"
        raise UsageError("not a page", field="--page-tokens", value=page, remedy=remedy)
    return page


def _mark(args: argparse.Namespace) -> float:
    mark: float = _WATERMARK if args.watermark is None else args.watermark
    if not 0.01 <= mark < 1.0:
        raise UsageError("not a share of a window", field="--watermark", value=mark, remedy="use 0.01 to 0.99")
    return mark


def _tokens(text: str, window: "Window") -> int:
    tokens = int(text) if text.isdecimal() and len(text) < 10 else 0
    if tokens < window.least or tokens % window.page_tokens:
        remedy = f"use {AUTO}, or a multiple of {window.page_tokens}, at least {window.least}"
        raise UsageError("not a window", field="--kv-window", value=text, remedy=remedy)
    return tokens
