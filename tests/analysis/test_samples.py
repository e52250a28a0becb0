import pytest

from helmsman.analysis.samples import pair_difference, spread


def test_spread_is_half_of_p10_to_p90_over_the_median() -> None:
    assert spread([9.0, 10.0, 11.0]) == pytest.approx(0.08)
    assert spread([5.0]) == 0.0
    assert spread([0.0, 0.0]) == 0.0


def test_pairs_compare_neighbours() -> None:
    assert pair_difference([10.0, 11.0, 11.0, 9.9]) == pytest.approx(0.1)
    assert pair_difference([10.0]) is None
