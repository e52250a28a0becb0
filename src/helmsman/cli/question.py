"""The question that the arguments ask of strategies whose host and accelerator both work, with the user's table."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from helmsman.cli.storage import storage_of
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import is_plain

if TYPE_CHECKING:
    from helmsman.planner.strategies.streaming.place import Frame
    from helmsman.schemas.cache_use import CacheUse
    from helmsman.schemas.hardware import Hardware
    from helmsman.schemas.model import Model
    from helmsman.schemas.workload import Workload


def frame_of(args: argparse.Namespace, model: "Model", hardware: "Hardware", workload: "Workload") -> "Frame":
    """Model, machine, workload, formats and schedule, and what attention reads: quantised caches at once, as executors
    divide it over values alone."""
    from helmsman.planner.launches import driven
    from helmsman.planner.machine import roles
    from helmsman.planner.strategies.streaming.place import Frame

    overlap: Literal["none", "next-layer"] = "none" if args.no_overlap else "next-layer"
    machine = driven(roles(hardware), model, workload, args.format, args.kv_format)
    frame = Frame(model, machine, workload, args.format, args.kv_format, overlap=overlap, reshape=args.reshape)
    fused = args.fused_attention or not is_plain(args.kv_format)
    frame = replace(frame, cache=_cache_use(args, model), fused=fused)
    return frame if args.table is None else _with_table(args.table, frame)


def warn_of_table(args: argparse.Namespace, frame: "Frame") -> None:
    """Say on standard error which figures of the user's table cannot be seconds."""
    from helmsman.planner.strategies.op_split.table_check import table_warnings

    if args.table is not None and frame.roles.separate:
        for warning in table_warnings(frame.roles.hardware.tables[0], frame, storage_of(args, frame.roles.hardware)):
            print(f"helm-plan: warning: {warning}", file=sys.stderr)


def _cache_use(args: argparse.Namespace, model: "Model") -> "CacheUse":
    """What attention reads of past tokens (PARK-66)."""
    from helmsman.lowering.variants import check_cache_use
    from helmsman.schemas.cache_use import PARTIAL, CacheUse

    keep = 1.0 if args.kv_keep is None else args.kv_keep
    select = args.kv_select if args.kv_select is not None else PARTIAL if keep < 1 else 0.0
    if args.kv_select and keep == 1:
        remedy = "add --kv-keep SHARE"
        raise UsageError("nothing is chosen when all tokens are read", field="--kv-select", remedy=remedy)
    if not 0 < keep <= 1:
        raise UsageError("is not a share of tokens", field="--kv-keep", value=keep, remedy="use 0 < SHARE <= 1")
    if not 0 <= select <= 1:
        raise UsageError("is not a share of a head", field="--kv-select", value=select, remedy="use 0 <= SHARE <= 1")
    if args.activation_cache and args.prefix_tokens:
        message, remedy = "a prompt pass reads keys and values of known tokens", "leave one of the two out"
        raise UsageError(message, field="--activation-cache", remedy=remedy)
    use = CacheUse(keep=keep, select=select, holds="activations" if args.activation_cache else "kv")
    check_cache_use(model, use)
    return use


def _with_table(path: Path, frame: "Frame") -> "Frame":
    """The question with the user's operation table before those of the machine."""
    from helmsman.planner.strategies.op_split.table_check import check_table
    from helmsman.schemas.operation_table import OperationTable
    from helmsman.schemas.read import read_document

    table = read_document(OperationTable, path)
    if frame.roles.separate:
        check_table(table, frame, str(path))
    return frame.with_tables(table)
