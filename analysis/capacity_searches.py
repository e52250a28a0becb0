"""Searches with one seed: the rate, the users and the replicas at which an SLO is lost, by bisection of runs."""

from dataclasses import replace

from helmsman.analysis.capacity_trials import Trials
from helmsman.schemas.errors import InfeasibleError
from helmsman.schemas.serving import SeedCapacity, SeedCount
from helmsman.schemas.serving_question import MAX_REPLICAS, MAX_USERS
from helmsman.simulator.serving.bisection import NothingMissesError, bisect_count, bisect_rate, lowest_near
from helmsman.simulator.serving.convergence import Find
from helmsman.simulator.serving.requests.request_source import Variation

REQUESTS_PER_USER = 4
"""The least number of requests that a user of a closed loop sends on average, where users are counted."""
_BELOW = 4
"""Numbers of users below one that keeps an SLO that must keep it too: where a few more happen to be served in time than
a few less, whoever serves a number that changes can count on the lower one alone."""
_NEAR = 1.05
"""The ratio of the first two rates that are tried near a known capacity."""
_ALONE = "allow more time: a request alone takes longer"


def search_rate(trials: Trials, guess: float) -> Find[SeedCapacity]:
    """Return the search for the highest rate; `guess`: requests a second to begin with."""

    def find(seed: int, requests: int, near: float | None) -> SeedCapacity:
        def keeps(rate: float) -> bool:
            return trials.keeps(trials.study.setup, seed, Variation(rate=rate, count=requests))

        return bisect_rate(keeps, guess, seed) if near is None else bisect_rate(keeps, near, seed, _NEAR)

    return find


def search_users(trials: Trials) -> Find[SeedCount]:
    """Return the search for a number of users that keeps the SLO, as some below it do, while one more misses it."""

    def find(seed: int, requests: int, near: float | None) -> SeedCount:
        def keeps(users: int) -> bool:
            return trials.keeps(trials.study.setup, seed, Variation(users=users, count=requests))

        most = max(1, min(MAX_USERS, requests // REQUESTS_PER_USER))
        users = bisect_count(keeps, round(near or 1), most)
        if users == most:
            raise NothingMissesError("no number of users misses the SLO", most)
        users = lowest_near(keeps, users, _BELOW)
        if users == 0:
            raise InfeasibleError("not even one user keeps the SLO", field="slo", remedy=_ALONE)
        return SeedCount(seed=seed, keeps=users, misses=users + 1)

    return find


def search_replicas(trials: Trials) -> Find[SeedCount]:
    """Return the search for a number of replicas that keeps the SLO while one fewer misses it."""

    def find(seed: int, requests: int, near: float | None) -> SeedCount:
        def misses(replicas: int) -> bool:
            return not trials.keeps(replace(trials.study.setup, replicas=replicas), seed, Variation(count=requests))

        most = min(MAX_REPLICAS, requests)
        fewer = bisect_count(misses, round(near or 1) - 1, most)
        if fewer == most:
            raise InfeasibleError("no number of replicas keeps the SLO", field="slo", remedy=_ALONE)
        return SeedCount(seed=seed, keeps=fewer + 1, misses=fewer)

    return find
