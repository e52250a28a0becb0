"""The question of `--strategy op-split`: how operations are divided, where weights may come from, the written table."""

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from helmsman.cli.app import write_text
from helmsman.cli.question import frame_of
from helmsman.cli.storage import storage_of
from helmsman.schemas.errors import UsageError

if TYPE_CHECKING:
    from helmsman.planner.strategies.op_split.strategy import OpSplit
    from helmsman.planner.strategies.streaming.place import Frame
    from helmsman.schemas.hardware import Hardware
    from helmsman.schemas.model import Model
    from helmsman.schemas.workload import Workload


def op_split(args: argparse.Namespace, model: "Model", hardware: "Hardware", workload: "Workload") -> "OpSplit":
    """The operation splits that the arguments ask about."""
    from helmsman.planner.costs import CostOptions
    from helmsman.planner.strategies.op_split.strategy import OpSplit, OpSplitOptions
    from helmsman.planner.strategies.op_split.variants import with_cache_use

    if args.paper and (args.no_overlap or args.pinning == "pin-on-transfer"):
        remedy = "leave --paper out: the printed equations know lanes that overlap"
        raise UsageError("does not go with transfers that wait for operations", field="--paper", remedy=remedy)
    frame = with_cache_use(frame_of(args, model, hardware, workload))
    frame = replace(frame, formats=getattr(args, "tensor_formats", {}))
    options = OpSplitOptions(
        chunks=_chunks(args, frame),
        compress=args.compress,
        storage=storage_of(args, hardware),
        path=args.nvme or "direct",
        pinning=args.pinning,
        offload=not args.no_cpu_offload,
        printed=args.paper,
    )
    return OpSplit(frame, options, CostOptions(not args.no_corrections, args.l3_blend), args.objective)


def _chunks(args: argparse.Namespace, frame: "Frame") -> dict[str, int]:
    """`8` (every operation that can be divided, into as many parts or as it has), or `scores=8,wv=4`."""
    from helmsman.planner.strategies.streaming.division import divisible

    text = args.chunks
    if text is None:
        return {}
    names = divisible(frame.model, frame.form)
    found = {}
    for name, count in _divisions(text, frame.model, names):
        if name not in names or not count.isdecimal() or len(count) > 6:
            remedy = f"write a number, or OP=N with operations among {', '.join(names)}"
            raise UsageError("not a division of operations", field="--chunks", value=text, remedy=remedy)
        if name in found:
            remedy = f"name {name} once"
            raise UsageError(f"divides {name} twice", field="--chunks", value=text, remedy=remedy)
        found[name] = int(count)
    return found


def _divisions(text: str, model: "Model", names: tuple[str, ...]) -> list[tuple[str, str]]:
    """(operation, parts) as they are written."""
    from helmsman.planner.strategies.streaming.division import most_parts

    if "=" in text or not text.isdecimal() or len(text) > 6:
        pairs = (item.partition("=") for item in text.split(","))
        return [(name, count) for name, _, count in pairs]
    wanted = int(text)
    return [(name, str(min(wanted, most_parts(model, name)))) for name in names]


def write_table(args: argparse.Namespace, asked: "OpSplit") -> None:
    """The prices of the question as a table to edit and give back."""
    from helmsman.planner.strategies.op_split.tabulate import tabulate

    if args.write_table is not None:
        storage = storage_of(args, asked.frame.roles.hardware)
        write_text(args.write_table, tabulate(asked.frame, asked.costs, storage).to_json() + "\n")
