"""Linear programs: against another solver, silent, and what has no solution."""

import numpy as np
import pytest
from scipy.optimize import linprog
from together import together

from helmsman.planner.linear_program import solve


@together("seed", range(20))
def test_equals_another_solver(seed):
    rng = np.random.default_rng(seed)
    costs, rows, upper = rng.random(6), rng.random((4, 6)), 1 + rng.random(4)
    equal = np.ones((1, 6))
    found = solve(costs, np.vstack([rows, equal]), [*[-np.inf] * 4, 1.0], [*upper, 1.0])
    other = linprog(costs, A_ub=rows, b_ub=upper, A_eq=equal, b_eq=[1.0])
    assert found is not None
    assert costs @ found.unknowns == pytest.approx(other.fun)
    assert found.duals @ [*upper, 1.0] == pytest.approx(other.fun)


def test_nothing_is_printed(capfd):
    assert solve([1.0], [[1.0]], [1.0], [1.0]) is not None
    assert capfd.readouterr() == ("", "")


def test_what_cannot_be_has_no_solution():
    assert solve([1.0], [[1.0], [1.0]], [2.0, -np.inf], [np.inf, 1.0]) is None
