"""What the parts of a search for operation splits take (PARK-50)."""

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from helmsman.planner.strategies.op_split.strategy import OpSplit


def search_parts(asked: "OpSplit") -> Mapping[str, float]:
    """Seconds of the parts, which `asked` keeps: its decision only has to put them together afterwards.

    `balancing` of storage where weights may come from there, `prices` of every operation, the closed form of every
    split (`search`), and the prediction of the best of them (`finalists`). Raises what a decision raises."""
    parts: dict[str, Callable[[], object]] = {
        "prices": lambda: asked.table,
        "search": lambda: asked.fitting,
        "finalists": lambda: asked.finalists,
    }
    if asked.options.storage:
        parts = {"balancing": lambda: asked.stripes, **parts}
    return {name: _seconds(part) for name, part in parts.items()}


def _seconds(part: Callable[[], object]) -> float:
    began = perf_counter()
    part()
    return perf_counter() - began
