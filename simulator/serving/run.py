"""Requests through replicas of a plan in virtual time: the one place that knows the native core's face."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from helmsman.scheduler._scheduling import simulate
from helmsman.scheduler.cost import IterationCost
from helmsman.scheduler.limits import Limits
from helmsman.scheduler.policies import POLICIES, policy_maker, policy_options
from helmsman.scheduler.target import Target
from helmsman.schemas.errors import InfeasibleError
from helmsman.schemas.requests import Floats, Ints, Requests
from helmsman.schemas.served_table import CANCELLED, Gaps, ServedInfo, ServedTable
from helmsman.schemas.serving import Activity, Busy, Cache, Slo

Found = Mapping[str, Any]
"""The columns that the core returns: numpy arrays by name."""


@dataclass(frozen=True, slots=True)
class Setup:
    """The setting of a run: `cost` is what passes take, `believed` what the policy takes them to (APEX-43).

    `policy`, `options`: checked names and values. `reference`: one pass at a time instead of whole runs of them.
    Raises InfeasibleError where none of the caches that the policy uses has room for a block."""

    cost: IterationCost
    believed: IterationCost
    limits: Limits
    policy: str
    options: Mapping[str, str | int | float | bool]
    replicas: int = 1
    router: str = "round-robin"
    reference: bool = False

    def __post_init__(self) -> None:
        tokens = {"gpu": self.limits.gpu_tokens, "cpu": self.limits.cpu_tokens}
        homes = policy_options(self.policy).homes
        if max(tokens[home] for home in homes) < self.limits.block:
            others = [name for name, policy in POLICIES.items() if any(tokens[at] for at in policy.homes)]
            remedy = f"use one of {', '.join(others)}, or more memory"
            message = "no room where this policy has the caches of its requests"
            raise InfeasibleError(message, field="policy", value=self.policy, remedy=remedy)


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Shares of the tokens of each cache in use from `at_s` on, over all replicas; None for a cache of no tokens."""

    at_s: Floats
    gpu_share: Floats | None
    cpu_share: Floats | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The fate of every request, and the replicas' activity."""

    served: ServedTable
    activity: Activity
    occupancy: Occupancy


def serve(requests: Requests, setup: Setup, info: ServedInfo) -> Outcome:
    """Serve all requests; `info` says what the table belongs to."""
    columns = _simulate(requests, setup)
    served = _served(requests, columns, info)
    return Outcome(served, _activity(served, columns, setup), _occupancy(columns, setup))


def keeps_slo(requests: Requests, setup: Setup, slo: Slo) -> bool:
    """Whether replicas keep an SLO as `metrics.goodput` judges it; a run that has missed it is not followed further."""
    columns = _simulate(requests, setup, Target(slo.ttft, slo.tpot, slo.e2e, slo.per_token, _may_miss(requests, slo)))
    counted = len(requests) - int(np.sum(columns["status"] == CANCELLED))
    return not columns["lost"] and (not counted or (counted - columns["missed"]) / counted >= slo.share)


def _may_miss(requests: Requests, slo: Slo) -> int:
    """Return how many requests may miss the SLO where none is cancelled; where some are, more would be too many too."""
    count = len(requests)
    most = min(count, int((1.0 - slo.share) * count) + 1)
    return most if (count - most) / count >= slo.share else most - 1


def _simulate(requests: Requests, setup: Setup, target: Target | None = None) -> Found:
    return simulate(
        requests.columns(),
        setup.cost,
        setup.believed,
        setup.limits,
        policy_maker(setup.policy, setup.options),
        dict(setup.options),
        setup.replicas,
        setup.router,
        setup.reference,
        target=target,
    )


def _served(requests: Requests, columns: Found, info: ServedInfo) -> ServedTable:
    counts = ("produced", "status", "cpu_tokens", "preemptions", "reused_tokens", "replica")
    return ServedTable(
        info,
        request=np.arange(len(requests)),
        arrival_s=columns["arrival_s"],
        started_s=columns["started_s"],
        first_token_s=columns["first_token_s"],
        finish_s=columns["finish_s"],
        prompt_tokens=requests.prompt_tokens,
        output_tokens=requests.output_tokens,
        **{name: _whole(columns[name]) for name in counts},
        gaps=_gaps(columns, len(requests)),
    )


def _gaps(columns: Found, requests: int) -> Gaps:
    """Runs are of several requests together, so rows share them out evenly."""
    steps, weight = _whole(columns["itl_steps"]), _whole(columns["itl_weight"])
    start = np.linspace(0, len(steps), requests + 1).astype(np.int64)
    return Gaps(
        start, columns["itl_first_s"], columns["itl_step_s"], steps, weight, columns["itl_on_cpu"].astype(np.bool_)
    )


def _whole(values: Any) -> Ints:
    whole: Ints = values.astype(np.int64)
    return whole


def _activity(served: ServedTable, columns: Found, setup: Setup) -> Activity:
    ends = served.finish_s[~np.isnan(served.finish_s)]
    seconds = setup.replicas * (float(ends.max() - served.arrival_s[0]) if len(ends) else 0.0)
    limits = setup.limits

    def share(name: str) -> float:
        return float(columns[name].sum()) / seconds if seconds > 0.0 else 0.0

    return Activity(
        busy=Busy(gpu=share("gpu_s"), cpu=share("cpu_s"), link=share("link_s")),
        gpu_cache=_cache(limits.gpu_tokens, share("gpu_kv_s"), columns["gpu_blocks"], limits.block),
        cpu_cache=_cache(limits.cpu_tokens, share("cpu_kv_s"), columns["cpu_blocks"], limits.block),
        iterations=int(columns["passes"].sum()),
        swapped_out=int(columns["swapped_out"].sum()),
        swapped_in=int(columns["swapped_in"].sum()),
    )


def _cache(tokens: int, mean: float, most_blocks: Ints, block: int) -> Cache:
    """Of a cache of `tokens`: the mean number held, and the most blocks of a replica in use."""
    blocks = tokens // block
    most = int(most_blocks.max()) / blocks if blocks else 0.0
    return Cache(tokens=tokens, mean=mean / tokens if tokens else 0.0, max=most)


def _occupancy(columns: Found, setup: Setup) -> Occupancy:
    at = np.unique(columns["kv_at_s"])
    limits = setup.limits
    return Occupancy(
        at,
        _share(columns, at, "kv_gpu_tokens", limits.gpu_tokens * setup.replicas),
        _share(columns, at, "kv_cpu_tokens", limits.cpu_tokens * setup.replicas),
    )


def _share(columns: Found, at: Floats, name: str, tokens: int) -> Floats | None:
    """Return what all replicas hold at some times, each as it was sampled last, over all that they have room for."""
    if not tokens:
        return None
    held = np.zeros(len(at))
    for replica in np.unique(columns["kv_replica"]):
        mine = columns["kv_replica"] == replica
        times, values = columns["kv_at_s"][mine], columns[name][mine]
        row = np.searchsorted(times, at, side="right") - 1
        held += np.where(row >= 0, values[np.maximum(row, 0)], 0)
    return held / tokens
