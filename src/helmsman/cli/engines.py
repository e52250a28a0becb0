"""Strategies that stand for engines people already have: their arguments, their plans."""

import argparse
from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING

from helmsman.schemas.errors import UsageError

if TYPE_CHECKING:
    from helmsman.planner.decide import Decision
    from helmsman.planner.strategies.engines.question import Engine
    from helmsman.planner.strategies.streaming.place import Frame

Recorded = dict[str, str | int | float | bool]

_SHARED: Mapping[str, object] = {"table": None, "same_software": False}
LEAST = "least"
ENGINES: Mapping[str, Mapping[str, object]] = {
    "accelerate": _SHARED,
    "zero-inference": {**_SHARED, "resident": False},
    "vllm": {**_SHARED, "cpu_offload_gb": 0.0, "gpu_memory_utilization": None, "kv_rule": None, "kv_store": None},
    "llama-cpp": {**_SHARED, "ngl": None, "override_tensor": None, "n_cpu_moe": None, "no_op_offload": False},
}
"""By engine, the options that it has, with their defaults."""


def add_engine_arguments(group: "argparse._ArgumentGroup") -> None:
    """What the engines are asked for, called as they call it."""
    group.add_argument("--resident", action="store_true", help="zero-inference: weights stay on the accelerator")
    offload = f"vllm: so many GiB of weights in host memory, read in every pass; {LEAST}: as few as let it fit"
    group.add_argument("--cpu-offload-gb", type=_offload, default=0.0, metavar=f"N|{LEAST}", help=offload)
    share = "vllm: of the accelerator's capacity (default: 0.90)"
    group.add_argument("--gpu-memory-utilization", type=float, metavar="SHARE", help=share)
    slots = "llama-cpp: the last N of layers + 1 (the output) on the accelerator (default: as many as fit)"
    group.add_argument("--ngl", type=int, metavar="N", help=slots)
    rules = "llama-cpp: tensors by name, as in 'blk\\.[0-9]\\.ffn_.*=CPU'; operations run where their weights live"
    group.add_argument("--override-tensor", metavar="PATTERN=MEMORY,..", help=rules)
    group.add_argument("--n-cpu-moe", type=int, metavar="N", help="llama-cpp: for models with experts only")
    large = "llama-cpp: products of 32 tokens and more stay with the CPU that has their weights"
    group.add_argument("--no-op-offload", action="store_true", help=large)
    same = "engines: placements alone are compared, with the launch times of the machine's record"
    group.add_argument("--same-software", action="store_true", help=same)


def _offload(text: str) -> float | str:
    """What --cpu-offload-gb names: GiB, or `least`. Raises UsageError."""
    try:
        return text if text == LEAST else float(text)
    except ValueError:
        remedy = f"write a number of GiB, or {LEAST}"
        raise UsageError("not a size", field="--cpu-offload-gb", value=text, remedy=remedy) from None


def planned(args: argparse.Namespace, frame: "Frame", recorded: Recorded) -> "Decision":
    """The plan of the engine that the arguments name."""
    from helmsman.planner.costs import CostOptions
    from helmsman.planner.strategies.engines.question import EngineQuestion

    costs = CostOptions(not args.no_corrections, args.l3_blend)
    engine = {"accelerate": _accelerate, "zero-inference": _zero, "vllm": _vllm, "llama-cpp": _llama}[args.strategy]
    return EngineQuestion(frame, engine(args, frame), costs, not args.same_software, args.objective).decide(recorded)


def _accelerate(args: argparse.Namespace, frame: "Frame") -> "Engine":
    from helmsman.planner.strategies.accelerate import Accelerate

    return Accelerate()


def _zero(args: argparse.Namespace, frame: "Frame") -> "Engine":
    from helmsman.planner.strategies.zero_inference import ZeroInference

    return ZeroInference(args.resident)


def _vllm(args: argparse.Namespace, frame: "Frame") -> "Engine":
    from helmsman.cli.offloading import kv_store
    from helmsman.planner.strategies.vllm import UTILIZATION, Vllm

    offload = None if args.cpu_offload_gb == LEAST else args.cpu_offload_gb
    share = args.gpu_memory_utilization
    if offload is not None and not (isfinite(offload) and 0 <= offload <= 2**20):
        remedy = f"use 0 or more GiB, or {LEAST}"
        raise UsageError("not a size", field="--cpu-offload-gb", value=offload, remedy=remedy)
    if share is not None and not 0 < share <= 1:
        remedy = "use 0 < SHARE <= 1"
        raise UsageError("not a share of a memory", field="--gpu-memory-utilization", value=share, remedy=remedy)
    if args.kv_rule not in (None, "accelerator", "lmcache"):
        problem, remedy = "vLLM keeps its cache on the accelerator", "use lmcache, or leave it out"
        raise UsageError(problem, field="--kv-rule", value=args.kv_rule, remedy=remedy)
    return Vllm(offload, UTILIZATION if share is None else share, kv_store(args, frame))


def _llama(args: argparse.Namespace, frame: "Frame") -> "Engine":
    from helmsman.planner.strategies.engines.overrides import overrides_of
    from helmsman.planner.strategies.llama_cpp import LlamaCpp

    if args.n_cpu_moe is not None:
        remedy = "leave it out; --ngl and --override-tensor 'ffn_.*=CPU' divide dense models"
        problem = f"{frame.model.name} is a dense model: it has no experts to keep in host memory"
        raise UsageError(problem, field="--n-cpu-moe", value=args.n_cpu_moe, remedy=remedy)
    if args.ngl is not None and args.ngl < 0:
        remedy = "use 0 or more, or leave it out for as many as fit"
        raise UsageError("not a number of layers", field="--ngl", value=args.ngl, remedy=remedy)
    if args.ngl and frame.roles.accelerator is None:
        raise UsageError("this machine has no accelerator", field="--ngl", value=args.ngl, remedy="use --ngl 0")
    rules = () if args.override_tensor is None else overrides_of(args.override_tensor, frame.model, frame.roles)
    return LlamaCpp(args.ngl, rules, not args.no_op_offload)
