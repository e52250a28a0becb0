"""What requests may be, as the service tells them and as policies take them."""

import pytest
from plans import make_plan
from serving_oracle import simple_cost
from shapes import small_model

from helmsman.cli.serving_generator import capacity_of
from helmsman.scheduler._scheduling import Scheduler
from helmsman.scheduler.limits import Limits
from helmsman.scheduler.policies import POLICIES, checked_options

LIMITS = Limits(gpu_tokens=640, cpu_tokens=1280, batch_tokens=512, sequences=8)


@pytest.mark.parametrize("policy", POLICIES)
def test_what_fits_is_what_the_policy_takes(policy: str) -> None:
    """The last token of an answer is never cached, so one more than the capacity may go in."""
    capacity = capacity_of(make_plan(small_model("llama")), LIMITS, policy)
    scheduler = Scheduler(simple_cost(0.01, 1e-4, 1e-6, layers=4), LIMITS, policy, checked_options(policy, {}))
    scheduler.add(0, capacity.home_tokens - 10, 10)
    with pytest.raises(ValueError, match="no cache has room"):
        scheduler.add(1, capacity.home_tokens - 10, 12)
