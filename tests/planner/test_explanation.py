"""What `optimal` says about its plan: every rule undone by itself, against answers to the question without it."""

import pytest
from questions import asked

from helmsman.planner.strategies.optimal.explain.ablation import undone
from helmsman.planner.strategies.optimal.explain.active_rules import rules
from helmsman.planner.strategies.optimal.explain.explanation import explanation
from helmsman.planner.strategies.optimal.search.compositions import Aim
from helmsman.planner.strategies.optimal.strategy import Optimal
from helmsman.schemas.explanation import Explanation
from helmsman.schemas.read import digest, parse_document

STEP, REQUEST = Aim("decode step", {"decode": 1.0}), Aim("request", {"prefill": 1.0, "decode": 127.0})
MB = 10**6


@pytest.fixture(scope="module")
def optimal():
    return Optimal(asked("opt-125m", layers=6, vram=70 * MB), STEP)


@pytest.fixture(scope="module")
def found(optimal):
    return explanation(optimal, optimal.decide({}).plan, tokens=1)


def test_rules_are_those_that_the_plan_follows(optimal):
    chosen = optimal.finalists[0].chosen
    named = {rule.text: rule for rule in rules(optimal.question.frame, chosen)}
    assert ("weights stay on cuda" in named) == any(any(way.resident) for way in chosen.blocks)
    assert ("rows of matrices are shared by both" in named) == any("both" in way.parts for way in chosen.blocks)
    assert f"embedding on {'cpu' if chosen.embedding == 'host' else 'cuda'}" in named


def test_without_the_accelerator_a_plan_is_the_processors(optimal):
    """In blocks: the ends may still be there."""
    rows = {each.rule: each for each in undone(optimal, optimal.finalists[0])}
    row = rows["cuda computes in blocks"]
    assert "cuda" not in row.label and row.seconds > 0
    alone = max(each.seconds for each in optimal.finalists)
    assert row.seconds <= alone


def test_no_rule_undone_is_faster_and_the_dearest_comes_first(found):
    costs = [each.seconds_more for each in found.undone]
    assert all(cost is None or cost >= 0 for cost in costs)
    known = [cost for cost in costs if cost is not None]
    assert known == sorted(known, reverse=True) and all(cost is not None for cost in costs[len(costs) - len(known) :])


def test_shares_of_what_binds_add_up(found):
    (phase,) = found.phases
    assert phase.phase == "decode" and phase.seconds == pytest.approx(found.divided)
    assert sum(part.share for part in phase.lanes) == pytest.approx(1.0, abs=0.01)
    assert 0.5 < sum(part.share for part in phase.rates) <= 1.01


def test_prices_are_tokens_a_second_of_the_plan(optimal, found):
    """A GB more changes seconds by -price x seconds / speed."""
    assert found.full == ("vram",) and found.seconds == optimal.finalists[0].seconds
    vram = next(each for each in found.prices if each.what == "capacity" and each.name == "vram")
    assert vram.size == pytest.approx(0.07) and vram.unit == "GB"
    assert vram.more.price == pytest.approx(vram.more.again, rel=0.05)
    assert 0 < vram.more.price * vram.size < 5 * found.tokens / found.seconds


def test_the_document_reads_back(optimal, found):
    assert parse_document(Explanation, found.to_json().encode(), "e.json") == found
    assert found.plan_sha256 == digest(optimal.decide({}).plan)


@pytest.mark.nightly
def test_steps_that_a_search_for_requests_proposes_are_explained():
    """Its ways have prompts elsewhere than steps, which a search for steps alone does not have."""
    optimal = Optimal(asked("Llama-3.2-1B", "m4max-128gb", layers=4, batch=4, batches=4), STEP)
    known = set(optimal.blocks.ways)
    composed = [each for each in optimal.finalists if each.question is optimal.question]
    assert composed and all(set(each.chosen.blocks) <= known for each in composed)
    explained = explanation(optimal, optimal.decide({}).plan, tokens=16)
    assert explained.seconds == pytest.approx(optimal.finalists[0].counted)


@pytest.mark.nightly
def test_where_prompts_are_is_a_rule_of_one_memory_too():
    optimal = Optimal(asked("Llama-3.2-1B", "m4max-128gb", layers=4, batch=4, batches=4), REQUEST)
    chosen = optimal.finalists[0].chosen
    assert "prompts are computed on metal, decode steps elsewhere too" in {
        rule.text for rule in rules(optimal.question.frame, chosen)
    }
    label = optimal.decide({}).plan.label
    assert "(prompts metal)" in label and "<-" not in label


def test_one_side_that_has_everything_is_explained_too():
    optimal = Optimal(asked("opt-125m", "epyc9554-cpu"), STEP)
    found = explanation(optimal, optimal.decide({}).plan, tokens=1)
    assert found.divided == pytest.approx(found.seconds) and found.full == ()
    (row,) = found.undone
    assert row.rule == "cpu computes everything" and row.label is None
    assert [part.name for part in found.phases[0].lanes] == ["cpu"]
