"""The error of `optimal` where no plan fits or keeps its limits: the smallest change that would do."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from helmsman.planner.memory.names import room_in_words
from helmsman.planner.strategies.optimal.configurations.one_side import sides
from helmsman.planner.strategies.optimal.configurations.rules import Assignment, place
from helmsman.planner.strategies.optimal.search.compositions import Aim
from helmsman.planner.strategies.streaming.question import Question
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
    """Return what would have to change for anything to fit: of one memory the least that does, that first of which it
    is the smallest part of what there is."""
    free = replace(optimal, aim=replace(optimal.aim, limits={}))
    if optimal.aim.limits and free.fits:
        return _too_slow(optimal)
    hardware = optimal.question.frame.roles.hardware
    available = {memory.name: memory.available for memory in hardware.memories}
    lacking = _lacking(free)
    first, *rest = sorted(lacking, key=lambda memory: lacking[memory] / max(1, available[memory]))
    others = ", or ".join(room_in_words(hardware, [(memory, lacking[memory])]) for memory in rest)
    missing = {first: lacking[first]}
    return optimal.question.refused(
        name, missing, lambda question: replace(free, question=question).fits, others or None
    )


def _lacking(optimal: "Optimal") -> dict[str, int]:
    """By memory the fewest bytes that would do if others stay as they are, where that helps."""
    least: dict[str, int] = {}
    for memory, size in _alone_lacking(optimal):
        least[memory] = min(size, least.get(memory, size))
    return {memory: _in_hundredths(size) for memory, size in least.items()}


def _alone_lacking(optimal: "Optimal") -> Iterator[tuple[str, int]]:
    """Memories that are all that some plan lacks, and its bytes."""
    for question, chosen in _wanted(optimal):
        lacks = question.lacks(place(question.frame, chosen))
        if len(lacks) == 1:
            yield from lacks.items()


def _wanted(optimal: "Optimal") -> Iterator[tuple[Question, Assignment]]:
    """The plans that need least."""
    yield from sides(optimal.question)
    for problem in (optimal, optimal.with_one) if optimal.question.frame.roles.others else (optimal,):
        for memory in problem.search.memories:
            least = problem.search.least(memory)
            if least is not None:
                yield problem.question, least


def _in_hundredths(size: int) -> int:
    """Bytes rounded up to what is printed."""
    step = max(1, int(10 ** ((len(str(size)) - 1) // 3 * 3)) // 100)
    return -(-size // step) * step


def _both_loosened(optimal: "Optimal") -> str:
    """Limits that can be kept together where none can be kept beside the others: the first as low as it can be."""
    kept: dict[Phase, float] = {}
    for phase in optimal.aim.limits:
        least = replace(optimal, aim=Aim(optimal.aim.name, {phase: 1.0}, dict(kept))).finalists
        kept[phase] = least[0].seconds * _MARGIN
    return ",".join(f"{LIMITS[phase]}={seconds:.4g}s" for phase, seconds in kept.items())


def _too_slow(optimal: "Optimal") -> InfeasibleError:
    """The smallest change of a limit that would do, the others kept."""
    changes = []
    for phase, limit in optimal.aim.limits.items():
        least = optimal.fastest(phase).finalists
        if least:
            changes.append((least[0].seconds / limit, f"{LIMITS[phase]}={least[0].seconds * _MARGIN:.4g}s"))
    remedy = f"the smallest change: {min(changes)[1] if changes else _both_loosened(optimal)}"
    text = ", ".join(f"{LIMITS[phase]} of {format_seconds(limit)}" for phase, limit in optimal.aim.limits.items())
    return InfeasibleError(f"no plan reaches {text}", field="slo", remedy=remedy)
