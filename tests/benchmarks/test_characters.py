"""Work against cache across architectures (Fig 3): closed forms for OPT-30B, and what GQA saves."""

import pytest
from benchmarks.characters import character, characterise

from helmsman.hwdb.load_model import load_model
from helmsman.schemas.described import reshaped


def test_opt_30b_by_hand():
    """48 layers of 7168: 2 products of 12 h^2 per token, scores and values over 543 tokens, and the output layer."""
    found = character(load_model("opt-30b"), 50, 512, 32)
    assert found.kv_bytes == 48 * 2 * 50 * 543 * 7168 * 2
    products = 50 * 48 * (24 * 7168**2 + 4 * 543 * 7168) + 50 * 2 * 50272 * 7168
    assert found.flops == pytest.approx(products, rel=0.01)


def test_cache_and_work_grow_with_the_batch():
    found = list(characterise([load_model("opt-30b")], lengths=[(512, 32)]))
    assert [one.batch for one in found] == [10, 25, 50]
    assert [one.kv_bytes * 50 // one.batch for one in found] == [found[2].kv_bytes] * 3
    assert found[2].flops == pytest.approx(5 * found[0].flops)


def test_grouped_queries_divide_the_cache_not_the_work():
    """MQA and GQA need nothing but the model (PARK-70)."""
    model = load_model("Meta-Llama-3-8B")
    every = reshaped(model, kv_heads=model.dense.heads)
    few, many = character(model, 10, 512, 32), character(every, 10, 512, 32)
    assert many.kv_bytes == 4 * few.kv_bytes
    assert many.flops < 1.3 * few.flops


def test_lengths_beyond_the_model_are_left_out():
    assert not list(characterise([load_model("opt-30b")], lengths=[(4096, 32)]))
