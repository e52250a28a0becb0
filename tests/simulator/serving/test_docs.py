"""docs/serving.md names every policy, option, preset and column name there is."""

from pathlib import Path

from helmsman.scheduler.policies import POLICIES
from helmsman.simulator.serving.slo import LIMITS, PRESETS

TEXT = (Path(__file__).parents[3] / "docs" / "serving.md").read_text()


def test_policies_and_slos_are_documented() -> None:
    options = {option for policy in POLICIES.values() for option in policy.options}
    for name in (*POLICIES, *options, *PRESETS):
        assert f"`{name}`" in TEXT, name
    for limit in ("ttft", "tpot"):
        assert limit in LIMITS and f"{limit}=" in TEXT
