"""`helm-plan` with strategies that divide work or search shares: plans, options, output."""

import json

import pytest

import helmsman
from helmsman.cli.plan import main
from helmsman.planner.checks.accept import accept
from helmsman.schemas.errors import UsageError
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import parse_document

PAPER = {"paper": True}
"""Decode steps are priced by the printed formulas."""

QUESTION = ("--model", "Qwen3-0.6B", "--hw", "rtx4060-laptop", "--vram-avail", "1GB")


@pytest.mark.parametrize(
    "strategy",
    [
        ("hetegen",),
        ("twinpilots",),
        ("flexgen-lp", "--block", "4", "--objective", "throughput"),
        ("weights-on-host", "--kv-rule", "layerkv"),
        ("flexgen", "--percent", "0,90,10", "--kv-rule", "headinfer"),
    ],
)
def test_standard_output_is_one_plan(capfd, strategy):
    """Solvers print to the file descriptor, so that is what is read."""
    assert main([*QUESTION, "--strategy", *strategy, "--json"]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    plan = accept(parse_document(Plan, out.encode(), "stdout"))
    assert plan.strategy.name == strategy[0]
    for flag, value in zip(strategy[1::2], strategy[2::2], strict=True):
        assert str(plan.strategy.options[flag[2:].replace("-", "_")]) == value


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("hetegen", "--percent", "0,50,50"), "does not go with"),
        (("twinpilots", "--kv-rule", "host"), "does not go with"),
        (("hetegen", "--compress", "weights"), "does not go with"),
        (("flexgen-lp", "--kv-rule", "host"), "does not go with"),
        (("flexgen-lp", "--block", "0"), "not a number of sequences"),
        (("flexgen-lp", "--block", "8"), "more sequences never gain request"),
        (("all-cpu", "--block", "8"), "does not go with"),
        (("flexgen", "--kv-rule", "layerkv"), "percentages alone"),
        (("flexgen", "--home", "dram"), "percentages alone"),
    ],
)
def test_options_of_other_strategies_are_refused(capfd, words, message):
    assert main([*QUESTION, "--strategy", *words, "--json"]) == 2
    assert message in json.loads(capfd.readouterr().out)["error"]["message"]


def test_printed_prices_are_of_percentages_alone():
    with pytest.raises(UsageError, match="percentages alone"):
        helmsman.plan({"model": "opt-30b", "hardware": "a100-cxl-asic", "strategy": "flexgen", "options": PAPER})


@pytest.mark.parametrize(("strategy", "options"), [("flexgen", {"percent": "0,80,20"}), ("weights-on-host", {})])
def test_printed_bandwidths_are_not_capped_by_the_link(strategy, options):
    """E-GUPTA-10: CXL-ASIC's 28 GB/s are more than host memory sends over the same lanes, 24.89 GB/s."""
    question = {"model": "opt-30b", "hardware": "a100-cxl-asic", "strategy": strategy}
    plans = [helmsman.plan({**question, "options": {"home": "cxl", **options, **more}}).plan for more in ({}, PAPER)]
    steps = [accept(plan).predicted.decode.seconds.mid for plan in plans]
    assert steps[0] / steps[1] == pytest.approx(28 / 24.89, rel=0.01)
