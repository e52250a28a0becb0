import random

import numpy as np
import pytest
from together import together

from helmsman.hwdb.fit import curve, figure, quantile, settled
from helmsman.schemas.figures import LEAST_SHARE, MOST_SHARE


@together("seed", range(20))
def test_quantiles_equal_numpys(seed: int) -> None:
    values = [random.Random(seed).uniform(0, 9) for _ in range(1 + seed)]
    for q in (0.0, 0.1, 0.5, 0.9, 1.0):
        assert quantile(values, q) == pytest.approx(np.quantile(values, q), rel=1e-12)


def test_the_median_of_many_samples_is_known_better_than_one_sample() -> None:
    """Ranks of 401 evenly spread samples: 0.8 of them are one sample's interval, 1.28 over their root the median's."""
    values = [float(each) for each in range(401)]
    one, many = figure(values, "test"), settled(values, "test")
    assert many.value == one.value == 200.0
    assert (one.p10, one.p90) == (40.0, 360.0)
    assert many.p90 - many.p10 == pytest.approx(400 * 1.2816 / 401**0.5, rel=1e-3)
    alone = settled([3.0], "test")
    assert (alone.p10, alone.value, alone.p90) == (3.0, 3.0, 3.0)


def test_a_share_beside_a_held_up_read_keeps_the_curve_a_record() -> None:
    """On a loaded machine a plain read took two hundred times as long as the product beside it."""
    shares_by_size = curve("memory", "linear", "bf16", {1e6: [0.9, 1.1, 193.0], 1e7: [0.9, 1e-9, 0.8]}, "measured")
    assert shares_by_size.share[0].value == pytest.approx(1.1) and shares_by_size.share[0].p90 <= MOST_SHARE
    assert shares_by_size.share[1].value == pytest.approx(0.8) and shares_by_size.share[1].p10 >= LEAST_SHARE
