"""`--strategy best` and its contenders: the same prices for all, what is said of those passed over, and its proof."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from daily import one_in
from fewer_blocks import fewer_blocks

from helmsman.cli.plan import main
from helmsman.planner import choice
from helmsman.planner.choice import MOST_ABOVE_SIMPLE, Contender, choose
from helmsman.planner.decision import Decision
from helmsman.planner.prediction.speed import interval
from helmsman.planner.prediction.speed import planned as plan_compared
from helmsman.planner.strategies.recommended import _proof
from helmsman.planner.words.explain import explain
from helmsman.schemas.objective import OBJECTIVES, Objective
from helmsman.schemas.plan import PassedOver, Plan
from helmsman.schemas.predicted import Interval
from helmsman.schemas.read import parse_document, read_document

SLOWER = 20.0


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """A question about two blocks."""
    model = fewer_blocks(tmp_path_factory.mktemp("small"), "opt-125m", 2)
    return ("--model", model, "--hw", "rtx4060-laptop", "--output-tokens", "4")


@pytest.fixture(scope="module")
def four(small: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """The question about four blocks."""
    model = fewer_blocks(tmp_path_factory.mktemp("four"), "opt-125m", 4)
    return (*small[:1], model, *small[2:])


@pytest.fixture(scope="module")
def recommended(small: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """Its answer."""
    return written(tmp_path_factory.mktemp("recommended"), *small)


@pytest.fixture(scope="module")
def fastest_steps(small: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, Plan]:
    """Return two plans with the fastest decode steps: the one that helm-plan recommends, and that of `optimal`."""
    folder, question = tmp_path_factory.mktemp("steps"), (*small, "--objective", "latency")
    return written(folder, *question), written(folder, *question, "--strategy", "optimal")


def written(folder: Path, *argv: str) -> Plan:
    """The plan that is written into a folder."""
    assert main([*argv, "-q", "-o", str(folder / "plan.json")]) == 0
    return read_document(Plan, folder / "plan.json")


def run(capfd: pytest.CaptureFixture[str], *argv: str) -> tuple[str, str]:
    assert main([*argv]) == 0
    return capfd.readouterr()


def planned(capfd: pytest.CaptureFixture[str], *argv: str) -> Plan:
    return parse_document(Plan, run(capfd, *argv, "--json")[0].encode(), "plan.json")


def slower_table(capfd: pytest.CaptureFixture[str], small: tuple[str, ...], place: Path) -> None:
    """The operation table of the small question, where everything takes longer than the record says."""
    run(capfd, *small, "--strategy", "op-split", "--write-table", str(place), "-q")
    table: Any = json.loads(place.read_text())
    for row in table["rows"]:
        for figure in (row.get(column) for column in ("host", "accelerator")):
            if figure is not None:
                figure.update({end: SLOWER * figure[end] for end in ("value", "p10", "p90")})
    place.write_text(json.dumps(table))


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[Contender]]:
    """What was chosen from, question by question."""
    contenders: list[Sequence[Contender]] = []
    monkeypatch.setattr(choice, "choose", lambda pool, risk: contenders.append(pool) or choose(pool, risk))
    return contenders


def test_a_table_prices_simple_plans_too(
    small: tuple[str, ...], tmp_path: Path, capfd: pytest.CaptureFixture[str], pools: list[Sequence[Contender]]
) -> None:
    """Simple plans, the search's and the bound are of the same prices."""
    slower_table(capfd, small, tmp_path / "table.json")
    usual = planned(capfd, *small)
    slow = planned(capfd, *small, "--table", str(tmp_path / "table.json"))
    before, after = ({each.decision.plan.label: each for each in pool if each.simple} for pool in pools)
    assert "cuda(4)" in before and before.keys() & after.keys()
    for label in before.keys() & after.keys():
        assert after[label].decision.plan.strategy.options["operation_table"] is True
        assert after[label].seconds.mid > 2 * before[label].seconds.mid
    assert slow.certificate is not None and usual.certificate is not None
    assert slow.certificate.lower_bound > 2 * usual.certificate.lower_bound


def test_a_plan_that_two_strategies_have_is_one_contender(
    capfd: pytest.CaptureFixture[str], pools: list[Sequence[Contender]]
) -> None:
    """One device alone and the best split are one plan where there is one device."""
    planned(capfd, "--model", "opt-125m", "--hw", "epyc9554-cpu", "--output-tokens", "4")
    [pool] = pools
    names = [(each.decision.plan.strategy.name, each.decision.plan.label) for each in pool]
    assert ("layer-split", "cpu(14)") in names and len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("shape", "objective"),
    one_in(
        2,
        [
            (("--batch", "2", "--batches", "3"), "request"),
            *(
                pytest.param(("--batch", "2", "--batches", "3"), objective, marks=pytest.mark.nightly)
                for objective in OBJECTIVES
                if objective != "request"
            ),
            *(
                pytest.param(("--batch", "1"), objective, marks=() if objective == "request" else pytest.mark.nightly)
                for objective in OBJECTIVES
            ),
        ],
    ),
)
def test_no_default_is_slower_than_what_people_have_by_more_than_three_per_cent(
    small: tuple[str, ...],
    shape: tuple[str, ...],
    objective: Objective,
    capfd: pytest.CaptureFixture[str],
    pools: list[Sequence[Contender]],
) -> None:
    """Whatever the objective is of, until all batches have it: those of simple plans take turns."""
    run(capfd, *small, "--output-tokens", "9", "--vram-avail", "110MB", *shape, "--objective", objective)
    [pool] = pools
    assert {each.decision.plan.strategy.name for each in pool} == {"optimal", "layer-split", "llama-cpp", "vllm"}
    for contender in pool:
        compared = interval(plan_compared(contender.decision.plan), objective)
        assert contender.seconds.mid == pytest.approx(compared.mid) == pytest.approx(contender.decision.seconds)
        assert contender.sensitivity.seconds == pytest.approx(contender.seconds.mid)
    chosen = choose(pool).chosen
    assert chosen.seconds.mid <= MOST_ABOVE_SIMPLE * min(each.seconds.mid for each in pool if each.simple)


@pytest.mark.nightly
def test_runner_ups_of_batches_in_turns_are_of_all_batches(
    four: tuple[str, ...], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A layer split's own, too, which it ranks by the prompt of one batch."""
    question = (*four, "--batch", "64", "--batches", "3", "--objective", "ttft", "--prompt-tokens", "512")
    out, _ = run(capfd, *question, "-o", str(tmp_path / "plan.json"))
    plan = read_document(Plan, tmp_path / "plan.json")
    assert plan.strategy.name == "layer-split" and plan.certificate is not None
    assert plan.certificate.seconds == pytest.approx(3 * plan.predicted.ttft.seconds.mid)
    told = out.partition("runner-ups ")[2].partition(";")[0]
    assert "+" in told and not re.search(r"-[1-9]", told.replace("->", ""))


@pytest.mark.nightly
def test_a_limit_of_the_prompt_is_of_every_batch(four: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    """Batches in turns have their first tokens after as many prompts; no plan is twice as fast as its one pass."""
    question = (*four, "--batch", "64", "--batches", "3", "--objective", "ttft", "--prompt-tokens", "512")
    one = planned(capfd, *question, "--strategy", "layer-split").predicted.ttft.seconds.mid
    assert main([*question, "--slo", f"ttft={1.5 * one}s"]) == 3
    assert main([*question, "--slo", f"ttft={3.5 * one}s"]) == 0


@pytest.mark.nightly
def test_vllm_is_asked_where_weights_are_offloaded(
    capfd: pytest.CaptureFixture[str], pools: list[Sequence[Contender]]
) -> None:
    """Where all fits its share of the accelerator, it does what one device does that is compared already."""
    away = ("--hw", "rtx4060-laptop", "--model", "Qwen3-0.6B", "--output-tokens", "4")
    for vram in ("1GB", "6GB"):
        run(capfd, *away, "--vram-avail", vram)
    offloading, roomy = [
        [each.decision.plan for each in pool if each.decision.plan.strategy.name == "vllm"] for pool in pools
    ]
    assert [plan.label for plan in offloading] == ["vllm cuda(30) 1 GiB offloaded"] and not roomy
    same = ("--strategy", "vllm", "--same-software", "--cpu-offload-gb")
    assert offloading[0].residence == planned(capfd, *away, "--vram-avail", "1GB", *same, "1").residence
    whole = planned(capfd, *away, "--vram-avail", "6GB", *same, "least")
    alone = planned(capfd, *away, "--vram-avail", "6GB", "--strategy", "layer-split")
    assert whole.label == "vllm cuda(30)" and alone.label == "cuda(30)" and whole.predicted == alone.predicted


@pytest.mark.parametrize(
    ("risk", "why"),
    [("median", "is simpler"), ("pessimistic", "95th percentile"), ("regret", "loses less where a figure is off")],
)
def test_what_is_passed_over_says_why_and_what_is_expected(recommended: Plan, risk: str, why: str) -> None:
    """Shares are of what is expected to be saved: at best it may be more than the plan is expected to take."""
    plan = recommended
    saved = Interval(low=0.0, mid=0.25 * 2.0, high=8.0)
    strategy = plan.strategy.model_copy(update={"options": {**plan.strategy.options, "risk": risk}})
    other = PassedOver(strategy="optimal", label="other", seconds=1.5, gain=saved)
    plan = plan.model_copy(update={"strategy": strategy, "passed_over": (other,)})
    line = " ".join(explain(Decision(plan, 2.0, (), ())).split()).partition("passed over ")[2]
    assert "saves 500 ms (25.0%), 8 s at best, and may save nothing" in line and why in line


def test_the_explained_plan_is_said_to_be_another_than_the_recommended_one(
    small: tuple[str, ...], recommended: Plan, capfd: pytest.CaptureFixture[str]
) -> None:
    out, err = run(capfd, *small, "--explain")
    assert "plan         optimal\n" in out
    assert err.count("\n") == 1 and f"without --explain, {recommended.label} is recommended" in err


@pytest.mark.parametrize(
    ("question", "strategy"),
    one_in(
        2,
        [
            (("--objective", "ttft"), "best"),
            (("--output-tokens", "1"), "optimal"),
            pytest.param(("--objective", "ttft"), "optimal", marks=pytest.mark.nightly),
            pytest.param(("--output-tokens", "1"), "best", marks=pytest.mark.nightly),
        ],
    ),
)
def test_the_proof_of_a_prompt_is_of_nothing_else(
    small: tuple[str, ...], question: tuple[str, str], strategy: str, capfd: pytest.CaptureFixture[str]
) -> None:
    plan = planned(capfd, *small, *question, "--vram-avail", "100MB", "--strategy", strategy)
    assert plan.certificate is not None
    assert plan.certificate.seconds == pytest.approx(plan.predicted.ttft.seconds.mid, rel=1e-12)
    assert plan.certificate.lower_bound <= plan.predicted.ttft.seconds.mid


@pytest.mark.parametrize(("share", "proved"), [(0.5, True), (1.0, True), (1.0 + 1e-12, True), (1.01, False)])
def test_a_plan_below_the_bound_of_the_search_has_no_proof(
    fastest_steps: tuple[Plan, Plan], share: float, proved: bool
) -> None:
    """The search could not have made it, so that its bound says nothing; a bound above by rounding is no other."""
    plan, searched = fastest_steps
    assert searched.certificate is not None
    seconds = plan.predicted.decode.seconds.mid
    bound = searched.certificate.model_copy(update={"lower_bound": share * seconds})
    found = _proof("latency", plan, searched.model_copy(update={"certificate": bound}))
    assert (found is not None) == proved
    if found is not None:
        assert found.lower_bound == min(seconds, share * seconds) and found.gap >= 0.0
    assert _proof("latency", plan, searched.model_copy(update={"certificate": None})) is None
