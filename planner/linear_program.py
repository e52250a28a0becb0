"""Linear programs, solved by HiGHS."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Values = Sequence[float] | NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Solution:
    """The unknowns, and by row what one more of its bound adds to the objective."""

    unknowns: "NDArray[np.float64]"
    duals: "NDArray[np.float64]"


def solve(
    costs: "Values",
    rows: "Sequence[Sequence[float]] | NDArray[np.float64]",
    lower: "Values",
    upper: "Values",
    most: Sequence[float] | None = None,
    limit: float | None = None,
    exact: float | None = None,
) -> Solution | None:
    """The unknowns x >= 0 of least `costs` x with lower <= rows x <= upper and x <= most.

    `limit`: seconds after which the solver gives up; `exact`: how far a row may be broken. None: nothing was found."""
    import highspy
    import numpy as np

    matrix = np.asarray(rows, dtype=np.float64)
    program = highspy.HighsLp()
    program.num_row_, program.num_col_ = matrix.shape
    count = matrix.shape[1]
    program.col_cost_ = np.asarray(costs, dtype=np.float64)
    program.col_lower_ = np.zeros(count)
    program.col_upper_ = np.full(count, highspy.kHighsInf) if most is None else np.asarray(most, dtype=np.float64)
    program.row_lower_, program.row_upper_ = np.asarray(lower, np.float64), np.asarray(upper, np.float64)
    program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    program.a_matrix_.start_ = np.arange(len(matrix) + 1) * count
    program.a_matrix_.index_ = np.tile(np.arange(count), len(matrix))
    program.a_matrix_.value_ = matrix.ravel()
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    for name, value in (("time_limit", limit), ("primal_feasibility_tolerance", exact)):
        if value is not None:
            solver.setOptionValue(name, value)
    solver.passModel(program)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    solution = solver.getSolution()
    return Solution(np.array(solution.col_value), np.array(solution.row_dual))
