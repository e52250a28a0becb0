"""Errors of plans of engines without constants, and how often plans name the faster of two placements."""

import re
from collections.abc import Iterator, Sequence
from statistics import median

from benchmarks.strangers.answers import RowAnswer, answer
from benchmarks.strangers.pairs import pairs_of
from benchmarks.strangers.rows import OpenRow

_OTHERS = {"ktransformers": r"^KT-Kernel|^KTransformers", "FreeToken": r"^FreeToken"}
"""Engines whose plans are priced by the classes of their devices, and what rows call them."""


def other_lines(rows: Sequence[OpenRow]) -> Iterator[str]:
    """Yield a table of how far plans of other engines are off, and a line about pairs of placements of all rows."""
    yield "| engine | rows | answered | steps, median error | prompts, median error |"
    yield "|---|---|---|---|---|"
    given = [answer(row) for row in rows]
    for name, pattern in _OTHERS.items():
        own = [one for one in given if re.search(pattern, one.row.engine)]
        answered = sum(not one.reason for one in own)
        yield f"| {name} | {len(own)} | {answered} | {_error(own, 'decode')} | {_error(own, 'prefill')} |"
    yield ""
    for phase, what in (("decode", "steps"), ("prefill", "prompts")):
        right = [pair.right for pair in pairs_of(given) if pair.phase == phase and pair.apart]
        if right:
            yield f"Of {len(right)} pairs of placements that a source ran on one machine, plans name the one with the"
            yield f"faster {what} in {sum(right)} ({sum(right) / len(right):.0%}), by constants fitted to most of them;"
            yield "pairs whose runs overlap are not counted."


def _error(answers: Sequence[RowAnswer], phase: str) -> str:
    errors = [abs(error) for one in answers for of, error in one.errors() if of == phase]
    return f"{median(errors):.0%} of {len(errors)}" if errors else "-"
