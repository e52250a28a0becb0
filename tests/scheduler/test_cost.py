"""Lines: through their knots, constant below, straight beyond; costs: scaled stage by stage."""

from dataclasses import fields

import numpy as np
import pytest

from helmsman.scheduler.cost import IterationCost, Line

_LINE = Line((1.0, 2.0, 4.0), (3.0, 3.0, 7.0))


def test_a_line_goes_through_its_knots_and_on() -> None:
    assert [_LINE(at) for at in (-1, 0, 1, 1.5, 2, 3, 4, 6)] == [3, 3, 3, 3, 3, 5, 7, 11]
    assert Line((5.0,), (2.0,))(100) == 2


def test_a_line_is_what_numpy_interpolates() -> None:
    rng = np.random.default_rng(1)
    x, y = np.cumsum(rng.uniform(0.1, 3, 20)), np.cumsum(rng.uniform(0, 2, 20))
    at = rng.uniform(x[0], x[-1], 200)
    line = Line(tuple(x), tuple(y))
    np.testing.assert_allclose([line(value) for value in at], np.interp(at, x, y), rtol=1e-12)


@pytest.mark.parametrize(("x", "y"), [((), ()), ((1.0,), ()), ((1.0, 1.0), (0.0, 1.0)), ((1.0, 2.0), (1.0, 0.5))])
def test_what_is_no_rising_function_is_refused(x: tuple[float, ...], y: tuple[float, ...]) -> None:
    with pytest.raises(AssertionError):
        Line(x, y)


def test_each_factor_scales_its_stages_and_no_others() -> None:
    cost = IterationCost(3, *[Line((0.0, 1.0), (1.0, 2.0))] * 5, 0.5, *[Line((0.0, 1.0), (1.0, 2.0))] * 5)
    for factor, names in {
        "linear": {"linear", "ends"},
        "gpu_attention": {"gpu_attention", "prefill_compute", "prefill_read"},
        "cpu_attention": {"cpu_attention", "cpu_request"},
        "link": {"to_host", "to_device", "swap_out", "swap_in"},
    }.items():
        other = cost.scaled(**{factor: 3.0})
        changed = {field.name for field in fields(cost) if getattr(cost, field.name) != getattr(other, field.name)}
        assert changed == names
    assert cost.scaled(cpu_attention=4).cpu_request == 2
    assert cost.scaled(link=4).swap_in(2) == 12
