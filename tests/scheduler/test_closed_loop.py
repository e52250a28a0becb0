"""Requests of a closed loop: served as the oracle serves them, and alike whether passes are taken one at a time."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from serving_cases import Case, all_gaps, in_closed_loop, random_case
from serving_oracle import serve_users, simple_cost

from helmsman.scheduler import _scheduling
from helmsman.scheduler.limits import Limits
from helmsman.scheduler.policies import POLICIES
from helmsman.schemas.requests import Requests, make_requests
from helmsman.schemas.served_table import CANCELLED, FINISHED, REJECTED

COUNTS = ("produced", "cpu_tokens", "preemptions", "reused_tokens", "replica", "status")
TOTALS = ("swapped_out", "swapped_in", "gpu_blocks", "cpu_blocks", "passes")
TIMES = ("arrival_s", "started_s", "first_token_s", "finish_s", "busy_s", "gpu_s", "cpu_s", "link_s")
COST = simple_cost(0.01, 1e-4, 1e-5, layers=4)
LIMITS = Limits(gpu_tokens=640, cpu_tokens=0, batch_tokens=64, sequences=8, chunk=32)


def _check_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    for name in (*COUNTS, *TOTALS):
        assert np.array_equal(one[name], other[name]), name
    for name in TIMES:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-9, atol=1e-12, err_msg=name)


def _compare(seed: int, policy: str) -> int:
    """The runs of passes that were taken in closed form."""
    case = in_closed_loop(random_case(seed, policy), seed)
    fast, slow = case.run(), case.run(reference=True)
    _check_same(fast, slow)
    assert np.allclose(all_gaps(fast), all_gaps(slow), rtol=1e-9, atol=1e-12)
    assert slow["jumps"].sum() == 0
    return int(fast["jumps"].sum())


@pytest.mark.parametrize("policy", POLICIES)
def test_equal_to_one_pass_at_a_time_on_every_number_of_replicas(policy: str) -> None:
    runs = sum(_compare(seed, policy) for seed in range(8))
    assert runs > 100 or policy != "gpu-only"


@pytest.mark.nightly
def test_equal_on_many_workloads() -> None:
    for policy in POLICIES:
        for seed in range(1000, 1200):
            _compare(seed, policy)


def _requests(seed: int, count: int = 90) -> Requests:
    random = np.random.default_rng(seed)
    return make_requests(
        np.zeros(count),
        random.integers(1, 120, count),
        random.integers(1, 60, count),
        random.integers(0, 3, count),
        np.where(random.random(count) < 0.2, 3.0 * random.random(count), np.inf),
    )


def _case(seed: int) -> Case:
    requests, limits = _requests(seed), replace(LIMITS, context=170, chunk=32 if seed % 2 else 0)
    return in_closed_loop(Case(requests, COST, limits, "gpu-only", {"preemption": "recompute"}, 1, "round-robin"), seed)


@pytest.mark.parametrize("seed", range(12))
def test_equal_to_the_oracle(seed: int) -> None:
    case = _case(seed)
    served, expected = case.run(), serve_users(case.requests, COST, case.limits)
    for name in ("status", "produced", "preemptions"):
        assert (served[name] == getattr(expected, name)).all(), name
    for name in ("arrival_s", "started_s", "first_token_s", "finish_s"):
        np.testing.assert_allclose(served[name], getattr(expected, name), rtol=1e-9, err_msg=name)


def test_those_cases_have_requests_of_every_fate() -> None:
    fates = np.concatenate([_case(seed).run()["status"] for seed in range(12)])
    assert set(fates.tolist()) == {FINISHED, CANCELLED, REJECTED}


def _loop(requests: Requests, users: int, think: float) -> Requests:
    return replace(requests, starts_s=np.zeros(users), think_s=np.full(len(requests), think))


def _run(requests: Requests, limits: Limits = LIMITS, **more: Any) -> dict[str, Any]:
    options = {"preemption": "recompute"}
    return _scheduling.simulate(requests.columns(), COST, COST, limits, "gpu-only", options, check=True, **more)


def _most_at_once(served: dict[str, Any]) -> int:
    """The largest number of requests that were under way together."""
    times = np.concatenate([served["finish_s"], served["arrival_s"]])
    steps = np.concatenate([-np.ones(len(served["finish_s"])), np.ones(len(served["arrival_s"]))])
    return int(np.cumsum(steps[np.lexsort((steps, times))]).max())


@pytest.mark.parametrize(("replicas", "router"), [(1, "round-robin"), (3, "round-robin"), (3, "least-loaded")])
def test_as_many_requests_are_under_way_as_there_are_users(replicas: int, router: str) -> None:
    plain = make_requests(np.zeros(60), np.full(60, 20), np.full(60, 30))
    served = _run(_loop(plain, 7, 0.0), replicas=replicas, router=router)
    assert _most_at_once(served) == 7 and (served["status"] == FINISHED).all()
    assert (np.diff(served["arrival_s"]) >= 0.0).all()
    assert set(served["arrival_s"][7:]) <= set(served["finish_s"])


def test_one_user_waits_for_the_answer_and_thinks() -> None:
    plain = make_requests(np.zeros(5), np.full(5, 20), np.full(5, 30))
    think = np.array([1.0, 0.0, 2.5, 0.25, 9.0])
    served = _run(replace(plain, starts_s=np.array([0.5]), think_s=think))
    assert served["arrival_s"][0] == 0.5
    assert served["arrival_s"][1:] == pytest.approx(served["finish_s"][:-1] + think[:-1], rel=1e-12)


def test_who_is_rejected_or_gives_up_thinks_too() -> None:
    prompts = np.array([20, 9000, 20, 20])
    cancel = np.array([np.inf, np.inf, 0.1, np.inf])
    plain = make_requests(np.zeros(4), prompts, np.full(4, 100), None, cancel)
    served = _run(_loop(plain, 1, 3.0))
    assert served["status"].tolist() == [FINISHED, REJECTED, CANCELLED, FINISHED]
    assert served["arrival_s"][2] == served["arrival_s"][1] + 3.0
    assert served["finish_s"][2] == pytest.approx(served["arrival_s"][2] + 0.1)
    assert 3.0 <= served["arrival_s"][3] - served["finish_s"][2] < 3.02  # let go of when the pass under way ends


def test_more_users_than_requests_send_one_each() -> None:
    plain = make_requests(np.zeros(3), np.full(3, 20), np.full(3, 5))
    served = _run(replace(plain, starts_s=np.arange(9.0), think_s=np.zeros(3)))
    assert served["arrival_s"][0] == 0.0 and (served["arrival_s"] <= [0.0, 1.0, 2.0]).all()
    assert (served["status"] == FINISHED).all()


def test_think_times_of_another_number_are_refused() -> None:
    plain = make_requests(np.zeros(3), np.full(3, 20), np.full(3, 5))
    with pytest.raises(ValueError, match="think_s of another length"):
        _run(replace(plain, starts_s=np.zeros(1), think_s=np.zeros(2)))
