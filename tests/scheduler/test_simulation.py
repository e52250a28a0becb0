"""Requests through replicas: each ends once, memory is never exceeded, and what is counted adds up."""

from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pytest
from serving_cases import all_gaps, random_case, with_states
from serving_oracle import serve as one_by_one
from serving_oracle import simple_cost
from together import together

from helmsman.scheduler import _scheduling
from helmsman.scheduler.limits import Limits
from helmsman.scheduler.policies import POLICIES, checked_options
from helmsman.schemas.requests import Requests, make_requests
from helmsman.schemas.served_table import CANCELLED, FINISHED, REJECTED

ENDS = {5: FINISHED, 6: CANCELLED, 7: REJECTED}
COST = simple_cost(0.01, 1e-4, 1e-5, layers=4)
LIMITS = Limits(gpu_tokens=320, cpu_tokens=0, batch_tokens=64, sequences=8, chunk=32)


@together("policy", POLICIES)
@together("seed", range(100, 103))
def test_every_request_ends_once_and_nothing_exceeds_its_memory(seed: int, policy: str) -> None:
    case = random_case(seed, policy)
    found = case.run()  # checks all sums, and both caches, after every pass
    ends = np.isin(found["event"], list(ENDS))
    assert sorted(found["event_request"][ends]) == list(range(len(case.requests)))
    statuses = [ENDS[what] for what in found["event"][ends]]
    assert (found["status"][found["event_request"][ends]] == statuses).all()
    assert (found["gpu_blocks"] <= case.limits.gpu_tokens // case.limits.block).all()
    assert (found["cpu_blocks"] <= case.limits.cpu_tokens // case.limits.block).all()


@pytest.mark.parametrize("seed", [*range(100, 108), *(pytest.param(n, marks=pytest.mark.nightly) for n in range(400))])
def test_states_change_no_sum_and_runs_are_their_passes(seed: int) -> None:
    """Snapshots and states at the host stay within their room, and what is reused is the same pass by pass."""
    case = with_states(random_case(seed, ("gpu-only", "neo", "adaptive")[seed % 3]), seed)
    found, singly = case.run(), case.run(reference=True)
    for name in ("status", "produced", "preemptions", "reused_tokens"):
        assert (found[name] == singly[name]).all(), name
    for name in ("started_s", "first_token_s", "finish_s"):
        np.testing.assert_allclose(found[name], singly[name], rtol=1e-9, atol=1e-9)
    if not case.limits.snapshots:
        assert not found["reused_tokens"].any()


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_counted_adds_up(policy: str) -> None:
    case = random_case(7, policy)
    found = case.run()
    done = found["status"] == FINISHED
    assert done.any() and (found["produced"][done] == case.requests.output_tokens[done]).all()
    assert (found["started_s"][done] >= case.requests.arrival_s[done]).all()
    assert (found["first_token_s"][done] > found["started_s"][done]).all()
    assert len(all_gaps(found)) == np.maximum(found["produced"] - 1, 0).sum()
    if not np.isfinite(case.requests.cancel_s).any():
        spans = found["finish_s"][done] - found["first_token_s"][done]
        assert all_gaps(found).sum() == pytest.approx(spans.sum(), rel=1e-9)
    assert (found["cpu_tokens"] <= found["produced"]).all()


def _requests(seed: int, count: int = 120) -> Requests:
    random = np.random.default_rng(seed)
    return make_requests(
        np.cumsum(random.exponential(0.05, count)),
        random.integers(1, 120, count),
        random.integers(1, 60, count),
        random.integers(0, 3, count),
        np.where(random.random(count) < 0.1, np.cumsum(random.exponential(0.05, count)) + 5.0, np.inf),
    )


def _run(requests: Requests, limits: Limits = LIMITS, **more: Any) -> dict[str, Any]:
    options = {"preemption": "recompute"}
    return _scheduling.simulate(requests.columns(), COST, COST, limits, "gpu-only", options, **more)


@pytest.mark.parametrize("chunk", [0, 32])
def test_equal_to_the_oracle(chunk: int) -> None:
    requests, limits = _requests(1), replace(LIMITS, chunk=chunk, context=170)
    found, right = _run(requests, limits), one_by_one(requests, COST, limits)
    for name in ("status", "produced", "preemptions"):
        assert (found[name] == getattr(right, name)).all(), name
    for name in ("started_s", "first_token_s", "finish_s"):
        np.testing.assert_allclose(found[name], getattr(right, name), rtol=1e-9)
    assert (found["status"] == REJECTED).any()
    np.testing.assert_allclose(all_gaps(found), np.sort(right.gaps.first_s), rtol=1e-9, atol=1e-12)
    assert found["preemptions"].sum() > 0


def test_the_same_twice() -> None:
    case = random_case(3, "adaptive")
    one, other = case.run(), case.run()
    assert all(np.array_equal(one[name], other[name], equal_nan=True) for name in one)


def test_littles_law() -> None:
    """Tokens held times seconds, summed over requests, is what occupancy integrates over time."""
    count = 200
    requests = make_requests(
        np.cumsum(np.random.default_rng(5).exponential(0.02, count)), np.ones(count, np.int64), np.ones(count, np.int64)
    )
    found = _run(requests)
    assert found["gpu_kv_s"][0] == pytest.approx((found["finish_s"] - found["started_s"]).sum(), rel=1e-9)


def test_a_request_that_can_never_fit_is_rejected_and_no_other() -> None:
    room = LIMITS.gpu_tokens
    requests = make_requests(np.zeros(3), np.array([room - 9, room - 9, 5]), np.array([10, 11, 5]))
    assert _run(requests)["status"].tolist() == [FINISHED, REJECTED, FINISHED]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_request_beyond_the_context_is_rejected_whatever_has_room(policy: str) -> None:
    limits = Limits(gpu_tokens=320, cpu_tokens=320, batch_tokens=64, sequences=8, context=100)
    requests = make_requests(np.zeros(3), np.array([90, 90, 99]), np.array([10, 11, 1]))
    found = _scheduling.simulate(requests.columns(), COST, COST, limits, policy, checked_options(policy, {}))
    assert found["status"].tolist() == [FINISHED, REJECTED, FINISHED]


def test_smaller_priorities_go_first() -> None:
    requests = make_requests(np.zeros(3), np.full(3, 30), np.full(3, 5), np.array([2, 0, 1]))
    found = _run(requests, replace(LIMITS, sequences=1))
    assert np.argsort(found["finish_s"]).tolist() == [1, 2, 0]


def _ranked(prompts: list[int], priority: list[int], arrival: list[float], output: int = 100) -> Requests:
    return make_requests(np.array(arrival), np.array(prompts), np.full(len(prompts), output), np.array(priority))


WHOLE = replace(LIMITS, batch_tokens=512, chunk=0)
"""Prompts go through whole; 20 blocks."""


def test_better_priorities_drive_out_the_last_of_the_worst_and_no_more() -> None:
    """Three hold five blocks each, and eight are wanted."""
    arrival = [0.0, 0.0, 0.0, 0.1]
    found = _run(_ranked([60, 60, 60, 120], [2, 1, 2, 0], arrival, output=20), WHOLE)
    assert found["preemptions"].tolist() == [0, 0, 1, 0]
    assert found["started_s"][3] < 0.13 and found["finish_s"][2] > found["finish_s"][[0, 1, 3]].max()
    alike = _run(_ranked([60, 60, 60, 120], [1, 1, 1, 1], arrival, output=20), WHOLE)
    assert alike["started_s"][3] > 0.2 and not alike["preemptions"].any()


def test_nobody_leaves_where_all_of_them_would_be_too_few() -> None:
    """Whoever is in the middle needs eleven blocks, of which the best one has ten."""
    found = _run(_ranked([150, 20, 170], [0, 2, 1], [0.0, 0.0, 0.1], output=30), WHOLE)
    assert found["started_s"][2] >= found["finish_s"][0] and not found["preemptions"].any()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_place_is_made_for_better_priorities(policy: str) -> None:
    limits = Limits(gpu_tokens=640, cpu_tokens=640, batch_tokens=64, sequences=2)
    requests = _ranked([30, 30, 30], [1, 2, 0], [0.0, 0.0, 0.3])
    found = _scheduling.simulate(
        requests.columns(), COST, COST, limits, policy, checked_options(policy, {}), check=True
    )
    assert found["started_s"][2] < 0.5 and (found["status"] == FINISHED).all()
    assert found["preemptions"].tolist()[::2] == [0, 0] and found["finish_s"][2] < found["finish_s"][1]


@together(("batch", "chunk"), [(512, 32), (64, 0)])
@together("policy", POLICIES)
def test_nobody_leaves_where_tokens_alone_lack(policy: str, batch: int, chunk: int) -> None:
    """Whoever comes last waits for the prompt before it, which takes all tokens of several passes."""
    limits = Limits(gpu_tokens=6400, cpu_tokens=6400, batch_tokens=batch, sequences=64, chunk=chunk)
    requests = _ranked([10, 10, 200, 200], [1, 2, 0, 0], [0.0, 0.0, 0.1, 0.15], output=40)
    found = _scheduling.simulate(requests.columns(), COST, COST, limits, policy, checked_options(policy, {}))
    assert found["first_token_s"][3] > found["first_token_s"][2] and not found["preemptions"].any()


def test_a_prompt_goes_on_after_better_ones() -> None:
    found = _run(_ranked([200, 30], [1, 0], [0.0, 0.02], output=5))
    assert found["first_token_s"][1] < 0.1 < found["first_token_s"][0] and not found["preemptions"].any()


def test_a_cancelled_request_makes_room_at_once() -> None:
    requests = make_requests(np.zeros(2), np.full(2, 30), np.full(2, 100), None, np.array([0.5, np.inf]))
    found = _run(requests, replace(LIMITS, sequences=1))
    assert found["status"].tolist() == [CANCELLED, FINISHED]
    assert 0 < found["produced"][0] < 100 and 0.5 <= found["started_s"][1] < 0.53


def _alike(prompt: int, hashes: list[list[int]], arrival: list[float], hash_block: int = 32) -> Requests:
    found = make_requests(np.array(arrival), np.full(len(hashes), prompt), np.full(len(hashes), 4))
    start = np.concatenate([[0], np.cumsum([len(each) for each in hashes])]).astype(np.int64)
    return replace(found, hash_start=start, hashes=np.array(list(chain(*hashes)), np.int64), hash_block=hash_block)


def test_prefixes_are_computed_once_and_held_once() -> None:
    hashes = [[1, 2, 3], [1, 2, 4], [1, 2, 3], [9, 2, 3]]
    found = _run(_alike(96, hashes, [0.0, 10.0, 20.0, 30.0]))
    assert found["reused_tokens"].tolist() == [0, 64, 64, 0]  # one token of a prompt is always computed
    together = _run(_alike(96, hashes[:2], [0.0, 0.04]))
    assert together["reused_tokens"].tolist() == [0, 64] and together["gpu_blocks"][0] < 2 * 7


def test_prefixes_that_nobody_holds_go_when_room_is_wanted() -> None:
    hashes = [[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12], [1, 2, 3]]
    found = _run(_alike(96, hashes, [0.0, 10.0, 20.0, 30.0, 40.0]))
    assert found["reused_tokens"].tolist() == [0] * 5  # 20 blocks of 16: three prompts and what they made
    wide = _run(_alike(96, hashes, [0.0, 10.0, 20.0, 30.0, 40.0]), replace(LIMITS, gpu_tokens=640))
    assert wide["reused_tokens"].tolist() == [0, 0, 0, 0, 64]


def test_routers() -> None:
    prompts = np.array([60, 1, 60, 1, 60, 1, 60, 1])
    requests = make_requests(np.arange(8) * 0.05, prompts, np.where(prompts > 1, 200, 1))
    turns = _run(requests, replicas=2)["replica"]
    assert turns.tolist() == [0, 1] * 4
    loads = np.bincount(_run(requests, replicas=2, router="least-loaded")["replica"][::2])
    assert loads.tolist() == [2, 2]
    alike = _alike(96, [[1, 2, 3], [4, 5, 6]] * 4, [5.0 * i for i in range(8)])
    found = _run(alike, replicas=2, router="prefix-aware")
    assert found["reused_tokens"].tolist() == [0, 0] + [64] * 6


def test_names_that_do_not_exist_are_refused() -> None:
    requests = _requests(0, 3)
    with pytest.raises(ValueError, match="no router"):
        _run(requests, router="nearest")
    cost = simple_cost()
    with pytest.raises(ValueError, match="no policy"):
        _scheduling.simulate(requests.columns(), cost, cost, LIMITS, "gpu", {})
    with pytest.raises(ValueError, match="no option preemption"):
        _scheduling.simulate(requests.columns(), cost, cost, LIMITS, "gpu-only", {})
