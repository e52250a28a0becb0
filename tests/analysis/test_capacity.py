"""Rates, users and replicas within an SLO: the same as when every number is simulated, and stable in longer runs."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

import pytest
from daily import one_in
from serving_oracle import INFO, simple_cost
from together import together

from helmsman.analysis.ask_capacity import capacity, fewest_replicas, most_users
from helmsman.analysis.ask_serving import ServingStudy, refuse_think_alone
from helmsman.analysis.capacity_searches import REQUESTS_PER_USER
from helmsman.scheduler.limits import Limits
from helmsman.schemas.errors import InfeasibleError, UsageError
from helmsman.schemas.serving import Slo
from helmsman.schemas.serving_question import ServingQuestion
from helmsman.simulator.serving.metrics import goodput
from helmsman.simulator.serving.report import duration_of
from helmsman.simulator.serving.requests.closed_loop import NO_THINK, by_users, parse_think
from helmsman.simulator.serving.requests.request_source import Variation, open_source
from helmsman.simulator.serving.run import Setup, keeps_slo, serve

COST = simple_cost(0.01, 1e-4, 1e-5, layers=4)
LIMITS = Limits(gpu_tokens=4000, cpu_tokens=0, batch_tokens=512, sequences=32)
SETUP = Setup(COST, COST, LIMITS, "gpu-only", {"preemption": "recompute"})
SLO = Slo(ttft=0.2, tpot=0.03, share=0.95)
INSTANCES = range(20)
REQUESTS = 400
MOST_USERS = REQUESTS // REQUESTS_PER_USER


def study(
    requests: str,
    slo: Slo | None = SLO,
    setup: Setup = SETUP,
    rate: float | None = None,
    users: int | None = None,
    think: str | None = None,
    seed: int = 0,
    replicas: int = 1,
) -> ServingStudy:
    """Requests of a question, served by replicas whose passes are simple."""
    question = ServingQuestion(requests=requests, rate=rate, users=users, think=think, seed=seed, replicas=replicas)
    source = open_source(requests, rate)
    known = replace(source, users=users, think=NO_THINK if think is None else parse_think(think))
    return ServingStudy(question, known, slo, "0" * 64, setup)


@cache
def instance(number: int) -> ServingStudy:
    """A small machine and load, with limits that a few users keep."""
    random = Random(f"capacity {number}")
    seconds = random.uniform(0.005, 0.02)
    cost = simple_cost(seconds, random.uniform(0.0, 3e-4), random.uniform(0.0, 3e-5), layers=4)
    limits = replace(LIMITS, gpu_tokens=random.choice([1500, 4000]), sequences=random.choice([4, 16, 64]))
    setup = Setup(cost, cost, limits, "gpu-only", {"preemption": "recompute"})
    slo = Slo(
        ttft=random.uniform(0.2, 0.5),
        tpot=(seconds + 0.012) * random.uniform(1.5, 4.0),
        share=random.choice([0.9, 0.95]),
    )
    line = f"synthetic:n={REQUESTS},input={random.randint(20, 300)},output={random.randint(5, 60)},lengths=exponential"
    return study(line, slo, setup, think=random.choice(["0s", "1s", "fixed:1s"]), seed=number)


def kept(known: ServingStudy, setup: Setup, variation: Variation) -> bool:
    """Whether a run to the end keeps the SLO."""
    served = known.run(setup, known.question.seed, variation).served
    return goodput(served, known.slo, duration_of(served)).met


@cache
def keeping_users(number: int) -> tuple[bool, ...]:
    """Whether 1, 2, ... users keep the SLO of an instance."""
    loop = instance(number).with_users(1)
    return tuple(kept(loop, loop.setup, Variation(users=users)) for users in range(1, MOST_USERS + 1))


@pytest.mark.parametrize("number", one_in(2, INSTANCES))
def test_users_are_as_many_as_when_every_number_is_simulated(number: int) -> None:
    count = most_users(instance(number), seeds=1).count
    assert keeping_users(number) == (True,) * count + (False,) * (MOST_USERS - count)


def test_instances_have_few_users_and_many() -> None:
    counts = {sum(keeping_users(number)) for number in INSTANCES}
    assert min(counts) <= 3 and max(counts) >= 50 and len(counts) >= 10


@pytest.mark.parametrize("number", one_in(2, INSTANCES))
def test_replicas_are_as_few_as_when_every_number_is_simulated(number: int) -> None:
    fast = overloaded(number)
    answer = fewest_replicas(fast, seeds=1)
    assert answer.count in enough_replicas(number) and answer.rate == fast.source.rate


def test_hardly_any_instance_is_kept_by_fewer_replicas_and_missed_by_more() -> None:
    enough = [enough_replicas(number) for number in INSTANCES]
    assert sum(len(counts) == 1 for counts in enough) >= 18
    assert len({counts[0] for counts in enough}) >= 4


@cache
def overloaded(number: int) -> ServingStudy:
    """Twelve times as many requests a second as one replica can serve."""
    known = open_arrivals(instance(number))
    return replace(known, source=replace(known.source, rate=12.0 * capacity(known, seeds=1).rate))


@cache
def enough_replicas(number: int) -> list[int]:
    """The numbers up to 40 that keep the SLO where one replica fewer misses it."""
    known = overloaded(number)
    setups = [replace(known.setup, replicas=replicas) for replicas in range(1, 41)]
    keeps = [False, *(kept(known, setup, Variation()) for setup in setups)]
    return [replicas for replicas in range(1, 41) if keeps[replicas] and not keeps[replicas - 1]]


def open_arrivals(known: ServingStudy) -> ServingStudy:
    """The same requests, which come by themselves."""
    question = known.question.model_copy(update={"think": None})
    return replace(known, question=question, source=replace(known.source, think=NO_THINK))


@pytest.mark.parametrize("number", INSTANCES)
def test_a_run_that_is_not_followed_to_its_end_is_judged_the_same(number: int) -> None:
    known, verdicts = instance(number), set()
    for rate in (0.25, 1.0, 4.0, 16.0, 1000.0):
        arriving = known.source.requests(number, Variation(rate=rate))
        leaving = replace(arriving, cancel_s=arriving.arrival_s + 0.5)
        for setup in (known.setup, replace(known.setup, replicas=3, router="least-loaded")):
            for requests in (arriving, leaving, by_users(arriving, int(1 + rate), known.source.think, number)):
                served = serve(requests, setup, INFO).served
                met = goodput(served, known.slo, duration_of(served)).met
                assert keeps_slo(requests, setup, known.slo) == met
                verdicts.add(met)
    assert verdicts == {False, True}


SHORT, LONG = "synthetic:n=300,input=300,output=60", "synthetic:n=6000,input=300,output=60"
PATIENT = Slo(ttft=15.0, share=0.9)
"""Limits within which an overload of 300 requests goes unnoticed."""


def test_three_hundred_requests_answer_too_much_and_longer_runs_by_themselves_do_not() -> None:
    short, long = capacity(study(SHORT, PATIENT), seeds=5), capacity(study(LONG, PATIENT), seeds=5)
    assert short.rate > 1.1 * long.rate
    settled = capacity(study(SHORT, PATIENT))
    assert settled.converged and settled.requests > 300
    assert settled.rate == pytest.approx(long.rate, rel=0.06)
    assert (settled.high - settled.low) / 2 <= 0.05 * settled.rate


def test_given_seeds_are_run_with_the_requests_that_there_are() -> None:
    answer = capacity(study(SHORT, seed=4), seeds=3)
    assert (answer.requests, answer.converged, [bracket.seed for bracket in answer.seeds]) == (300, None, [4, 5, 6])


def test_the_same_question_has_the_same_answer() -> None:
    assert capacity(study(SHORT)) == capacity(study(SHORT))
    assert most_users(study(SHORT, think="1s")) == most_users(study(SHORT, think="1s"))


def test_a_file_s_requests_are_what_they_are(tmp_path: Path) -> None:
    path = tmp_path / "lengths.csv"
    path.write_text("prompt,output\n" + "300,60\n" * 300)
    answer = capacity(study(str(path)))
    assert answer.requests == 300 and answer.converged is False
    users = most_users(study(str(path), think="1s"))
    assert users.requests == 300 and users.count >= 1
    path.write_text("arrival_s,prompt,output\n" + "".join(f"{row},300,60\n" for row in range(300)))
    timed = capacity(study(str(path)))
    assert len(timed.seeds) == 1 and timed.low is None


def test_users_by_themselves_take_longer_runs_where_there_are_many() -> None:
    answer = most_users(study("synthetic:n=20,input=20,output=5", think="5s"))
    assert answer.requests >= REQUESTS_PER_USER * answer.count > 20
    assert (answer.of, answer.run.think, answer.run.users, answer.rate) == ("users", "5s", None, None)


def test_more_than_half_of_the_seeds_keep_what_is_answered() -> None:
    users = most_users(study(SHORT, think="1s"), seeds=4)
    assert 2 * sum(bracket.keeps >= users.count for bracket in users.seeds) > 4
    assert 2 * sum(bracket.keeps >= users.count + 1 for bracket in users.seeds) <= 4
    replicas = fewest_replicas(study(SHORT, rate=20.0), seeds=4)
    assert 2 * sum(bracket.keeps <= replicas.count for bracket in replicas.seeds) > 4
    assert 2 * sum(bracket.keeps <= replicas.count - 1 for bracket in replicas.seeds) <= 4


def test_replicas_for_users() -> None:
    one = most_users(study(SHORT, think="1s"), seeds=1).count
    answer = fewest_replicas(study(SHORT, users=3 * one, think="1s"), seeds=1)
    assert answer.count >= 2 and answer.rate is None and answer.run.users == 3 * one


@together(
    ("ask", "known", "field"),
    [
        (capacity, study(SHORT, slo=None), "slo"),
        (capacity, study(SHORT, users=3), "users"),
        (capacity, study(SHORT, think="1s"), "think"),
        (most_users, study(SHORT, slo=None), "slo"),
        (most_users, study(SHORT, users=3), "users"),
        (most_users, study(SHORT, rate=3.0), "rate"),
        (fewest_replicas, study(SHORT), "rate"),
        (fewest_replicas, study(SHORT, rate=3.0, slo=None), "slo"),
        (fewest_replicas, study(SHORT, rate=3.0, replicas=2), "replicas"),
        (fewest_replicas, study(SHORT, rate=3.0, think="1s"), "think"),
        (refuse_think_alone, study(SHORT, think="1s"), "think"),
    ],
)
def test_questions_that_make_no_sense_are_refused(
    ask: Callable[[ServingStudy], object], known: ServingStudy, field: str
) -> None:
    with pytest.raises(UsageError) as caught:
        ask(known)
    assert caught.value.field == field and caught.value.remedy


def test_limits_that_nothing_keeps_are_said_to_be() -> None:
    tight = Slo(ttft=1e-6)
    for ask, known in (
        (capacity, study(SHORT, tight)),
        (most_users, study(SHORT, tight, think="1s")),
        (fewest_replicas, study(SHORT, tight, rate=3.0)),
    ):
        with pytest.raises(InfeasibleError, match=r"no (rate|number of replicas) keeps|not even one user"):
            ask(known)


def test_limits_that_any_number_of_users_keeps_are_said_to_be() -> None:
    with pytest.raises(InfeasibleError, match="no number of users misses"):
        most_users(study(SHORT, Slo(ttft=1e6), think="1s"), seeds=1)
