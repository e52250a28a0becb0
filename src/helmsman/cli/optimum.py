"""The arguments of `--strategy optimal`, and the decision they lead to."""

import argparse
import gc
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from helmsman.cli.offloading import memory_named
from helmsman.cli.storage import storage_of
from helmsman.schemas.errors import UsageError

if TYPE_CHECKING:
    from helmsman.planner.decide import Decision
    from helmsman.planner.strategies.optimal.strategy import Optimal
    from helmsman.planner.strategies.streaming.place import Frame, Quarter
    from helmsman.planner.strategies.streaming.question import Recorded
    from helmsman.planner.strategies.streaming.store import Store
    from helmsman.scheduler.iteration import Phase
    from helmsman.schemas.explanation import Explanation
    from helmsman.schemas.plan import Plan

OPTIMAL: Mapping[str, object] = {
    "slo": None,
    "effort": None,
    "table": None,
    "explain": False,
    "nvme": None,
    "home": None,
    "compress": "none",
}
"""The options of `optimal`, with their defaults."""

_PHASES: "Mapping[str, Phase]" = {"ttft": "prefill", "tpot": "decode"}
_QUARTERS: "Mapping[str, tuple[Quarter, ...]]" = {
    "none": (),
    "weights": ("weights",),
    "kv": ("kv",),
    "all": ("weights", "kv"),
    "best": ("weights", "kv"),
}
_MOST_EFFORT = 10**6
_COLLECTED = 50_000
"""So many values are made before cycles are looked for."""

_UNITS = {"ms": 1e-3, "s": 1.0}


def add_optimal_arguments(group: "argparse._ArgumentGroup") -> None:
    """What `optimal` alone has."""
    group.add_argument(
        "--slo",
        metavar="ttft=2s,tpot=100ms",
        help="optimal: no plan that is slower than this; all: those first that are not",
    )
    text = "optimal: partial compositions that a search follows; it ends with its best plan and the gap (default: 100)"
    group.add_argument("--effort", type=int, metavar="N", help=text)
    text = (
        "what binds in the search's own plan (--strategy optimal), shadow prices, what every rule is worth; --json "
        "prints that, --out still writes the plan"
    )
    group.add_argument("--explain", action="store_true", help=text)


def composed(args: argparse.Namespace, frame: "Frame", recorded: "Recorded") -> "Decision":
    """The best composition of blocks."""
    _one_thread()
    _fewer_collections()
    from helmsman.planner.costs import CostOptions
    from helmsman.planner.strategies.optimal.aims import aim_of
    from helmsman.planner.strategies.optimal.compositions import EFFORT
    from helmsman.planner.strategies.optimal.strategy import Optimal
    from helmsman.planner.strategies.streaming.question import Question

    costs = CostOptions(not args.no_corrections, args.l3_blend)
    if args.effort is not None and not 1 <= args.effort <= _MOST_EFFORT:
        remedy = f"use between 1 and {_MOST_EFFORT}"
        raise UsageError("not a number of compositions", field="--effort", value=args.effort, remedy=remedy)
    formats = getattr(args, "tensor_formats", {})
    frame = replace(frame, store=_store(args, frame), quarters=_QUARTERS[args.compress], formats=formats)
    aim = aim_of(args.objective, frame.workload, limits_of(args.slo))
    optimal = Optimal(Question(frame, costs, args.objective), aim, args.effort or EFFORT)
    decision = optimal.decide(recorded)
    return replace(decision, explained=lambda: _explanation(optimal, decision.plan))


def _explanation(optimal: "Optimal", plan: "Plan") -> "Explanation":
    """Why the plan is best; what that needs is imported where it is asked for."""
    from helmsman.planner.strategies.optimal.aims import tokens_of
    from helmsman.planner.strategies.optimal.explanation import explanation

    return explanation(optimal, plan, tokens_of(optimal.question.objective, plan.workload))


def _store(args: argparse.Namespace, frame: "Frame") -> "Store | None":
    """Where weights may live beside the host's memory: what --home names, or storage by the path that --nvme names.
    Raises UsageError where that leads nowhere."""
    from helmsman.planner.strategies.streaming.store import store_of

    storage_of(args, frame.roles.hardware)
    home = None if args.home is None else memory_named("home", args, frame)
    found = store_of(frame.roles, args.nvme, home)
    asked = {f"--{name}": getattr(args, name) for name in ("home", "nvme") if getattr(args, name) is not None}
    if asked and found is None and home != frame.roles.host.memory:
        field, value = next(iter(asked.items()))
        remedy = "leave it out, or name a memory from which one accelerator of the machine alone can be reached"
        raise UsageError("no weights come from there", field=field, value=value, remedy=remedy)
    return found


def _one_thread() -> None:
    """Products of small matrices gain nothing from threads that wait for them; unless the user says otherwise."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _fewer_collections() -> None:
    """Nearly all that a search makes goes by itself: looking for cycles took 4 % of its time."""
    gc.set_threshold(_COLLECTED, *gc.get_threshold()[1:])


def limits_of(text: str | None) -> "dict[Phase, float]":
    """`ttft=2s,tpot=100ms` in seconds by phase. Raises UsageError."""
    found: dict[Phase, float] = {}
    for item in () if text is None else text.split(","):
        name, _, value = item.strip().partition("=")
        if name not in _PHASES or _PHASES[name] in found:
            remedy = "write ttft=TIME, tpot=TIME or both, as in ttft=2s,tpot=100ms"
            raise UsageError("not a limit, or the same one twice", field="--slo", value=item, remedy=remedy)
        found[_PHASES[name]] = _seconds(item, value)
    return found


def _seconds(item: str, value: str) -> float:
    unit = "ms" if value.endswith("ms") else "s"
    try:
        seconds = float(value.removesuffix(unit)) * _UNITS[unit]
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < float("inf"):
        raise UsageError("not a time", field="--slo", value=item, remedy="write seconds (2s) or milliseconds (100ms)")
    return seconds
