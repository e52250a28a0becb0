"""Cohorts: a token of requests on the host that no pass waits for (APEX-13..19) takes L + 1 passes (E-APEX-05)."""

import numpy as np
import pytest

from helmsman.scheduler import _scheduling
from helmsman.scheduler.cost import IterationCost, Line
from helmsman.scheduler.iteration_times import Work, deferred_iterations, deferred_seconds
from helmsman.scheduler.limits import Limits
from helmsman.scheduler.policies import checked_options
from helmsman.schemas.requests import make_requests
from helmsman.schemas.served import FINISHED

LAYERS, ON_HOST = 5, 3
_NONE, _FLAT = Line((0.0,), (0.0,)), Line((0.0,), (1.0,))
COST = IterationCost(
    LAYERS,
    linear=_FLAT,
    gpu_attention=_NONE,
    prefill_compute=_NONE,
    prefill_read=_NONE,
    cpu_attention=Line((0.0,), (2.0,)),  # more than a linear stage hides: two sub-batches are no choice
    cpu_request=0.25,
    to_host=_NONE,
    to_device=_NONE,
    swap_out=_NONE,
    swap_in=_NONE,
    ends=Line((1.0, 2.0), (0.0, 0.5)),  # who decodes on the accelerator yields for nothing, those of the cohort do not
)
LIMITS = Limits(gpu_tokens=128, cpu_tokens=960, batch_tokens=512, sequences=8)


@pytest.mark.parametrize("slower", [1.0, 2.5])
def test_a_token_takes_as_many_passes_as_layers_and_one(slower: float) -> None:
    """One request fills the accelerator's cache; the host may be slower than the policy believes."""
    requests = make_requests(np.zeros(1 + ON_HOST), np.array([100, *[17] * ON_HOST]), np.array([29, *[2] * ON_HOST]))
    cost, options = COST.scaled(cpu_attention=slower), checked_options("apex", {"threshold": "0", "saturation": "512"})
    found = _scheduling.simulate(requests.columns(), cost, COST, LIMITS, "apex", options, check=True)
    assert (found["status"] == FINISHED).all()
    assert found["cpu_tokens"].tolist() == [0, *[1] * ON_HOST]
    once = deferred_seconds(cost, Work(tokens=1, outputs=1), ON_HOST)
    passes = deferred_iterations(cost, once, Work(cpu_requests=ON_HOST, cpu_kv=18 * ON_HOST))
    assert passes == (LAYERS if slower == 1.0 else 2 * LAYERS) + 1
    last = deferred_seconds(cost, Work(tokens=1, outputs=1), ON_HOST, ON_HOST)
    assert last == once + 0.5 * ON_HOST
    on_host = found["itl_on_cpu"] == 1
    assert found["itl_weight"][on_host].tolist() == [ON_HOST]
    assert found["itl_first_s"][on_host] == pytest.approx((passes - 1) * once + last)
    assert found["cpu_s"][0] == pytest.approx(LAYERS * slower * (2.0 + 0.25 * ON_HOST))
