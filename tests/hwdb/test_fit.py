import random

import numpy as np
import pytest

from helmsman.hwdb.fit import quantile


@pytest.mark.parametrize("seed", range(20))
def test_quantiles_equal_numpys(seed: int) -> None:
    values = [random.Random(seed).uniform(0, 9) for _ in range(1 + seed)]
    for q in (0.0, 0.1, 0.5, 0.9, 1.0):
        assert quantile(values, q) == pytest.approx(np.quantile(values, q), rel=1e-12)
