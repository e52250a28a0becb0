"""The arguments that choose a strategy and its options, and the decision they lead to."""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from helmsman.cli.app import Parser
from helmsman.cli.best import BEST_STRATEGY, recommended
from helmsman.cli.engines import ENGINES, add_engine_arguments, planned
from helmsman.cli.formats import add_format_arguments
from helmsman.cli.host_shares import HOST_SHARES, shared
from helmsman.cli.native_formats import decide_mixed
from helmsman.cli.offloading import add_offloading_arguments, offloaded
from helmsman.cli.op_splits import op_split, write_table
from helmsman.cli.optimum import OPTIMAL, add_optimal_arguments, composed
from helmsman.cli.question import frame_of, warn_of_table
from helmsman.cli.search_parts import search_parts
from helmsman.cli.windows import add_window_arguments, kv_window
from helmsman.schemas.errors import UsageError
from helmsman.schemas.objective import DEFAULT_OBJECTIVE, OBJECTIVES

if TYPE_CHECKING:
    from helmsman.planner.decide import Decision
    from helmsman.planner.strategies.flexgen import FlexGen
    from helmsman.planner.strategies.layer_split import LayerSplit
    from helmsman.planner.strategies.op_split.strategy import OpSplit
    from helmsman.schemas.hardware import Hardware
    from helmsman.schemas.model import Model
    from helmsman.schemas.workload import Workload

    Decided = tuple[Decision, OpSplit | None, Mapping[str, float]]

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
_PERCENTAGES: Mapping[str, object] = {**_TIERS, "paper": False}
"""What HeLM has, and FlexGen with --percent alone."""
_WINDOW: Mapping[str, object] = {"kv_window": None, "page_tokens": None, "watermark": None}
_LAYER_SPLIT: Mapping[str, object] = {"kv_offload": False, "max_context": False, **_WINDOW}
_OWN: Mapping[str, Mapping[str, object]] = {
    "layer-split": {**_LAYER_SPLIT, "paper": False},
    "op-split": {**_STREAMING, **_OP_SPLIT, "paper": False},
    "flexgen": {**_STREAMING, **_FLEXGEN, **_PERCENTAGES},
    "layerwise-map": {"compress": "none", "table": None, **_PERCENTAGES},
    "all-cpu": {"compress": "none", "table": None, **_OFFLOADING, "paper": False},
    "flexgen-lp": {"compress": "none", "table": None, "home": None, "block": None},
    "optimal": OPTIMAL,
    BEST_STRATEGY: {**OPTIMAL, "risk": "median"},
    **HOST_SHARES,
    **ENGINES,
}
"""By strategy, the options that not all have, with their defaults."""


def add_strategy_arguments(parser: Parser) -> None:
    """--strategy, what all strategies share, and what each adds."""
    group = parser.add_argument_group("strategy")
    which = (
        f"{BEST_STRATEGY}: the simplest of the plans of optimal, layer-split, llama-cpp and vllm that cannot be told "
        "apart from the fastest; a method by itself; or all in one table (default: best)"
    )
    group.add_argument("--strategy", choices=(BEST_STRATEGY, *STRATEGIES, "all"), default=BEST_STRATEGY, help=which)
    what = (
        "what is best: seconds of the whole request, of a decode step (latency), of the prompt (ttft), or output "
        "tokens/s of the whole workload (default: request)"
    )
    group.add_argument("--objective", choices=OBJECTIVES, default=DEFAULT_OBJECTIVE, help=what)
    risk = (
        "best: rank plans by the median of their seconds, giving the simplest of those that cannot be told apart, by "
        "the 95th percentile (pessimistic), or by the most that is lost when one figure is at an end of its interval "
        "(regret)"
    )
    group.add_argument("--risk", choices=("median", "pessimistic", "regret"), default="median", help=risk)
    parser.set_defaults(undivided=False)
    add_format_arguments(group, native=True)
    group.add_argument("--kv-offload", action="store_true", help="keep the accelerator's KV in host memory")
    add_window_arguments(group)
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
    group.add_argument(
        "--compress", choices=COMPRESSIONS, default="none", help="stream 4-bit groups (optimal: where faster)"
    )
    group.add_argument(
        "--nvme",
        choices=("direct", "bounce"),
        help="weights may come from storage, by this path (optimal: where needed)",
    )
    group.add_argument("--pinning", choices=("pinned", "pageable", "pin-on-transfer"), default="pinned")
    group.add_argument("--no-cpu-offload", action="store_true", help="the accelerator computes every operation")
    group.add_argument("--no-overlap", action="store_true", help="transfers wait for the operation before them")
    group.add_argument("--reshape", action="store_true", help="caches are kept (batch, tokens, hidden) and turned")
    group.add_argument("--kv-keep", type=float, metavar="SHARE", help="attend to this share of the cached tokens")
    group.add_argument(
        "--kv-select", type=float, metavar="SHARE", help="of the head dimension, read to choose them; 0: no choice"
    )
    group.add_argument("--activation-cache", action="store_true", help="cache layer inputs instead of K and V")
    fused = "attention is one operation (FlashAttention), as it always is over q8_0 caches"
    group.add_argument("--fused-attention", action="store_true", help=fused)
    group.add_argument("--table", type=Path, metavar="FILE", help="measured operation latencies (helm.optable/1)")
    group.add_argument("--write-table", type=Path, metavar="FILE", help="write the prices of every operation, to edit")


def decide(args: argparse.Namespace, model: "Model", hardware: "Hardware", workload: "Workload") -> "Decided":
    """The best plan of the strategy that the arguments name; the search of op-split, to be drawn, and seconds of its
    parts."""
    refuse_foreign(args)
    if args.strategy == BEST_STRATEGY:
        return recommended(args, partial(_asked_of, args, model, hardware, workload)), None, {}
    if args.strategy == "op-split":
        asked = op_split(args, model, hardware, workload)
        warn_of_table(args, asked.frame)
        parts = search_parts(asked)
        decision = _bounded(args, asked.decide(_recorded(args, {**_STREAMING, **_OP_SPLIT})))
        write_table(args, asked)
        return decision, asked, parts
    if args.strategy == "flexgen" and args.percent is None:
        schedule = flexgen(args, model, hardware, workload)
        warn_of_table(args, schedule.frame)
        return _bounded(args, schedule.decide(_recorded(args, {**_STREAMING, **_FLEXGEN}))), None, {}
    if args.strategy == "optimal":
        frame = replace(frame_of(args, model, hardware, workload), fused=True)
        return composed(args, frame, _recorded(args, OPTIMAL)), None, {}
    if args.strategy != "layer-split":
        frame = frame_of(args, model, hardware, workload)
        warn_of_table(args, frame)
        plan = planned if args.strategy in ENGINES else shared if args.strategy in HOST_SHARES else offloaded
        return plan(args, frame, _recorded(args, _OWN[args.strategy])), None, {}
    from helmsman.planner.strategies.layer_search import decide as decide_split

    recorded = _recorded(args, {"kv_offload": False, **_WINDOW})
    return decide_split(layer_split(args, model, hardware, workload), recorded), None, {}


def _asked_of(
    args: argparse.Namespace,
    model: "Model",
    hardware: "Hardware",
    workload: "Workload",
    strategy: str,
    options: Mapping[str, object],
) -> "Decision":
    """The decision of one strategy, without the options that it does not have, and with `options`; all of them know the
    user's table."""
    own = own_options(strategy)
    if args.table is not None and "table" not in own:
        tables = frame_of(args, model, hardware, workload).roles.hardware.tables
        hardware = hardware.model_copy(update={"tables": tables})
    usual = {name: default for name, default in own_options(BEST_STRATEGY).items() if name not in own}
    asked = argparse.Namespace(**{**vars(args), **usual, **options, "strategy": strategy})
    answer = partial(decide, asked, model, hardware, workload)
    return decide_mixed(asked, model, getattr(args, "tensor_formats", {}), answer)[0]


def layer_split(args: argparse.Namespace, model: "Model", hardware: "Hardware", workload: "Workload") -> "LayerSplit":
    """The layer splits that the arguments ask about."""
    from helmsman.planner.costs import CostModel, CostOptions
    from helmsman.planner.launches import driven
    from helmsman.planner.machine import roles
    from helmsman.planner.strategies.layer_split import LayerSplit, LayerSplitOptions
    from helmsman.planner.strategies.paper import PrintedLayerSplit

    window = kv_window(args, hardware, workload)
    options = LayerSplitOptions(args.format, args.kv_format, args.kv_offload, args.objective, window, args.undivided)
    machine = driven(roles(hardware), model, workload, args.format, args.kv_format)
    costs = CostModel(machine.hardware, CostOptions(not args.no_corrections, args.l3_blend))
    strategy = PrintedLayerSplit if args.paper else LayerSplit
    return strategy(model, machine, workload, options, costs)


def flexgen(args: argparse.Namespace, model: "Model", hardware: "Hardware", workload: "Workload") -> "FlexGen":
    """FlexGen's plan for what the arguments ask about."""
    from helmsman.planner.costs import CostOptions
    from helmsman.planner.strategies.flexgen import FlexGen

    for name, default in _PERCENTAGES.items():
        if getattr(args, name) != default:
            flag, remedy = f"--{name.replace('_', '-')}", "add --percent S,H,A, or leave it out"
            raise UsageError("goes with FlexGen's percentages alone", field=flag, remedy=remedy)
    if args.compress not in ("none", "all"):
        remedy = "use --compress none or all"
        raise UsageError("FlexGen compresses both or nothing", field="--compress", value=args.compress, remedy=remedy)
    costs = CostOptions(not args.no_corrections, args.l3_blend)
    return FlexGen(
        frame_of(args, model, hardware, workload), args.compress == "all", args.cpu_compute, costs, args.objective
    )


def _bounded(args: argparse.Namespace, decision: "Decision") -> "Decision":
    """The decision itself; says on standard error where the user's table leaves no bound."""
    decode = decision.plan.predicted.decode
    if args.table is not None and decode.lower_bound == decode.seconds.mid:
        remedy = "the lower bound is the plan's own time; correct the table, or the record"
        print(f"helm-plan: warning: --table: faster than the machine's rates allow: {remedy}", file=sys.stderr)
    return decision


def refuse_foreign(args: argparse.Namespace) -> None:
    """Raise UsageError for options of other strategies: they are a mistake, not ignored."""
    everything = {name: default for own in _OWN.values() for name, default in own.items()}
    for name, default in everything.items():
        if name not in _OWN[args.strategy] and getattr(args, name) != default:
            flag, remedy = f"--{name.replace('_', '-')}", "leave it out, or use another strategy"
            raise UsageError(f"does not go with --strategy {args.strategy}", field=flag, remedy=remedy)


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
