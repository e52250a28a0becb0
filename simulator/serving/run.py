"""Requests through replicas of a plan in virtual time: the one place that knows the native core's face."""

from collections.abc import Mapping
from dataclasses import dataclass

from helmsman.scheduler.cost import IterationCost
from helmsman.scheduler.limits import Limits
from helmsman.schemas.requests import Floats
from helmsman.schemas.served import Served
from helmsman.schemas.serving import Activity


@dataclass(frozen=True, slots=True)
class Setup:
    """What serves: `cost` is what passes take, `believed` what the policy takes them to (APEX-43).

    `policy`, `options`: checked names and values. `reference`: one pass at a time instead of whole runs of them."""

    cost: IterationCost
    believed: IterationCost
    limits: Limits
    policy: str
    options: Mapping[str, str | int | float | bool]
    replicas: int = 1
    router: str = "round-robin"
    reference: bool = False


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Shares of the tokens of each cache in use from `at_s` on, over all replicas; None for a cache of no tokens."""

    at_s: Floats
    gpu_share: Floats | None
    cpu_share: Floats | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of every request, and what the replicas did."""

    served: Served
    activity: Activity
    occupancy: Occupancy
