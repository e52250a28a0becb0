"""Probes beside weights: what is loaded, and what counts as agreement."""

import pytest
from benchmarks.probes import BAR, Agreement, Turn


def agreement(weights: float) -> Agreement:
    return Agreement("cpu", (Turn(9.0, weights, 11.0), Turn(10.0, weights, 10.0), Turn(10.0, 100.0, 10.0)))


def test_weights_are_compared_with_the_probes_on_both_sides():
    turn = Turn(9.0, 10.5, 11.0)
    assert turn.ratio == pytest.approx(1.05)
    assert turn.noise == pytest.approx(11 / 9)


def test_the_median_of_the_turns_has_to_be_within_the_bar():
    assert agreement(10 * (1 + 0.9 * BAR)).within
    slow, fast = Agreement("cpu", (Turn(10.0, 10 * (1 - 1.1 * BAR), 10.0),)), agreement(10 * (1 + 1.1 * BAR))
    assert not slow.within
    assert not fast.within
    assert fast.line().endswith("beyond")
