"""`helm-plan --risk`: what plans are ranked by changes what is recommended, and is refused where nothing is ranked."""

import json
from typing import Any

import pytest
from fewer_blocks import fewer_blocks

from helmsman.cli.plan import main

ASKED = ("--model", "Qwen3-0.6B", "--output-tokens", "16", "--vram-avail", "500MB")
RISKS = ("median", "pessimistic", "regret")


def answered(capfd: pytest.CaptureFixture[str], *argv: str) -> Any:
    """The document that helm-plan prints. Solvers print to the file descriptor, so that is what is read."""
    main([*argv, "--json"])
    return json.loads(capfd.readouterr().out)


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the plan that helm-plan recommends by each --risk, for a question to which each has another answer."""
    folder = tmp_path_factory.mktemp("risk")
    question = ("--model", fewer_blocks(folder, "Qwen3-0.6B", 10), "--output-tokens", "16", "--vram-avail", "400MB")
    for risk in RISKS:
        place = str(folder / risk)
        assert main([*question, "--hw", "a10-xeon6342", "--risk", risk, "-q", "-o", place]) == 0
    return {risk: json.loads((folder / risk).read_text()) for risk in RISKS}


def test_a_pessimist_gets_the_plan_with_the_least_95th_percentile(plans: dict[str, Any]) -> None:
    assert plans["pessimistic"]["label"] != plans["median"]["label"]
    high = {risk: plan["predicted"]["request"]["seconds"]["high"] for risk, plan in plans.items()}
    assert high["pessimistic"] == min(high.values()) < high["median"]
    assert {risk: plan["strategy"]["options"]["risk"] for risk, plan in plans.items()} == {risk: risk for risk in plans}


def test_the_least_regret_is_a_choice_of_its_own(plans: dict[str, Any]) -> None:
    assert plans["regret"]["label"] not in (plans["median"]["label"], plans["pessimistic"]["label"])


@pytest.mark.parametrize("risk", ["pessimistic", "regret"])
@pytest.mark.parametrize(
    "others",
    [
        ("--objective", "throughput", "--batch", "best"),
        ("--objective", "throughput", "--batches", "best", "--batch", "2"),
        ("--strategy", "layer-split", "--max-context"),
        ("--strategy", "layer-split"),
        ("--strategy", "optimal"),
        ("--strategy", "all"),
    ],
    ids=["batch", "batches", "context", "one strategy", "the search alone", "all"],
)
def test_where_no_plans_are_ranked_by_it_it_is_refused(
    others: tuple[str, ...], risk: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([*ASKED, "--hw", "rtx4060-laptop", *others, "--risk", risk, "--json"]) == 2
    error = json.loads(capfd.readouterr().out)["error"]
    assert error["field"] == "--risk" and error["remedy"]


def test_values_that_are_refused_are_said(capfd: pytest.CaptureFixture[str]) -> None:
    argv = (*ASKED, "--hw", "rtx4060-laptop", "--objective", "throughput", "--batch", "best", "--risk", "regret")
    error = answered(capfd, *argv)["error"]
    assert error["value"] == "regret" and "--batch best" in error["remedy"]


def test_the_longest_context_has_no_limits_of_seconds(capfd: pytest.CaptureFixture[str]) -> None:
    argv = ("--hw", "rtx4060-laptop", "--strategy", "layer-split", "--max-context", "--slo", "ttft=1s")
    error = answered(capfd, *ASKED, *argv)["error"]
    assert (error["code"], error["field"]) == ("usage", "--slo")
