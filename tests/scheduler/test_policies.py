"""Policies by name, and their options as text."""

import pytest
from serving_cases import random_case

from helmsman.scheduler.policies import POLICIES, Number, WholeNumber, checked_options
from helmsman.schemas.errors import UsageError


def test_the_core_has_every_policy_with_these_options() -> None:
    for policy in POLICIES:
        assert len(random_case(0, policy, most=3).run()["status"]) > 0


def test_defaults_are_values_that_can_be_said() -> None:
    for each in POLICIES.values():
        for option in each.options.values():
            said = ("no", "yes")[option.default] if isinstance(option.default, bool) else str(option.default)
            assert option.parse(said) == option.default


def test_options_are_as_given_or_by_default() -> None:
    assert checked_options("apex", {"printed": "yes", "threshold": "2.5"}) == {
        "saturation": 128,
        "threshold": 2.5,
        "printed": True,
        "cohorts": 1,
        "order": "last",
    }
    assert checked_options("symmetric", {}) == {}


@pytest.mark.parametrize(
    ("policy", "given", "remedy"),
    [
        ("vllm", {}, "use one of gpu-only, simple-offload"),
        ("neo", {"threshold": "8"}, "neo has saturation, prompts"),
        ("symmetric", {"threshold": "8"}, "symmetric has no options"),
        ("gpu-only", {"preemption": "none"}, "write recompute or swap"),
        ("neo", {"saturation": "-1"}, "write a whole number from 0 to 1000000"),
        ("neo", {"saturation": "1.5"}, "write a whole number"),
        ("apex", {"threshold": "nan"}, "write a number from 0 to 1e"),
        ("apex", {"printed": "true"}, "write yes or no"),
    ],
)
def test_what_there_is_not_is_refused(policy: str, given: dict[str, str], remedy: str) -> None:
    with pytest.raises(UsageError, match=remedy):
        checked_options(policy, given)


def test_ranges_are_inclusive() -> None:
    assert WholeNumber(1, 0, 5, "").parse("5") == 5
    assert Number(1.0, 0.0, 5.0, "").parse("0") == 0.0
