"""Linear programs, solved by HiGHS."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from highspy import Highs
    from numpy.typing import NDArray

    Values = Sequence[float] | NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Solution:
    """The unknowns, and by row what one more of its bound adds to the objective."""

    unknowns: "NDArray[np.float64]"
    duals: "NDArray[np.float64]"


@dataclass(frozen=True, slots=True)
class IntegerUnknowns:
    """The `first` unknowns are whole numbers; the search ends after so many `nodes`, or when it is so `near` to its
    bound, as a share."""

    first: int
    nodes: int
    near: float


_PLAIN = {"mip_heuristic_run_root_reduced_cost": False, "mip_heuristic_run_feasibility_jump": False}
"""Without these, which take half of the time, what was found was 0.03 % worse on average."""


class GrowingProgram:
    """A program of unknowns x >= 0 that more may join: least costs x with lower <= rows x <= upper. What was found
    before is where the next solution begins."""

    def __init__(self, lower: "Values", upper: "Values") -> None:
        import highspy
        import numpy as np

        self._solver, self._rows = highspy.Highs(), len(lower)
        self._solver.setOptionValue("output_flag", False)
        self._solver.setOptionValue("presolve", "off")
        none = np.zeros(0)
        starts = np.zeros(self._rows, dtype=np.int32)
        bounds = np.asarray(lower, np.float64), np.asarray(upper, np.float64)
        self._solver.addRows(self._rows, *bounds, 0, starts, none.astype(np.int32), none)

    def add(self, costs: "Values", columns: "NDArray[np.float64]") -> None:
        """More unknowns, each a row of `columns` with what a unit of it adds to every row of the program."""
        import highspy
        import numpy as np

        count = len(columns)
        starts = np.arange(count, dtype=np.int32) * self._rows
        indices = np.tile(np.arange(self._rows, dtype=np.int32), count)
        ends = np.zeros(count), np.full(count, highspy.kHighsInf)
        values = np.ascontiguousarray(columns, dtype=np.float64).ravel()
        self._solver.addCols(count, np.asarray(costs, np.float64), *ends, len(values), starts, indices, values)

    def solve(self) -> Solution | None:
        """The best of them; None if there are none."""
        self._solver.run()
        return _solution(self._solver)


def _solution(solver: "Highs") -> Solution | None:
    import highspy
    import numpy as np

    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    solution = solver.getSolution()
    return Solution(np.array(solution.col_value), np.array(solution.row_dual))


def solve(
    costs: "Values",
    rows: "Sequence[Sequence[float]] | NDArray[np.float64]",
    lower: "Values",
    upper: "Values",
    most: Sequence[float] | None = None,
    limit: float | None = None,
    exact: float | None = None,
    whole: "IntegerUnknowns | None" = None,
) -> Solution | None:
    """The unknowns x >= 0 of least `costs` x with lower <= rows x <= upper and x <= most.

    `limit`: seconds after which the solver gives up; `exact`: how far a row may be broken; `whole`: which unknowns are
    whole numbers, and how hard that is tried (then there are no duals). None: nothing was found."""
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
    options: dict[str, float | None] = {"time_limit": limit, "primal_feasibility_tolerance": exact}
    if whole is not None:
        kinds = highspy.HighsVarType
        program.integrality_ = [kinds.kInteger if place < whole.first else kinds.kContinuous for place in range(count)]
        options |= {"mip_max_nodes": whole.nodes, "mip_rel_gap": whole.near, "threads": 1, **_PLAIN}
    for name, value in options.items():
        if value is not None:
            solver.setOptionValue(name, value)
    solver.passModel(program)
    solver.run()
    if whole is not None and solver.getInfo().primal_solution_status == highspy.kSolutionStatusFeasible:
        return Solution(np.array(solver.getSolution().col_value), np.zeros(0))
    return _solution(solver)
