"""What `optimal` says where no plan fits or keeps its limits: the smallest change that would do."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from helmsman.planner.strategies.optimal.block_ways import from_storage, in_groups, on_accelerator, on_host
from helmsman.planner.strategies.optimal.compositions import Aim
from helmsman.planner.strategies.optimal.rules import Assignment, place
from helmsman.scheduler.iteration import Phase
from helmsman.schemas.errors import InfeasibleError
from helmsman.schemas.units import format_seconds

if TYPE_CHECKING:
    from helmsman.planner.strategies.optimal.strategy import Optimal

LIMITS: Mapping[Phase, str] = {"prefill": "ttft", "decode": "tpot"}
"""What a limit of a phase is called."""

_MARGIN = 1.001
"""A limit to ask for, as a multiple of what is reached."""


def infeasible(optimal: "Optimal", name: str) -> InfeasibleError:
    """What would have to change for anything to fit."""
    free = replace(optimal, aim=replace(optimal.aim, limits={}))
    if optimal.aim.limits and free.finalists:
        return _too_slow(optimal)
    frame = optimal.question.frame
    simple = [Assignment((on_host(frame.model),) * frame.model.layers, "host", "host", {})]
    if optimal.search.composable:
        away = on_accelerator(frame.model, resident=False)
        ways = [away, *([from_storage(frame.model)] if frame.store is not None else [])]
        ways += [
            in_groups(frame.model, optimal.search.quarters, here) for here in (False, True) if optimal.search.quarters
        ]
        simple += [Assignment((way,) * frame.model.layers, "host", "host", {}) for way in ways]
    placed = min((place(frame, each) for each in simple), key=lambda each: sum(optimal.question.lacks(each).values()))
    return optimal.question.infeasible(name, placed, lambda asked: replace(free, question=asked).fits)


def _both_loosened(optimal: "Optimal") -> str:
    """Limits that can be kept together where none can be kept beside the others: the first as low as it can be."""
    kept: dict[Phase, float] = {}
    for phase in optimal.aim.limits:
        least = replace(optimal, aim=Aim(optimal.aim.name, {phase: 1.0}, dict(kept))).finalists
        kept[phase] = least[0].seconds * _MARGIN
    return ",".join(f"{LIMITS[phase]}={seconds:.4g}s" for phase, seconds in kept.items())


def _too_slow(optimal: "Optimal") -> InfeasibleError:
    """The smallest change of a limit that would do, the others kept."""
    found = []
    for phase, limit in optimal.aim.limits.items():
        least = optimal.fastest(phase).finalists
        if least:
            found.append((least[0].seconds / limit, f"{LIMITS[phase]}={least[0].seconds * _MARGIN:.4g}s"))
    remedy = f"the smallest change: {min(found)[1] if found else _both_loosened(optimal)}"
    text = ", ".join(f"{LIMITS[phase]} of {format_seconds(limit)}" for phase, limit in optimal.aim.limits.items())
    return InfeasibleError(f"no plan reaches {text}", field="--slo", remedy=remedy)
