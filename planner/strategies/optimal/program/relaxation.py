"""The linear relaxation of a composition, solved by HiGHS: blocks may be divided among ways."""

from dataclasses import dataclass, replace

import numpy as np

from helmsman.planner.linear_program import GrowingProgram
from helmsman.planner.strategies.optimal.program.ways import Chosen, Numbers, Room, Ways

_COLUMNS_PER_ROUND = 16
"""The number of columns that are added at a time at most."""

_OPTIMALITY = 1e-11
"""The gain, as a share of the largest seconds, below which a column is not better."""


@dataclass(frozen=True, eq=False)
class Relaxation:
    """`bound`: seconds that no composition beats; `reduced` (ways): by how much the bound rises with every block of a
    way; `prices` (memories): seconds that one more byte saves; `counts` (ways): blocks of each way, not whole;
    `lanes` (lanes): seconds that the bound rises with every second of a lane."""

    bound: float
    reduced: Numbers
    prices: Numbers
    counts: Numbers
    lanes: Numbers


def relaxation(ways: Ways, room: Room, likely: Chosen | None = None) -> Relaxation | None:
    """The relaxation of composing `ways` in `room`, whatever is on its way; `likely`: ways that it probably needs.

    None where nothing fits.

    The solver only proposes prices of lanes and memories: the bound is made of them by weak duality, so that it holds
    whatever the solver's tolerances are."""
    if (room.free < 0).any() or not len(ways):
        return None
    unit = float(max(room.ends.max(), ways.lanes.max(), 1e-300))
    scale = np.maximum(1.0, room.free)
    program = Ways(ways.lanes / unit, ways.kept / scale, ways.coming)
    scaled = replace(room, ends=room.ends / unit, free=room.free / scale)
    first = _first(program) if likely is None else np.union1d(_first(program), likely)
    return _generated(ways, room, program, scaled, unit, scale, first)


def _generated(
    ways: Ways, room: Room, program: Ways, scaled: Room, unit: float, scale: Numbers, columns: Chosen
) -> Relaxation | None:
    """`columns` are added to while some way would make the relaxation better, the most promising ones first."""
    best: Relaxation | None = None
    growing, fresh, columns = _program(scaled), columns, columns[:0]
    while True:
        growing.add(np.zeros(len(fresh)), _columns(program.only(fresh)))
        columns = np.concatenate([columns, fresh])
        solution = growing.solve()
        if solution is None:
            fresh = np.setdiff1d(np.arange(len(ways)), columns)
            if not len(fresh):
                return best
            continue
        counts = np.zeros(len(ways))
        counts[columns] = solution.unknowns[len(room.weights) :]
        prices, lanes = np.maximum(0.0, -solution.duals), len(room.ends)
        relaxed = dual(ways, room, prices[:lanes], prices[lanes:-1] * unit / scale, counts)
        best = relaxed if best is None or relaxed.bound >= best.bound else replace(best, counts=counts)
        costs = relaxed.reduced - relaxed.reduced[columns].min()
        wanted = np.flatnonzero(costs < -_OPTIMALITY * unit)
        fresh = np.setdiff1d(wanted[np.argsort(costs[wanted], kind="stable")][:_COLUMNS_PER_ROUND], columns)
        if not len(fresh):
            return best


def _first(ways: Ways) -> Chosen:
    """The ways that ask least of each lane or memory, and least of all."""
    demands = np.hstack([ways.lanes, ways.kept])
    return np.unique([*demands.argmin(axis=0), int(demands.sum(axis=1).argmin())])


def dual(ways: Ways, room: Room, lanes: Numbers, memories: Numbers, counts: Numbers) -> Relaxation:
    """The bound by weak duality: `lanes` are brought to add up to the weight of their phase, `memories` are seconds per
    byte. For composed lanes a, kept k: E lanes - K memories + blocks x min_w (a_w lanes + k_w memories)."""
    shares = lanes.copy()
    for phase, weight in enumerate(room.weights):
        mine = room.phase == phase
        total = shares[mine].sum()
        shares[mine] = shares[mine] * (weight / total) if total > 0 else weight / mine.sum()
    costs = ways.lanes @ shares + ways.kept @ memories
    least = float(costs.min())
    bound = float(room.ends @ shares - room.free @ memories) + room.blocks * least
    return Relaxation(bound, costs - least, memories, counts, shares)


def _program(room: Room) -> GrowingProgram:
    """The program without any ways: the seconds of every phase, which no lane exceeds. Rows are lanes, memories and the
    count of blocks."""
    phases = len(room.weights)
    upper = np.concatenate([-room.ends, room.free, [room.blocks]])
    program = GrowingProgram(np.append(np.full(len(upper) - 1, -np.inf), room.blocks), upper)
    of_phase = -(np.arange(phases)[:, None] == room.phase).astype(np.float64)
    program.add(room.weights, np.hstack([of_phase, np.zeros((phases, len(room.free) + 1))]))
    return program


def _columns(ways: Ways) -> Numbers:
    """Return what a block of each way adds to every row."""
    return np.hstack([ways.lanes, ways.kept, np.ones((len(ways), 1))])
