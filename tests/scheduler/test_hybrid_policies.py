"""Properties that hold whatever comes: bursts, requests that leave, devices that are not what is believed of them."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from daily import one_in
from hybrid_cases import DEFERRED, GPU_ONLY, HYBRID, PIPELINED, Case, random_case

from helmsman.schemas.served_table import CANCELLED, FINISHED, REJECTED

SEEDS = range(200)


def _ended_once(case: Case, found: dict[str, Any]) -> None:
    """Every request ends exactly once, with all tokens it asked for unless it left or never could run."""
    ends = found["event_request"][found["event"] >= 5]
    assert sorted(ends) == list(range(len(case.requests)))
    status, produced = found["status"], found["produced"]
    assert set(status) <= {FINISHED, CANCELLED, REJECTED}
    done = status == FINISHED
    assert (produced[done] == case.requests.output_tokens[done]).all()
    assert (produced[~done] < case.requests.output_tokens[~done]).all()
    assert (case.requests.cancel_s[status == CANCELLED] < np.inf).all()


def _within_memory(case: Case, found: dict[str, Any]) -> None:
    assert found["gpu_blocks"].max() <= case.limits.gpu_tokens // case.limits.block
    assert found["cpu_blocks"].max() <= case.limits.cpu_tokens // case.limits.block


def _hidden(found: dict[str, Any]) -> None:
    """NEO's inequalities after every step 4 and 5, of every pass that was built to keep them."""
    for half in ("0", "1"):
        assert (found[f"choice_host{half}_s"] <= found[f"choice_hiding{half}_s"]).all()


def _best_made(found: dict[str, Any]) -> None:
    """Of what was compared in one pass none has a larger x / T than what was made, which comes first."""
    rate = found["choice_advance"] / np.maximum(found["choice_seconds"], 1e-300)
    starts = np.flatnonzero(found["choice_made"])
    if len(starts):
        assert (np.maximum.reduceat(rate, starts) <= rate[starts]).all()


def _holds(seed: int, policy: str) -> dict[str, Any]:
    case = random_case(seed)
    found = case.simulate(policy)
    _ended_once(case, found)
    _within_memory(case, found)
    return found


@pytest.mark.parametrize("first", one_in(2, SEEDS[::40]))
@pytest.mark.parametrize("policy", HYBRID)
def test_every_request_ends_once_within_memory(policy: str, first: int) -> None:
    for seed in range(first, first + 40):
        found = _holds(seed, policy)
        if policy == "neo":
            _hidden(found)
            _best_made(found)
        if policy == "adaptive":
            _best_made(found)


@pytest.mark.nightly
@pytest.mark.parametrize("policy", HYBRID)
def test_ten_thousand_cases(policy: str) -> None:
    for seed in range(200, 10_200):
        found = _holds(seed, policy)
        if policy == "neo":
            _hidden(found)
        if policy in ("neo", "adaptive"):
            _best_made(found)


@pytest.mark.parametrize("threshold", ["0", "1"])
def test_cohorts_of_any_size(threshold: str) -> None:
    """APEX with the printed inequality, and cohorts that are as small as they come."""
    for seed in range(400, 420):
        case = random_case(seed)
        found = case.simulate("apex", threshold=threshold, printed="yes")
        _ended_once(case, found)
        _within_memory(case, found)


def test_several_cohorts_occur() -> None:
    """Where there may be more than one, other tokens come at other times, and the host's order matters."""
    for policy in ("apex", "adaptive"):
        found = [
            [random_case(seed).simulate(policy, cohorts=cohorts, order=order)["finish_s"] for seed in range(40)]
            for cohorts, order in (("1", "last"), ("64", "last"), ("64", "first"), ("64", "arrival"))
        ]
        for one, other in combinations(found, 2):
            assert any((a != b).any() for a, b in zip(one, other, strict=True))


def test_all_kinds_of_passes_occur() -> None:
    """The cases above reach what they are about."""
    kinds = {policy: sum(random_case(seed).simulate(policy)["passes"][0] for seed in range(20)) for policy in HYBRID}
    assert all(kinds["neo"][kind] > 0 for kind in (GPU_ONLY, PIPELINED))
    assert all(kinds["apex"][kind] > 0 for kind in (GPU_ONLY, PIPELINED, DEFERRED))
    assert all(count > 0 for count in kinds["adaptive"])


@pytest.mark.parametrize("policy", HYBRID)
def test_runs_in_closed_form_change_nothing(policy: str) -> None:
    for seed in range(300, 320):
        case = random_case(seed)
        fast, slow = case.simulate(policy), case.simulate(policy, reference=True)
        assert (fast["event"] == slow["event"]).all()
        assert (fast["event_request"] == slow["event_request"]).all()
        np.testing.assert_allclose(fast["event_s"], slow["event_s"], rtol=1e-9)


def test_the_same_question_has_one_answer() -> None:
    case = random_case(17)
    one, other = (case.simulate("adaptive") for _ in range(2))
    assert all(
        (np.asarray(one[name]) == np.asarray(other[name])).all() for name in ("event", "event_request", "event_s")
    )
