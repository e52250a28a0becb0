"""A plan in one sentence."""

import re

import pytest

import helmsman
from helmsman.planner.words.plan_words import in_words

LENGTHS = {"prompt_tokens": 64, "output_tokens": 16}


def words(model: str, machine: str, **question: object) -> tuple[str, helmsman.Plan]:
    asked = {"model": model, "hardware": machine, "strategy": "layer-split", **LENGTHS, **question}
    plan = helmsman.plan(asked).plan
    return in_words(plan), plan


def test_shares_of_weights_and_caches_are_those_of_the_memories() -> None:
    said, plan = words("Qwen3-8B", "rtx4060-laptop")
    weights = {use.memory: use.weights for use in plan.predicted.memory}
    share = weights["vram"] / sum(weights.values())
    assert 0.1 < share < 0.9
    found = dict(re.findall(r"(on the GPU|in RAM)|(\d+) %", said)) and re.search(r"(\d+) % on the GPU", said)
    other = re.search(r"(\d+) % of the weights on the GPU", said)
    assert round(100 * share) == int((other or found)[1])
    rate = plan.predicted.tokens_per_second
    assert f"{rate.mid:.3g} tokens/s ({rate.low:.3g}-{rate.high:.3g})" in said
    assert "limited by RAM bandwidth" in said


def test_the_format_that_would_fit_is_one_that_does() -> None:
    said, _ = words("Qwen3-8B", "rtx4060-laptop")
    fmt = re.search(r"with (\w+) all would fit on the GPU: [\d.]+ tokens/s$", said)[1]
    again, _ = words("Qwen3-8B", "rtx4060-laptop", format=fmt)
    assert again.startswith("all weights on the GPU; KV on the GPU; ") and "would fit" not in again
    assert "limited by the GPU's memory bandwidth" in again


def test_no_format_is_offered_where_a_table_alone_is_elsewhere() -> None:
    """llama.cpp looks embeddings up in RAM, whatever the format."""
    said, plan = words("Qwen3-8B", "rtx4090-13900k", strategy="llama-cpp")
    assert plan.label == "llama-cpp -ngl 37" and " in RAM; KV on the GPU; " in said and "would fit" not in said


@pytest.mark.parametrize(
    ("model", "machine", "question", "says"),
    [
        ("Llama-3.1-8B", "epyc9554-cpu", {}, "all weights in RAM; KV in RAM; "),
        ("Qwen3-8B", "m4max-128gb", {}, "all weights in the shared memory; "),
        ("Qwen3-0.6B", "rtx4060-laptop", {"strategy": "cpu-only"}, "all weights in RAM; KV in RAM; "),
        ("opt-30b", "a100-optane", {"strategy": "weights-on-host", "options": {"home": "optane"}}, "weights in Optane"),
    ],
)
def test_places_have_the_words_of_people(model: str, machine: str, question: dict[str, object], says: str) -> None:
    said, _ = words(model, machine, **question)
    assert (says in said and "all would fit" not in said) or "Optane" in said
    assert not re.search(r"\b(dram|vram|cuda|h2d)\b", said.replace("optane-h2d", ""))


def test_copies_of_weights_are_said_to_be_counted() -> None:
    options = {"percent": "0,0,100", "inclusive": True}
    said, plan = words("Llama-2-7b-hf", "rtx3090-5950x", strategy="flexgen", options=options)
    assert any(rule.replicas for rule in plan.residence)
    assert "copies counted; KV " in said and "would fit" not in said


def test_stages_that_take_turns_are_called_that() -> None:
    question = {"strategy": "optimal", "output_tokens": 4}
    said, _ = words("Llama-3.1-70B", "h100x2-hgx", **question)
    assert re.search(r"; GPU cuda1 and GPU cuda take turns, 51 % and 49 % of the time", said)
    assert "limited by" not in said


@pytest.mark.parametrize(("strategy", "machine"), [("weights-on-host", "rtx3090-5950x"), ("flexgen", "rtx3090-5950x")])
def test_what_streams_by_definition_is_offered_nothing_else(strategy: str, machine: str) -> None:
    said, _ = words("Llama-2-7b-hf", machine, strategy=strategy)
    assert "limited by the link" not in said and "would fit" not in said
