"""Rotation of neighbouring dimensions against f64 arithmetic, for every instruction set of this processor."""

import numpy as np
import pytest
from together import together

from helmsman.executor import _kernels as kernels


@together("half", [1, 3, 16, 32, 37])
def test_pairs_that_lie_side_by_side_turn(base_isa: str, half: int) -> None:
    rng = np.random.default_rng(half)
    x, angles = rng.standard_normal(2 * half, np.float32), rng.uniform(0, 100, half)
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    turned = (x[0::2] + 1j * x[1::2].astype(np.float64)) * (cos + 1j * sin.astype(np.float64))
    expected = np.stack([turned.real, turned.imag], -1).ravel()
    out = np.zeros_like(x)
    kernels.rope_pairs(x, cos, sin, out, half)
    np.testing.assert_allclose(out, expected, atol=3e-7 * np.abs(x).max())
    kernels.rope_pairs(x, cos, sin, x, half)
    np.testing.assert_array_equal(x, out)


def test_what_does_not_fit_is_refused() -> None:
    values = np.zeros(4, np.float32)
    with pytest.raises(ValueError, match="x has 16 bytes, needs 32"):
        kernels.rope_pairs(values, values, values, values, 4)
