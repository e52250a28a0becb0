"""`optimal` as a strategy: the best composition of blocks for a request."""

from collections.abc import Mapping
from dataclasses import replace

from helmsman.planner.decision import Decision
from helmsman.planner.registry import Method
from helmsman.planner.request import PlanRequest
from helmsman.planner.slo import limits_of
from helmsman.planner.strategies.common_options import OptimalOptions, memory_named
from helmsman.planner.strategies.optimal.aims import aim_of, tokens_of
from helmsman.planner.strategies.optimal.strategy import Optimal
from helmsman.planner.strategies.storage import storage_of
from helmsman.planner.strategies.streaming.framing import frame_of
from helmsman.planner.strategies.streaming.place import Frame, Quarter
from helmsman.planner.strategies.streaming.question import Question
from helmsman.planner.strategies.streaming.store import WeightStore, store_of
from helmsman.schemas.errors import UsageError
from helmsman.schemas.explanation import Explanation
from helmsman.schemas.plan import Plan

_QUARTERS: Mapping[str, tuple[Quarter, ...]] = {
    "none": (),
    "weights": ("weights",),
    "kv": ("kv",),
    "all": ("weights", "kv"),
    "best": ("weights", "kv"),
}


def _decide(request: PlanRequest[OptimalOptions]) -> Decision:
    optimal = _search_of(request)
    decision = optimal.decide(request.recorded())
    return replace(decision, explained=lambda: _explanation(optimal, decision.plan))


def _search_of(request: PlanRequest[OptimalOptions]) -> Optimal:
    options = request.options
    frame = frame_of(request, options.table, fused=True)
    frame = replace(frame, store=_store(options, frame), quarters=_QUARTERS[options.compress], formats=request.formats)
    aim = aim_of(request.objective, frame.workload, limits_of(options.slo))
    return Optimal(Question(frame, request.prices, request.objective), aim)


def _explanation(optimal: Optimal, plan: Plan) -> Explanation:
    """Why the plan is best; what that needs is imported where it is asked for."""
    from helmsman.planner.strategies.optimal.explain.explanation import explanation

    return explanation(optimal, plan, tokens_of(optimal.question.objective, plan.workload))


def _store(options: OptimalOptions, frame: Frame) -> WeightStore | None:
    """Where weights may live beside the host's memory: in memory `home`, or in storage by the path `nvme`.

    Raises UsageError where that leads nowhere."""
    hardware, host = frame.roles.hardware, frame.roles.host.memory
    storage_of(options.nvme, hardware)
    home = None if options.home is None else memory_named(options.home, host, "home", hardware)
    store = store_of(frame.roles, options.nvme, home)
    given = {
        f"--{name}": value for name, value in (("home", options.home), ("nvme", options.nvme)) if value is not None
    }
    if given and store is None and home != host:
        field, value = next(iter(given.items()))
        remedy = "leave it out, or name a memory from which one accelerator of the machine alone can be reached"
        raise UsageError("no weights come from there", field=field, value=value, remedy=remedy)
    return store


STRATEGY = Method(
    "optimal",
    "the best composition of blocks, with a proof",
    OptimalOptions,
    _decide,
    fits=lambda request: _search_of(request).fits,
)
