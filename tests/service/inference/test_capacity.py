"""What requests may be, as the service tells them and as policies take them."""

from dataclasses import replace

import pytest
from plans import make_plan
from serving_oracle import simple_cost
from shapes import small_model

from helmsman.analysis.ask_serving import setup_of
from helmsman.cli.serve import build_parser
from helmsman.cli.serving_setup import setting_of
from helmsman.scheduler._scheduling import Scheduler
from helmsman.scheduler.limits import Limits
from helmsman.scheduler.policies import POLICIES, checked_options
from helmsman.schemas.errors import UsageError
from helmsman.schemas.workload import Workload
from helmsman.service.inference.open_generator import capacity_of, share_of

LIMITS = Limits(gpu_tokens=640, cpu_tokens=1280, batch_tokens=512, sequences=8)


def test_caches_are_as_small_as_is_asked() -> None:
    args = build_parser().parse_args(["p", "--checkpoint", "c", "--gpu-tokens", "500", "--cpu-tokens", "0"])
    plan = make_plan(small_model("qwen3"), 0, workload=Workload(prompt_tokens=8, output_tokens=8, context=96))
    limits = setup_of(plan, setting_of(args)).limits
    assert (limits.gpu_tokens, limits.cpu_tokens, limits.batch_tokens) == (496, 0, 2048)
    args.gpu_tokens = 15
    with pytest.raises(UsageError, match="gpu_tokens: too few"):
        setup_of(plan, setting_of(args))


def test_what_is_in_use_is_of_caches_that_the_policy_fills() -> None:
    """A full accelerator is full, however large a cache the host has beside it that nobody decodes from."""
    full = {"gpu": (40, 40), "cpu": (0, 80)}
    shares = {policy: share_of(full, capacity_of(LIMITS, policy).homes) for policy in ("gpu-only", "symmetric", "neo")}
    assert shares == {"gpu-only": 1.0, "symmetric": 0.0, "neo": 1 / 3}
    assert share_of({"gpu": (3, 4)}, ("gpu", "cpu")) == 0.75 and share_of({"gpu": (3, 4)}, ("cpu",)) == 0


@pytest.mark.parametrize("policy", POLICIES)
def test_what_fits_is_what_the_policy_takes(policy: str) -> None:
    """The last token of an answer is never cached, so one more than the capacity may go in."""
    capacity = capacity_of(LIMITS, policy)
    scheduler = Scheduler(simple_cost(0.01, 1e-4, 1e-6, layers=4), LIMITS, policy, checked_options(policy, {}))
    scheduler.add(0, capacity.home_tokens - 10, 10)
    with pytest.raises(ValueError, match="no cache has room"):
        scheduler.add(1, capacity.home_tokens - 10, 12)


def test_the_context_is_a_limit_of_both() -> None:
    limits = replace(LIMITS, context=96)
    assert capacity_of(limits, "neo").context == 96
    scheduler = Scheduler(simple_cost(), limits, "neo", checked_options("neo", {}))
    scheduler.add(0, 86, 10)
    with pytest.raises(ValueError, match="beyond the context"):
        scheduler.add(1, 86, 11)
