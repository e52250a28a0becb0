"""Costs of replicas that are found once: what is asked about serving is about few plans, whose costs take a second."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from helmsman.analysis import ask_serving
from helmsman.planner.serving import iteration_cost
from helmsman.planner.serving.iteration_cost import ReplicaCost
from helmsman.planner.serving.replica import ReplicaOptions
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import digest


@contextmanager
def remembered_replicas() -> Iterator[None]:
    """Meanwhile what a replica of a plan costs is found once."""
    find, known = iteration_cost.replica_cost, dict[tuple[str, ReplicaOptions], ReplicaCost]()

    def remember(plan: Plan, options: ReplicaOptions) -> ReplicaCost:
        key = digest(plan), options
        if key not in known:
            known[key] = find(plan, options)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        for module in (iteration_cost, ask_serving):
            patch.setattr(module, "replica_cost", remember)
        yield
