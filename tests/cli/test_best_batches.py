"""`helm-plan --batch best --batches best`: the division into batches with the most tokens/s."""

import json

import pytest
from fewer_blocks import fewer_blocks

from helmsman.cli.plan import main

ASKED = ("--model", "Qwen3-0.6B", "--hw", "rtx3060-5600x", "--prompt-tokens", "2048", "--output-tokens", "32")
MOST = (*ASKED, "--objective", "throughput")


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """The question about four blocks on a machine with as small a share of memory."""
    model = fewer_blocks(tmp_path_factory.mktemp("few"), "Qwen3-0.6B", 4)
    return ("--model", model, *ASKED[2:], "--vram-avail", "1.5GB", "--ram-avail", "3GB", "--objective", "throughput")


def run(capsys, *argv):
    code = main([*argv, "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("strategy", [pytest.param("layer-split", marks=pytest.mark.nightly), "all-cpu"])
def test_the_plan_is_that_of_its_batch(capsys, few, strategy):
    code, plan = run(capsys, *few, "--strategy", strategy, "--batch", "best")
    batch, considered = str(plan["workload"]["batch"]), plan.pop("considered")
    assert code == 0
    _, same = run(capsys, *few, "--strategy", strategy, "--batch", batch)
    assert same.pop("considered") == [] and same == plan
    rates = {each["batch"]: each["rate"] for each in considered if each["verdict"] == "planned"}
    assert max(rates, key=lambda each: (rates[each], -each)) == int(batch) > 1
    without = [each["batch"] for each in considered if each["verdict"] == "no-plan"]
    code, answer = run(capsys, *few, "--strategy", strategy, "--batch", str(without[0]))
    assert len(without) == 1 and code == 3 and answer["error"]["code"] == "infeasible"


def test_considered_batches_are_printed(capsys, few):
    assert main([*few, "--strategy", "all-cpu", "--batches", "best", "--batch", "2"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("batches"))
    assert line.startswith("batches      tokens/s over the whole request: 1 x 2 -> ") and ", 3 x 2 -> " in line


@pytest.mark.parametrize(
    ("argv", "code", "field"),
    [
        ((*ASKED, "--batch", "best"), 2, "--batch"),
        ((*ASKED, "--batches", "best", "--objective", "ttft"), 2, "--batches"),
        ((*MOST, "--batch", "best", "--strategy", "all"), 2, "--batch"),
        ((*MOST, "--batch", "best", "--pareto"), 2, "--batch"),
        ((*MOST, "--batches", "best", "--max-context"), 2, "--batches"),
        ((*MOST, "--batches", "max"), 2, "--batches"),
        ((*MOST, "--batch", "max", "--batches", "best"), 2, "--batches"),
        ((*MOST, "--batch", "best", "--strategy", "flexgen-lp", "--block", "8"), 2, "--batch"),
        ((*MOST, "--batch", "best", "--strategy", "vllm", "--model", "Qwen3-14B"), 3, None),
    ],
)
def test_what_has_no_best_batch(capsys, argv, code, field):
    found, answer = run(capsys, *argv)
    assert found == code and answer["error"].get("field") == field and answer["error"]["remedy"]
