"""Strategies that keep weights in several memories and compute on the accelerator: their arguments, their plans."""

import argparse
from typing import TYPE_CHECKING, Literal

from helmsman.cli.storage import storage_of
from helmsman.schemas.errors import UsageError

if TYPE_CHECKING:
    from helmsman.planner.costs import CostOptions
    from helmsman.planner.decide import Decision
    from helmsman.planner.strategies.offload.allocation import Percentages
    from helmsman.planner.strategies.offload.caches import CacheRule
    from helmsman.planner.strategies.offload.place import Keeping
    from helmsman.planner.strategies.streaming.place import Frame

Recorded = dict[str, str | int | float | bool]

KV_RULES = ("accelerator", "host", "layerkv", "headinfer", "lmcache")


def add_offloading_arguments(group: "argparse._ArgumentGroup") -> None:
    """--percent, --home, --kv-rule and --block."""
    percent = "flexgen, layerwise-map: per cent of every layer's weights in storage, host memory and the accelerator's"
    group.add_argument("--percent", metavar="S,H,A", help=percent)
    home = "the memory that is the host's tier (default: the CPU's); optimal: where weights may live beside that"
    group.add_argument("--home", metavar="MEMORY", help=home)
    rule = "where keys and values are: of as few blocks (layerkv) or heads (headinfer) in host memory as fit"
    known = "lmcache: those of --prefix-tokens come from a store in the prompt pass (vllm too)"
    group.add_argument("--kv-rule", choices=KV_RULES, help=f"{rule}; {known} (default: accelerator)")
    inclusive = "flexgen, layerwise-map: the accelerator has copies of the host's tier (default: one place for each)"
    group.add_argument("--inclusive", action="store_true", help=inclusive)
    managed = "flexgen, layerwise-map, all-cpu: the host's tier is managed memory, whose pages migrate on touch"
    group.add_argument("--managed", action="store_true", help=managed)
    group.add_argument("--kv-store", metavar="MEMORY", help="lmcache: the store (default: the CPU's memory)")
    block = "flexgen-lp: choose the batches, at most N sequences together, for the most tokens per second"
    group.add_argument("--block", type=int, metavar="N", help=block)


def offloaded(args: argparse.Namespace, frame: "Frame", recorded: Recorded) -> "Decision":
    """The plan of the strategy that the arguments name."""
    from helmsman.planner.costs import CostOptions
    from helmsman.planner.strategies.all_cpu import AllCpu
    from helmsman.planner.strategies.layerwise_map import PRINTED, LayerwiseMap, best_map
    from helmsman.planner.strategies.offload.strategy import Offloading
    from helmsman.planner.strategies.percentages import FlexGenPercentages

    costs = CostOptions(not args.no_corrections, args.l3_blend, not args.paper)
    keeping, recorded = _keeping(args, frame), {**recorded, "capped": costs.capped}
    if args.strategy == "flexgen-lp":
        return _searched(args, frame, keeping, costs, recorded)
    if args.strategy == "all-cpu":
        return Offloading(frame, AllCpu(), keeping, costs, args.objective).decide(recorded)
    percentages = _percentages(args)
    if args.strategy == "flexgen":
        return Offloading(frame, FlexGenPercentages(percentages), keeping, costs, args.objective).decide(recorded)
    if args.paper:
        printed = LayerwiseMap(PRINTED["attention"], PRINTED["ffn"], percentages)
        return Offloading(frame, printed, keeping, costs, args.objective).decide(recorded)
    return best_map(frame, percentages, keeping, costs, args.objective).decide(recorded)


def _searched(
    args: argparse.Namespace, frame: "Frame", keeping: "Keeping", costs: "CostOptions", recorded: Recorded
) -> "Decision":
    """FlexGen's own policy, found by linear programs."""
    from helmsman.planner.strategies.flexgen_lp import FlexGenLp

    if args.block is not None and not 1 <= args.block <= 2**20:
        remedy = "use between 1 and 1048576 sequences"
        raise UsageError("not a number of sequences", field="--block", value=args.block, remedy=remedy)
    if args.block is not None and args.objective != "throughput":
        remedy = "add --objective throughput, or leave it out"
        raise UsageError(
            f"more sequences never gain {args.objective}", field="--block", value=args.block, remedy=remedy
        )
    return FlexGenLp(frame, keeping, costs, args.block, args.objective).decide(recorded)


def _percentages(args: argparse.Namespace) -> "Percentages":
    """`0,80,20`: storage, host, accelerator."""
    from helmsman.planner.strategies.offload.allocation import Percentages

    text = "0,100,0" if args.percent is None else args.percent
    try:
        storage, host, accelerator = (float(part) for part in text.split(","))
    except ValueError:
        remedy = "write percentages of storage, host and accelerator, as in 0,80,20"
        raise UsageError("three numbers are expected", field="--percent", value=text, remedy=remedy) from None
    return Percentages(storage, host, accelerator)


def _keeping(args: argparse.Namespace, frame: "Frame") -> "Keeping":
    from helmsman.planner.strategies.offload.place import Keeping
    from helmsman.schemas.storage import STORAGE

    if args.compress not in ("none", "weights"):
        remedy = "use --compress none or weights"
        raise UsageError("keys and values are kept as they are", field="--compress", value=args.compress, remedy=remedy)
    hardware = frame.roles.hardware
    storage = next((memory.name for memory in hardware.memories if memory.kind == STORAGE), None)
    store = kv_store(args, frame)
    cache: CacheRule = "accelerator" if store or args.kv_rule is None else args.kv_rule
    path: Literal["direct", "bounce"] = args.nvme if storage_of(args, hardware) else "bounce"
    return Keeping(
        host=memory_named("home", args, frame),
        storage=storage,
        compress=args.compress == "weights",
        cache=cache,
        path=path,
        store=store,
        inclusive=args.inclusive,
        managed=args.managed,
    )


def kv_store(args: argparse.Namespace, frame: "Frame") -> str | None:
    """The memory in which known tokens of prompts wait, with --kv-rule lmcache."""
    known = frame.workload.prefix_tokens
    if args.kv_rule != "lmcache":
        if args.kv_store is not None:
            remedy = "add it, or leave --kv-store out"
            raise UsageError("goes with --kv-rule lmcache", field="--kv-store", value=args.kv_store, remedy=remedy)
        return None
    if not known:
        problem, remedy = "a store needs prompts that are known in part", "add --prefix-tokens N"
        raise UsageError(problem, field="--kv-rule", value="lmcache", remedy=remedy)
    return memory_named("kv_store", args, frame)


def memory_named(option: str, args: argparse.Namespace, frame: "Frame") -> str:
    """The memory that --home or --kv-store names; the host's if there is no such argument. Raises UsageError."""
    name = getattr(args, option)
    if name is None:
        return frame.roles.host.memory
    names = [memory.name for memory in frame.roles.hardware.memories]
    if name not in names:
        field, remedy = f"--{option.replace('_', '-')}", f"use one of {', '.join(names)}"
        raise UsageError("this machine has no such memory", field=field, value=name, remedy=remedy)
    return str(name)
