"""Answers how much replicas of a plan serve within an SLO: the maximum rate, the most users, the fewest replicas."""

from statistics import fmean
from typing import Literal, TypeVar

from helmsman.analysis.ask_serving import ServingLoad, ServingStudy, refuse_think_alone
from helmsman.analysis.capacity_searches import search_rate, search_replicas, search_users
from helmsman.analysis.capacity_trials import Ran, Trials, demanded, no_trials_yet
from helmsman.schemas.errors import UsageError
from helmsman.schemas.served_table import FINISHED, ServedTable
from helmsman.schemas.serving import SeedCount, ServingCapacity, ServingCount
from helmsman.simulator.serving.confidence import interval
from helmsman.simulator.serving.convergence import SeedAnswers
from helmsman.simulator.serving.report import duration_of
from helmsman.simulator.serving.requests.arrivals import own_rate

LoadT = TypeVar("LoadT", bound=ServingLoad)

_STEP = 1.0
"""The least by which two numbers of users or replicas differ."""


def _no_progress() -> None:
    """Do nothing after a run."""


def capacity(study: ServingStudy, seeds: int | None = None, ran: Ran = _no_progress) -> ServingCapacity:
    """Find the maximum rate that keeps the SLO, as the mean over `seeds` draws, or over as many as it takes.

    Raises UsageError without an SLO or with users, InfeasibleError where every rate keeps it or none does."""
    check_capacity(study)
    trials = no_trials_yet(study, ran)
    together = study.run(study.setup, study.question.seed).served
    answers = trials.answers(search_rate(trials, _throughput(together)), seeds)
    rates = [bracket.keeps for bracket in answers.brackets]
    low, high = interval(rates)
    return ServingCapacity(
        run=together.info,
        slo=trials.slo,
        rate=fmean(rates),
        low=low,
        high=high,
        runs=trials.runs,
        requests=answers.requests,
        converged=answers.converged,
        seeds=answers.brackets,
    )


def check_capacity(load: ServingLoad) -> None:
    """Raise UsageError for a load of which no maximum rate is found, whatever the plan: without an SLO, or of users."""
    if load.source.users is not None:
        remedy = "leave users out, or ask for the most users"
        raise UsageError("users send at a rate of their own", field="users", value=load.source.users, remedy=remedy)
    refuse_think_alone(load)
    demanded(load)


def _throughput(served: ServedTable) -> float:
    """Return finished requests a second, of one at least."""
    finished = int((served.status == FINISHED).sum())
    return max(1, finished) / max(duration_of(served), 1e-9)


def most_users(study: ServingStudy, seeds: int | None = None, ran: Ran = _no_progress) -> ServingCount:
    """Find the most users of a closed loop who keep the SLO with more than half of the seeds.

    Raises UsageError without an SLO, or with a rate or a number of users; InfeasibleError where one user misses the
    SLO, or where there are too few requests for any number of users to miss it."""
    trials = no_trials_yet(of_one_user(study), ran)
    return _count("users", trials, trials.answers(search_users(trials), seeds, _STEP))


def of_one_user(load: LoadT) -> LoadT:
    """Return a load as one user sends it, of which the most users are found. Raises UsageError for a load without an
    SLO, or with a rate or a number of users."""
    if load.source.users is not None:
        raise _is_sought("users", load.source.users)
    alone = load.with_users(1)
    demanded(alone)
    return alone


def fewest_replicas(study: ServingStudy, seeds: int | None = None, ran: Ran = _no_progress) -> ServingCount:
    """Find the fewest replicas that keep the SLO with more than half of the seeds, at a rate or for a number of users.

    Raises UsageError without an SLO or a rate, or with a number of replicas; InfeasibleError where a replica for every
    request would not do."""
    rate = rate_of_replicas(study)
    trials = no_trials_yet(study, ran)
    return _count("replicas", trials, trials.answers(search_replicas(trials), seeds, _STEP), rate)


def _is_sought(field: str, value: int) -> UsageError:
    remedy = "leave the number out, or serve the requests"
    return UsageError("is what is to be found", field=field, value=value, remedy=remedy)


def rate_of_replicas(load: ServingLoad) -> float | None:
    """Return the requests a second for which the fewest replicas are found; None where users send them.

    Raises UsageError for a load without an SLO, with a number of replicas, or of requests that all arrive at once."""
    if load.question.replicas != 1:
        raise _is_sought("replicas", load.question.replicas)
    refuse_think_alone(load)
    demanded(load)
    if load.source.users is not None:
        return None
    rate = own_rate(load.source.requests(load.question.seed))
    if rate is None:
        raise UsageError("replicas are counted for a rate", field="rate", remedy="say how many arrive a second")
    return rate if load.source.rate is None else load.source.rate


def _count(
    of: Literal["users", "replicas"], trials: Trials, answers: SeedAnswers[SeedCount], rate: float | None = None
) -> ServingCount:
    """Return what more than half of the seeds keep, which is a number that at least one of them found."""
    counts = sorted((bracket.keeps for bracket in answers.brackets), reverse=of == "users")
    low, high = interval(counts)
    study = trials.study
    return ServingCount(
        of=of,
        run=study.info(study.setup, study.question.seed, study.question.users),
        slo=trials.slo,
        count=counts[len(counts) // 2],
        rate=rate,
        low=low,
        high=high,
        runs=trials.runs,
        requests=answers.requests,
        converged=answers.converged,
        seeds=answers.brackets,
    )
