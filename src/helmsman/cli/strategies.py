"""The arguments that choose a strategy and its options, and the decision they lead to."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from helmsman.cli.app import Parser
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import FORMATS

if TYPE_CHECKING:
    from helmsman.planner.decide import Decision
    from helmsman.planner.strategies.layer_split import LayerSplit
    from helmsman.planner.strategies.op_split.strategy import OpSplit
    from helmsman.schemas.hardware import Hardware
    from helmsman.schemas.model import Model
    from helmsman.schemas.workload import Workload

Recorded = dict[str, str | int | float | bool]

STRATEGIES = ("layer-split", "op-split")
COMPRESSIONS = ("none", "weights", "kv", "all", "best")
_OP_SPLIT_ONLY = {
    "chunks": None,
    "compress": "none",
    "nvme": None,
    "pinning": "pinned",
    "no_cpu_offload": False,
    "no_overlap": False,
    "reshape": False,
    "table": None,
}


def add_strategy_arguments(parser: Parser) -> None:
    """--strategy, what all strategies share, and what each adds."""
    group = parser.add_argument_group("strategy")
    group.add_argument("--strategy", choices=STRATEGIES, default="layer-split")
    group.add_argument("--objective", choices=("latency", "throughput", "ttft"), default="latency")
    group.add_argument("--format", choices=FORMATS, default="f16", help="how weights are stored")
    group.add_argument("--kv-format", choices=FORMATS, default="f16", help="how KV is stored")
    group.add_argument("--kv-offload", action="store_true", help="keep the accelerator's KV in host memory")
    group.add_argument("--paper", action="store_true", help="price decode steps by the printed formulas")
    group.add_argument("--no-corrections", action="store_true", help="efficiencies 1, overheads 0")
    group.add_argument("--l3-blend", action="store_true", help="blend L3 bandwidth into KV reads (eq 4.14)")
    _add_op_split(parser)


def _add_op_split(parser: Parser) -> None:
    group = parser.add_argument_group("op-split: the accelerator computes some operations from streamed data")
    group.add_argument("--chunks", metavar="N|OP=N,..", help="divide operations: all that can be, or scores=8,wv=8")
    group.add_argument("--compress", choices=COMPRESSIONS, default="none", help="stream 4-bit groups")
    group.add_argument("--nvme", choices=("direct", "bounce"), help="weights may come from storage, by this path")
    group.add_argument("--pinning", choices=("pinned", "pageable", "pin-on-transfer"), default="pinned")
    group.add_argument("--no-cpu-offload", action="store_true", help="the accelerator computes every operation")
    group.add_argument("--no-overlap", action="store_true", help="transfers wait for the operation before them")
    group.add_argument("--reshape", action="store_true", help="caches are kept (batch, tokens, hidden) and turned")
    group.add_argument("--table", type=Path, metavar="FILE", help="measured operation latencies (helm.optable/1)")


def decide(args: argparse.Namespace, model: "Model", hardware: "Hardware", workload: "Workload") -> "Decision":
    """The best plan of the strategy that the arguments name."""
    if args.strategy == "op-split":
        return op_split(args, model, hardware, workload).decide(_recorded_op_split(args))
    from helmsman.planner.decide import decide as decide_split

    return decide_split(layer_split(args, model, hardware, workload), _recorded_layer_split(args))


def layer_split(args: argparse.Namespace, model: "Model", hardware: "Hardware", workload: "Workload") -> "LayerSplit":
    """The layer splits that the arguments ask about."""
    from helmsman.planner.costs import CostModel, CostOptions
    from helmsman.planner.machine import roles
    from helmsman.planner.strategies.layer_split import LayerSplit, LayerSplitOptions
    from helmsman.planner.strategies.paper import PrintedLayerSplit

    _refuse(args, [name for name, default in _OP_SPLIT_ONLY.items() if getattr(args, name) != default])
    options = LayerSplitOptions(args.format, args.kv_format, args.kv_offload, args.objective)
    costs = CostModel(hardware, CostOptions(not args.no_corrections, args.l3_blend))
    strategy = PrintedLayerSplit if args.paper else LayerSplit
    return strategy(model, roles(hardware), workload, options, costs)


def op_split(args: argparse.Namespace, model: "Model", hardware: "Hardware", workload: "Workload") -> "OpSplit":
    """The operation splits that the arguments ask about."""
    from helmsman.planner.costs import CostOptions
    from helmsman.planner.machine import roles
    from helmsman.planner.strategies.op_split.place import Frame
    from helmsman.planner.strategies.op_split.strategy import OpSplit, OpSplitOptions

    _refuse(args, [name for name in ("kv_offload", "max_context") if getattr(args, name)])
    if args.objective == "ttft":
        remedy = "use --objective latency: prompts run on the accelerator whatever the split"
        raise UsageError("operation splits do not change TTFT", field="--objective", value="ttft", remedy=remedy)
    options = OpSplitOptions(
        chunks=_chunks(args.chunks, model),
        compress=args.compress,
        storage=_storage(args, hardware),
        path=args.nvme or "direct",
        pinning=args.pinning,
        offload=not args.no_cpu_offload,
        printed=args.paper,
    )
    frame = Frame(
        model,
        roles(_with_table(args, hardware)),
        workload,
        args.format,
        args.kv_format,
        overlap="none" if args.no_overlap else "next-layer",
        reshape=args.reshape,
    )
    return OpSplit(frame, options, CostOptions(not args.no_corrections, args.l3_blend))


def _refuse(args: argparse.Namespace, names: list[str]) -> None:
    if names:
        flag = f"--{names[0].replace('_', '-')}"
        remedy = "leave it out, or use another strategy"
        raise UsageError(f"does not go with --strategy {args.strategy}", field=flag, remedy=remedy)


def _chunks(text: str | None, model: "Model") -> dict[str, int]:
    """`8` (every operation that can be divided), or `scores=8,wv=4`."""
    from helmsman.planner.strategies.op_split.division import divisible

    if text is None:
        return {}
    names = divisible(model)
    pairs = [(name, text) for name in names] if "=" not in text else [item.split("=", 1) for item in text.split(",")]
    found = {}
    for name, count in pairs:
        if name not in names or not count.isdecimal() or len(count) > 6:
            remedy = f"write a number, or OP=N with operations among {', '.join(names)}"
            raise UsageError("not a division of operations", field="--chunks", value=text, remedy=remedy)
        found[name] = int(count)
    return found


def _storage(args: argparse.Namespace, hardware: "Hardware") -> tuple[str, ...]:
    """The NVMe memories of the machine, when they may be used."""
    if args.nvme is None:
        return ()
    names = tuple(memory.name for memory in hardware.memories if memory.kind == "nvme")
    if not names:
        remedy = "leave --nvme out, or use a machine whose record has a memory of kind nvme"
        raise UsageError("this machine's record has no storage", field="--nvme", value=args.nvme, remedy=remedy)
    return names[:1]


def _with_table(args: argparse.Namespace, hardware: "Hardware") -> "Hardware":
    """The machine with the user's operation table before its own."""
    if args.table is None:
        return hardware
    from helmsman.schemas.operation_table import OperationTable
    from helmsman.schemas.read import read_document

    table = read_document(OperationTable, args.table)
    return hardware.model_copy(update={"tables": (table, *hardware.tables)})


def _recorded_layer_split(args: argparse.Namespace) -> Recorded:
    return {"kv_offload": args.kv_offload, **_recorded(args)}


def _recorded_op_split(args: argparse.Namespace) -> Recorded:
    names = [name for name in _OP_SPLIT_ONLY if name != "table"]
    return {**_recorded(args), **{name: getattr(args, name) for name in names if getattr(args, name) is not None}}


def _recorded(args: argparse.Namespace) -> Recorded:
    return {
        "objective": args.objective,
        "paper": args.paper,
        "corrections": not args.no_corrections,
        "l3_blend": args.l3_blend,
    }
