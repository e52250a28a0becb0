"""Passes decided ahead, and blocks that stay where a request was driven out."""

from dataclasses import replace

import numpy as np
import pytest
from serving_oracle import simple_cost

from helmsman.scheduler import _scheduling
from helmsman.scheduler.limits import Limits
from helmsman.schemas.requests import Requests, make_requests

COST = simple_cost(0.01, 1e-4, 1e-5, layers=4)
LIMITS = Limits(gpu_tokens=320, cpu_tokens=0, batch_tokens=64, sequences=8, chunk=32)


def run(requests: Requests, limits: Limits, reference: bool = False) -> dict[str, np.ndarray]:
    options = {"preemption": "recompute"}
    return _scheduling.simulate(
        requests.columns(), COST, COST, limits, "gpu-only", options, reference=reference, check=True
    )


def crowd(count: int = 60) -> Requests:
    random = np.random.default_rng(3)
    arrivals = np.cumsum(random.exponential(0.05, count))
    return make_requests(arrivals, random.integers(20, 120, count), random.integers(10, 60, count))


def test_who_comes_while_a_pass_runs_waits_one_pass_longer() -> None:
    """The first is alone, the second comes within its second pass."""
    requests = make_requests(np.array([0.0, 0.06]), np.array([8, 8]), np.array([12, 4]))
    now, later = (run(requests, replace(LIMITS, ahead=ahead)) for ahead in (False, True))
    assert now["first_token_s"][0] == later["first_token_s"][0]
    waited = later["started_s"][1] - now["started_s"][1]
    assert waited == pytest.approx(0.0101, rel=0.02), "one pass"


@pytest.mark.parametrize("ahead", [False, True])
def test_runs_of_passes_equal_single_ones(ahead: bool) -> None:
    requests, limits = crowd(), replace(LIMITS, keeps=True, ahead=ahead)
    fast, slow = run(requests, limits), run(requests, limits, reference=True)
    for name in ("started_s", "first_token_s", "finish_s"):
        np.testing.assert_allclose(fast[name], slow[name], rtol=1e-9)
    assert (fast["preemptions"] == slow["preemptions"]).all() and fast["preemptions"].sum() > 0


def test_what_stays_is_not_computed_again() -> None:
    requests = crowd()
    gone, stays = (run(requests, replace(LIMITS, keeps=keeps)) for keeps in (False, True))
    assert stays["preemptions"].sum() > 0
    assert stays["finish_s"].max() < gone["finish_s"].max()


def test_prefixes_are_reused_in_blocks_of_the_cache() -> None:
    """Two prompts of 64 tokens share both hashes of 32: all but the last block of 16 is there already."""
    hashes, starts = np.array([5, 6, 5, 6]), np.array([0, 2, 4])
    alike = make_requests(np.array([0.0, 5.0]), np.array([64, 64]), np.array([4, 4]))
    requests = replace(alike, hash_start=starts, hashes=hashes, hash_block=32)
    whole, fine = (run(requests, replace(LIMITS, chunk=64, keeps=keeps)) for keeps in (False, True))
    assert list(whole["reused_tokens"]) == [0, 32] and list(fine["reused_tokens"]) == [0, 48]
