"""`--strategy best` and its contenders: the same prices for all, what is said of those passed over, and its proof."""

import json
from pathlib import Path
from typing import Any

import pytest

from helmsman.cli.plan import main
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import parse_document

SMALL = ("--model", "opt-125m", "--hw", "rtx4060-laptop", "--output-tokens", "4")
SLOWER = 20.0


def run(capfd: pytest.CaptureFixture[str], *argv: str) -> tuple[str, str]:
    assert main([*argv]) == 0
    return capfd.readouterr()


def planned(capfd: pytest.CaptureFixture[str], *argv: str) -> Plan:
    return parse_document(Plan, run(capfd, *argv, "--json")[0].encode(), "plan.json")


def slower_table(capfd: pytest.CaptureFixture[str], place: Path) -> None:
    """The operation table of the small question, where everything takes longer than the record says."""
    run(capfd, *SMALL, "--strategy", "op-split", "--write-table", str(place), "-q")
    table: Any = json.loads(place.read_text())
    for row in table["rows"]:
        for figure in (row.get(column) for column in ("host", "accelerator")):
            if figure is not None:
                figure.update({end: SLOWER * figure[end] for end in ("value", "p10", "p90")})
    place.write_text(json.dumps(table))


def test_a_table_prices_simple_plans_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The plan and the bound it is held against are of the same prices, and a simulation finds them again."""
    slower_table(capfd, tmp_path / "table.json")
    usual = planned(capfd, *SMALL)
    slow = planned(capfd, *SMALL, "--table", str(tmp_path / "table.json"))
    assert usual.strategy.name == slow.strategy.name == "layer-split"
    assert slow.strategy.options["operation_table"] is True
    assert slow.predicted.decode.seconds.mid > 2 * usual.predicted.decode.seconds.mid
    assert slow.certificate is not None and usual.certificate is not None
    assert slow.certificate.lower_bound > 2 * usual.certificate.lower_bound


def test_each_plan_is_passed_over_once_and_for_the_reason_that_was_asked(capfd: pytest.CaptureFixture[str]) -> None:
    """One device alone and the best split are one plan where everything fits the accelerator."""
    out, _ = run(capfd, "--model", "Qwen3-14B", "--hw", "gh200-96gb", "--risk", "regret")
    lines = [line for line in out.splitlines() if line.startswith("passed over")]
    assert lines and len({line.split(":")[0] for line in lines}) == len(lines)
    assert all(line.endswith("the plan above loses less where a figure is off") for line in lines)


def test_the_explained_plan_is_said_to_be_another_than_the_recommended_one(capfd: pytest.CaptureFixture[str]) -> None:
    recommended = planned(capfd, *SMALL)
    out, err = run(capfd, *SMALL, "--explain")
    assert "plan         optimal " in out
    assert err.count("\n") == 1 and f"without --explain, {recommended.label} is recommended" in err


@pytest.mark.parametrize("strategy", ["best", "optimal"])
@pytest.mark.parametrize("question", [("--objective", "ttft"), ("--output-tokens", "1")])
def test_the_proof_of_a_prompt_is_of_nothing_else(
    question: tuple[str, str], strategy: str, capfd: pytest.CaptureFixture[str]
) -> None:
    plan = planned(capfd, *SMALL, *question, "--vram-avail", "250MB", "--strategy", strategy)
    assert plan.certificate is not None
    assert plan.certificate.seconds == pytest.approx(plan.predicted.ttft.seconds.mid, rel=1e-12)
    assert plan.certificate.lower_bound <= plan.predicted.ttft.seconds.mid
