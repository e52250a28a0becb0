"""The best shares of a policy: FlexGen's linear program, solved by HiGHS."""

from collections.abc import Sequence
from math import inf

from helmsman.planner.linear_program import solve
from helmsman.planner.strategies.offload.allocation import LISTING_2
from helmsman.planner.strategies.offload.policy import SHARES, Form, Policies

LIMIT = 2.0
"""Seconds after which HiGHS gives up; these programs of eleven unknowns take milliseconds."""

_BYTES = 2.0**30
"""Bytes are counted in GiB, so that factors of seconds and bytes are of similar size."""

_EXACT = 1e-10
"""How far a constraint may be broken, in those units: the least that HiGHS takes."""


def best_shares(policies: Policies, limit: float = LIMIT) -> tuple[float, ...] | None:
    """The nine shares with the least seconds; None if nothing fits, or HiGHS finds nothing in `limit` seconds.

    Unknowns: the shares, T_pre and T_gen."""
    terms = (*policies.prefill, *policies.decode)
    scale = max(term.at(shares) for term in terms for shares in policies.corners()) or 1.0
    rows, bounds = _above(policies, scale)
    sums = [[float(of == kind) for of, _ in SHARES] + [0.0, 0.0] for kind in dict.fromkeys(of for of, _ in SHARES)]
    solution = solve(
        [*(0.0 for _ in SHARES), 1.0, float(policies.steps)],
        [*rows, *sums],
        [*(-inf for _ in rows), *(1.0 for _ in sums)],
        [*bounds, *(1.0 for _ in sums)],
        most=[*(1.0 if name in policies.allowed else 0.0 for name in SHARES), inf, inf],
        limit=limit,
        exact=_EXACT,
    )
    return None if solution is None else _tidied([float(share) for share in solution.unknowns[: len(SHARES)]])


def _above(policies: Policies, scale: float) -> tuple[list[list[float]], list[float]]:
    """`rows` x unknowns <= `bounds`: every term is within its phase, every memory within what it has."""
    rows, bounds = [], []
    for phase, terms in enumerate((policies.prefill, policies.decode)):
        for term in terms:
            rows.append([*_scaled(term, scale), -float(phase == 0), -float(phase == 1)])
            bounds.append(-term.constant / scale)
    for room in policies.rooms:
        rows.append([*_scaled(room.used, _BYTES), 0.0, 0.0])
        bounds.append((room.available - room.used.constant) / _BYTES)
    return rows, bounds


def _scaled(term: Form, unit: float) -> list[float]:
    return [factor / unit for factor in term.row()]


def _tidied(shares: Sequence[float]) -> tuple[float, ...]:
    """Shares of each kind that are not negative and add up to 1."""
    result: list[float] = []
    for start in range(0, len(SHARES), len(LISTING_2)):
        row = [max(0.0, float(share)) for share in shares[start : start + len(LISTING_2)]]
        result += [share / sum(row) for share in row]
    return tuple(result)
