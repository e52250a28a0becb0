"""The target that a run has to keep: the limits of an SLO, and the number of requests that may miss one of them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """Limits in seconds (None: none) that all but `may_miss` requests have to keep."""

    ttft: float | None
    tpot: float | None
    e2e: float | None
    per_token: float | None
    may_miss: int
