"""Lines through models: near them everywhere, rising where they fall."""

from math import log2
from random import Random

import pytest

from helmsman.planner.serving.knots import KnotTable, straight

MOST = 3000


def _roofline(rng: Random):
    """max(bytes, flops / share, launch) with a share that rises with the logarithm of the size, as records have it."""
    memory, flops, launch, base = (rng.uniform(1, 3) for _ in range(4))

    def seconds(things: int) -> float:
        share = base + 0.5 * min(max(log2(things) - 5, 0), 6)
        return max(memory * 1e-3 * things**0.3, flops * 1e-4 * things / share, launch * 1e-3)

    return seconds


@pytest.mark.parametrize("seed", range(3))
def test_a_line_is_within_a_hundredth_of_its_model_everywhere(seed: int) -> None:
    seconds = _roofline(Random(seed))
    line = KnotTable(seconds).fitted(MOST)
    assert line(0) == 0 and len(line.x) < 200
    assert max(abs(line(things) / seconds(things) - 1) for things in range(1, MOST + 1)) < 0.01


def test_places_are_what_the_line_is_over() -> None:
    pairs = KnotTable(lambda tokens: 2.0 * tokens * (tokens + 1), lambda tokens: tokens * (tokens + 1) // 2).fitted(
        1000
    )
    assert len(pairs.x) <= 12
    assert pairs(777 * 778 // 2) == pytest.approx(2 * 777 * 778)


def test_fewer_take_no_longer_than_more() -> None:
    line = KnotTable({1: 5.0, 2: 3.0, 3: 4.0, 4: 9.0, 5: 2.0, 6: 7.0}.__getitem__).fitted(6)
    assert [line(things) for things in range(7)] == [0, 2, 2, 2, 2, 2, 7]


def test_a_straight_line_starts_anew_after_nothing() -> None:
    line = straight(lambda things: 3.0 + 2.0 * things)
    assert [line(things) for things in (0, 1, 10, 10**7)] == pytest.approx([0, 5, 23, 3 + 2e7])
