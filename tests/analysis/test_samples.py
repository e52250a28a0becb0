import random

import numpy as np
import pytest

from helmsman.analysis.samples import pair_difference, quantile, spread


@pytest.mark.parametrize("seed", range(20))
def test_quantiles_equal_numpys(seed: int) -> None:
    values = [random.Random(seed).uniform(0, 9) for _ in range(1 + seed)]
    for q in (0.0, 0.1, 0.5, 0.9, 1.0):
        assert quantile(values, q) == pytest.approx(np.quantile(values, q), rel=1e-12)


def test_spread_is_half_of_p10_to_p90_over_the_median() -> None:
    assert spread([9.0, 10.0, 11.0]) == pytest.approx(0.08)
    assert spread([5.0]) == 0.0
    assert spread([0.0, 0.0]) == 0.0


def test_pairs_compare_neighbours() -> None:
    assert pair_difference([10.0, 11.0, 11.0, 9.9]) == pytest.approx(0.1)
    assert pair_difference([10.0]) is None
