"""The arguments that choose a strategy and its options, and the decision they lead to."""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from helmsman.cli.app import Parser, write_text
from helmsman.cli.engines import ENGINES, add_engine_arguments, planned
from helmsman.cli.host_shares import HOST_SHARES, shared
from helmsman.cli.offloading import add_offloading_arguments, offloaded
from helmsman.cli.optimum import OPTIMAL, add_optimal_arguments, composed
from helmsman.cli.search_parts import search_parts
from helmsman.cli.storage import storage_of
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import FORMATS

if TYPE_CHECKING:
    from helmsman.planner.decide import Decision
    from helmsman.planner.strategies.flexgen import FlexGen
    from helmsman.planner.strategies.layer_split import LayerSplit
    from helmsman.planner.strategies.op_split.strategy import OpSplit
    from helmsman.planner.strategies.streaming.place import Frame
    from helmsman.schemas.cache_use import CacheUse
    from helmsman.schemas.hardware import Hardware
    from helmsman.schemas.model import Model
    from helmsman.schemas.workload import Workload

Recorded = dict[str, str | int | float | bool]

STRATEGIES = (
    "optimal",
    "layer-split",
    "op-split",
    "flexgen",
    "flexgen-lp",
    "layerwise-map",
    "all-cpu",
    *HOST_SHARES,
    *ENGINES,
)
COMPRESSIONS = ("none", "weights", "kv", "all", "best")
_STREAMING: Mapping[str, object] = {"compress": "none", "table": None, "reshape": False}
"""What op-split and flexgen share, with its defaults."""
_OP_SPLIT: Mapping[str, object] = {
    "chunks": None,
    "nvme": None,
    "pinning": "pinned",
    "no_cpu_offload": False,
    "no_overlap": False,
    "kv_keep": None,
    "kv_select": None,
    "activation_cache": False,
    "fused_attention": False,
    "write_table": None,
}
_FILES = ("table", "write_table", "explain")
"""Options that a plan does not record: a table is in its hardware, an explanation is no part of it."""
_FLEXGEN: Mapping[str, object] = {"cpu_compute": False}
_OFFLOADING: Mapping[str, object] = {"home": None, "kv_rule": None, "kv_store": None, "managed": False}
_TIERS: Mapping[str, object] = {**_OFFLOADING, "percent": None, "inclusive": False, "nvme": None}
_LAYER_SPLIT: Mapping[str, object] = {"kv_offload": False, "max_context": False}
_OWN: Mapping[str, Mapping[str, object]] = {
    "layer-split": {**_LAYER_SPLIT, "paper": False},
    "op-split": {**_STREAMING, **_OP_SPLIT, "paper": False},
    "flexgen": {**_STREAMING, **_FLEXGEN, **_TIERS},
    "layerwise-map": {"compress": "none", "table": None, **_TIERS, "paper": False},
    "all-cpu": {"compress": "none", "table": None, **_OFFLOADING, "paper": False},
    "flexgen-lp": {"compress": "none", "table": None, "home": None, "block": None},
    "optimal": OPTIMAL,
    **HOST_SHARES,
    **ENGINES,
}
"""By strategy, the options that not all have, with their defaults."""


def add_strategy_arguments(parser: Parser) -> None:
    """--strategy, what all strategies share, and what each adds."""
    group = parser.add_argument_group("strategy")
    group.add_argument("--strategy", choices=(*STRATEGIES, "all"), default="optimal")
    group.add_argument("--objective", choices=("latency", "throughput", "ttft"), default="latency")
    group.add_argument("--format", choices=FORMATS, default="f16", help="how weights are stored")
    group.add_argument("--kv-format", choices=FORMATS, default="f16", help="how KV is stored")
    group.add_argument("--kv-offload", action="store_true", help="keep the accelerator's KV in host memory")
    group.add_argument("--paper", action="store_true", help="price decode steps by the printed formulas")
    group.add_argument("--no-corrections", action="store_true", help="efficiencies 1, overheads 0")
    group.add_argument("--l3-blend", action="store_true", help="blend L3 bandwidth into KV reads (eq 4.14)")
    _add_streaming(parser)
    add_optimal_arguments(group)
    add_engine_arguments(parser.add_argument_group("engines that people already have"))


def own_options(strategy: str) -> Mapping[str, object]:
    """The options that a strategy has and not all others, with their defaults."""
    return _OWN[strategy]


def _add_streaming(parser: Parser) -> None:
    group = parser.add_argument_group("other strategies: the accelerator computes from streamed data")
    add_offloading_arguments(group)
    group.add_argument("--cpu-compute", action="store_true", help="flexgen: attention where the cache lives")
    group.add_argument("--chunks", metavar="N|OP=N,..", help="divide operations: all that can be, or scores=8,wv=8")
    group.add_argument("--compress", choices=COMPRESSIONS, default="none", help="stream 4-bit groups")
    group.add_argument("--nvme", choices=("direct", "bounce"), help="weights may come from storage, by this path")
    group.add_argument("--pinning", choices=("pinned", "pageable", "pin-on-transfer"), default="pinned")
    group.add_argument("--no-cpu-offload", action="store_true", help="the accelerator computes every operation")
    group.add_argument("--no-overlap", action="store_true", help="transfers wait for the operation before them")
    group.add_argument("--reshape", action="store_true", help="caches are kept (batch, tokens, hidden) and turned")
    group.add_argument("--kv-keep", type=float, metavar="SHARE", help="attend to this share of the cached tokens")
    group.add_argument(
        "--kv-select", type=float, metavar="SHARE", help="of the head dimension, read to choose them; 0: no choice"
    )
    group.add_argument("--activation-cache", action="store_true", help="cache layer inputs instead of K and V")
    group.add_argument("--fused-attention", action="store_true", help="attention is one operation (FlashAttention)")
    group.add_argument("--table", type=Path, metavar="FILE", help="measured operation latencies (helm.optable/1)")
    group.add_argument("--write-table", type=Path, metavar="FILE", help="write the prices of every operation, to edit")


def decide(
    args: argparse.Namespace, model: "Model", hardware: "Hardware", workload: "Workload"
) -> "tuple[Decision, OpSplit | None, Mapping[str, float]]":
    """The best plan of the strategy that the arguments name; the search of op-split, to be drawn, and seconds of its
    parts."""
    _refuse_foreign(args)
    if args.strategy == "op-split":
        asked = op_split(args, model, hardware, workload)
        _warn_of_table(args, asked.frame)
        parts = search_parts(asked)
        decision = _bounded(args, asked.decide(_recorded(args, {**_STREAMING, **_OP_SPLIT})))
        _write_table(args, asked)
        return decision, asked, parts
    if args.strategy == "flexgen" and args.percent is None:
        schedule = flexgen(args, model, hardware, workload)
        _warn_of_table(args, schedule.frame)
        return _bounded(args, schedule.decide(_recorded(args, {**_STREAMING, **_FLEXGEN}))), None, {}
    if args.strategy == "optimal":
        frame = replace(_question(args, model, hardware, workload), fused=True)
        return composed(args, frame, _recorded(args, OPTIMAL)), None, {}
    if args.strategy != "layer-split":
        frame = _frame(args, model, hardware, workload)
        _warn_of_table(args, frame)
        plan = planned if args.strategy in ENGINES else shared if args.strategy in HOST_SHARES else offloaded
        return plan(args, frame, _recorded(args, _OWN[args.strategy])), None, {}
    from helmsman.planner.strategies.layer_search import decide as decide_split

    recorded = _recorded(args, {"kv_offload": False})
    return decide_split(layer_split(args, model, hardware, workload), recorded), None, {}


def layer_split(args: argparse.Namespace, model: "Model", hardware: "Hardware", workload: "Workload") -> "LayerSplit":
    """The layer splits that the arguments ask about."""
    from helmsman.planner.costs import CostModel, CostOptions
    from helmsman.planner.machine import roles
    from helmsman.planner.strategies.layer_split import LayerSplit, LayerSplitOptions
    from helmsman.planner.strategies.paper import PrintedLayerSplit

    options = LayerSplitOptions(args.format, args.kv_format, args.kv_offload, args.objective)
    costs = CostModel(hardware, CostOptions(not args.no_corrections, args.l3_blend))
    strategy = PrintedLayerSplit if args.paper else LayerSplit
    return strategy(model, roles(hardware), workload, options, costs)


def op_split(args: argparse.Namespace, model: "Model", hardware: "Hardware", workload: "Workload") -> "OpSplit":
    """The operation splits that the arguments ask about."""
    from helmsman.planner.costs import CostOptions
    from helmsman.planner.strategies.op_split.strategy import OpSplit, OpSplitOptions
    from helmsman.planner.strategies.op_split.variants import with_cache_use

    if args.paper and (args.no_overlap or args.pinning == "pin-on-transfer"):
        remedy = "leave --paper out: the printed equations know lanes that overlap"
        raise UsageError("does not go with transfers that wait for operations", field="--paper", remedy=remedy)
    options = OpSplitOptions(
        chunks=_chunks(args, model),
        compress=args.compress,
        storage=storage_of(args, hardware),
        path=args.nvme or "direct",
        pinning=args.pinning,
        offload=not args.no_cpu_offload,
        printed=args.paper,
    )
    frame = with_cache_use(_frame(args, model, hardware, workload))
    return OpSplit(frame, options, CostOptions(not args.no_corrections, args.l3_blend))


def flexgen(args: argparse.Namespace, model: "Model", hardware: "Hardware", workload: "Workload") -> "FlexGen":
    """FlexGen's plan for what the arguments ask about."""
    from helmsman.planner.costs import CostOptions
    from helmsman.planner.strategies.flexgen import FlexGen

    for name, default in _TIERS.items():
        if getattr(args, name) != default:
            flag, remedy = f"--{name.replace('_', '-')}", "add --percent S,H,A, or leave it out"
            raise UsageError("goes with FlexGen's percentages alone", field=flag, remedy=remedy)
    if args.compress not in ("none", "all"):
        remedy = "use --compress none or all"
        raise UsageError("FlexGen compresses both or nothing", field="--compress", value=args.compress, remedy=remedy)
    costs = CostOptions(not args.no_corrections, args.l3_blend)
    return FlexGen(_frame(args, model, hardware, workload), args.compress == "all", args.cpu_compute, costs)


def _frame(args: argparse.Namespace, model: "Model", hardware: "Hardware", workload: "Workload") -> "Frame":
    if args.objective != "latency":
        remedy = "use --objective latency: prompts run on the accelerator whatever the split"
        message = "streaming strategies choose by decode steps alone"
        raise UsageError(message, field="--objective", value=args.objective, remedy=remedy)
    return _question(args, model, hardware, workload)


def _question(args: argparse.Namespace, model: "Model", hardware: "Hardware", workload: "Workload") -> "Frame":
    from helmsman.planner.machine import roles
    from helmsman.planner.strategies.streaming.place import Frame

    overlap: Literal["none", "next-layer"] = "none" if args.no_overlap else "next-layer"
    frame = Frame(model, roles(hardware), workload, args.format, args.kv_format, overlap=overlap, reshape=args.reshape)
    frame = replace(frame, cache=_cache_use(args, model), fused=args.fused_attention)
    return frame if args.table is None else _with_table(args.table, frame)


def _warn_of_table(args: argparse.Namespace, frame: "Frame") -> None:
    """Say on standard error which figures of the user's table cannot be seconds."""
    from helmsman.planner.strategies.op_split.table_check import table_warnings

    if args.table is not None and frame.roles.separate:
        for warning in table_warnings(frame.roles.hardware.tables[0], frame, storage_of(args, frame.roles.hardware)):
            print(f"helm-plan: warning: {warning}", file=sys.stderr)


def _bounded(args: argparse.Namespace, decision: "Decision") -> "Decision":
    """The decision itself; says on standard error where the user's table leaves no bound."""
    decode = decision.plan.predicted.decode
    if args.table is not None and decode.lower_bound == decode.seconds.mid:
        remedy = "the lower bound is the plan's own time; correct the table, or the record"
        print(f"helm-plan: warning: --table: faster than the machine's rates allow: {remedy}", file=sys.stderr)
    return decision


def _refuse_foreign(args: argparse.Namespace) -> None:
    """Options of other strategies are a mistake, not ignored."""
    everything = {name: default for own in _OWN.values() for name, default in own.items()}
    for name, default in everything.items():
        if name not in _OWN[args.strategy] and getattr(args, name) != default:
            flag, remedy = f"--{name.replace('_', '-')}", "leave it out, or use another strategy"
            raise UsageError(f"does not go with --strategy {args.strategy}", field=flag, remedy=remedy)


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


def _chunks(args: argparse.Namespace, model: "Model") -> dict[str, int]:
    """`8` (every operation that can be divided, into as many parts or as it has), or `scores=8,wv=4`."""
    from helmsman.planner.strategies.streaming.division import divisible

    text, fused = args.chunks, args.fused_attention
    if text is None:
        return {}
    names = divisible(model, "reordered" if args.activation_cache else "fused" if fused else "divided")
    found = {}
    for name, count in _divisions(text, model, names):
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


def _write_table(args: argparse.Namespace, asked: "OpSplit") -> None:
    """The prices of the question as a table to edit and give back."""
    from helmsman.planner.strategies.op_split.tabulate import tabulate

    if args.write_table is not None:
        storage = storage_of(args, asked.frame.roles.hardware)
        write_text(args.write_table, tabulate(asked.frame, asked.costs, storage).to_json() + "\n")


def _with_table(path: Path, frame: "Frame") -> "Frame":
    """The question with the user's operation table before those of the machine."""
    from helmsman.planner.strategies.op_split.table_check import check_table
    from helmsman.schemas.operation_table import OperationTable
    from helmsman.schemas.read import read_document

    table = read_document(OperationTable, path)
    if frame.roles.separate:
        check_table(table, frame, str(path))
    return frame.with_tables(table)


def _recorded(args: argparse.Namespace, own: Mapping[str, object]) -> Recorded:
    """What a plan says of the options it was made with."""
    chosen = {name: getattr(args, name) for name in own if name not in _FILES and getattr(args, name) is not None}
    return {
        "objective": args.objective,
        **chosen,
        "paper": args.paper,
        "corrections": not args.no_corrections,
        "l3_blend": args.l3_blend,
    }
