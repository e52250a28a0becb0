"""The largest batches that fit: four batches of so many sequences, by method and configuration (PARK-44, 67)."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product

from benchmarks.park_egger.answer import Row
from benchmarks.park_egger.question import METHODS, Method, Question, strategy
from benchmarks.park_egger.study import Found, Study
from helmsman.planner.strategies.flexgen import FlexGen
from helmsman.schemas.errors import InfeasibleError

MOST = 255


def study() -> Study:
    """One and four batches of 512 + 32 tokens; with storage, where a method can use it."""
    rows = tuple(_rows())
    four = {(row["method"], row["compressed"], row["storage"]): row["sequences"] for row in rows if row["batches"] == 4}
    paper, flexgen = four["gpu-only", True, False], four["flexgen", True, False]
    assert isinstance(paper, int)
    assert isinstance(flexgen, int)
    notes = (
        "Page-locked caches are rounded up to powers of two as PyTorch does, which limits what is streamed; 4x61 and "
        "4x122 are the largest that fit such powers. The paper's 4x60 and FlexGen's 4x100 are compressed (5.4); what "
        "else its runtime keeps in host memory is not said.",
        "FlexGen keeps caches pageable. What the host computes is kept pageable and uncompressed (E-PARK-14).",
    )
    found = (Found("PARK-F126", paper), Found("PARK-F125", flexgen))
    return Study("limits", "most sequences per batch", rows, found, notes)


def _rows() -> Iterator[Row]:
    for batches, compressed, method, storage in product((1, 4), (False, True), METHODS, (False, True)):
        if not (storage and method.startswith("flexgen")):
            asked = Question(batches=batches, compressed=compressed, storage=storage)
            row: Row = {"batches": batches, "compressed": compressed, "storage": storage, "method": method}
            yield {**row, "sequences": largest(partial(_fits_with, asked, method))}


def _fits_with(asked: Question, method: Method, batch: int) -> bool:
    return fits(replace(asked, batch=batch), method)


def fits(asked: Question, method: Method) -> bool:
    """Whether `method` has a plan; nothing is simulated."""
    chosen = strategy(asked, method)
    if not isinstance(chosen, FlexGen):
        return bool(chosen.fitting.ranked(1))
    try:
        chosen.decide({})
    except InfeasibleError:
        return False
    return True


def largest(holds: Callable[[int], bool]) -> int:
    """The largest n <= MOST that holds, where all smaller do; 0 if none."""
    low, high = 0, MOST + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
