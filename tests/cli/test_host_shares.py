"""`helm-plan` with strategies that divide work or search shares: plans, options, output."""

import json

import pytest

from helmsman.cli.plan import main
from helmsman.planner.accept import accept
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import parse_document

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
        (("flexgen", "--paper"), "percentages alone"),
    ],
)
def test_options_of_other_strategies_are_refused(capfd, words, message):
    assert main([*QUESTION, "--strategy", *words, "--json"]) == 2
    assert message in json.loads(capfd.readouterr().out)["error"]["message"]


@pytest.mark.parametrize("words", [("flexgen", "--percent", "0,80,20"), ("all-cpu",)])
def test_printed_bandwidths_are_not_capped_by_the_link(capfd, words):
    """E-GUPTA-10: CXL-ASIC's 28 GB/s are more than host memory sends over the same lanes, 24.89 GB/s."""
    asked = ("--model", "opt-30b", "--hw", "a100-cxl-asic", "--home", "cxl", "--strategy", *words, "--json")
    steps = []
    for more in ((), ("--paper",)):
        assert main([*asked, *more]) == 0
        plan = accept(parse_document(Plan, capfd.readouterr().out.encode(), "stdout"))
        steps.append(plan.predicted.decode.seconds.mid)
    assert steps[0] / steps[1] == pytest.approx(28 / 24.89, rel=0.01)
