"""Models of two blocks, tried in every way."""

from collections.abc import Iterable, Sequence
from itertools import product
from math import inf

from helmsman.planner.strategies.optimal.configurations.block_ways import BlockWay
from helmsman.planner.strategies.optimal.configurations.rules import Assignment, Side
from helmsman.planner.strategies.optimal.search.finalist import predicted
from helmsman.planner.strategies.optimal.strategy import Optimal

EVERYWHERE = tuple(product(("host", "accelerator"), repeat=2))
"""Where the ends of a model may be on a machine of one accelerator."""


def least_of_pairs(
    optimal: Optimal, ways: Sequence[BlockWay], arrangements: Iterable[tuple[Side, Side]] = EVERYWHERE
) -> float:
    """The least predicted seconds over every pair of ways and every arrangement of the ends; infinite if none fits."""
    found = (
        predicted(optimal.question, Assignment(pair, *ends, optimal.blocks.shares), optimal.aim)
        for ends in arrangements
        for pair in product(ways, repeat=2)
    )
    return min((each.seconds for each in found if each is not None), default=inf)
