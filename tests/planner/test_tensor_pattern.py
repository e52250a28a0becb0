"""Patterns over names of tensors: as `re` finds them, in a time that no pattern makes long."""

import re
import time
from dataclasses import replace

import pytest
from together import together

from helmsman.planner.settings.tensor_pattern import PatternError, tensor_pattern

NAMES = ("blk.3.attn_q.weight", "blk.12.ffn_up.weight", "output.weight", "token_embd.weight",
         "blk.0.ffn_gate_exps.weight", "blk.0.ffn_down.bias", "")  # fmt: skip


@together(
    "pattern",
    [
        r"blk\.[0-9]+\.ffn_.*_exps\.", r"blk\.(1|2|3)\.ffn_(up|gate)", r"\.ffn_(up|down)\.weight", r"blk\.\d*[02468]\.",
        "^out", "weight$", r"blk\.\d{2,}\.", r"blk\.\d{1,2}\.", r"blk\.\d{1}\.a", "[^a-z._]", "ffn_(?:up|down)", "x|q",
        "(a|){3}t", "a+?t", "()*k", "(b?){3}lk", "^$", "(o|u|t|p)+t", "[]b]lk", r"[\d.]+f", "(a{2}){0,2}z",
    ],
)  # fmt: skip
def test_patterns_are_found_where_re_finds_them(pattern: str) -> None:
    written = tensor_pattern(pattern)
    expected = [re.search(pattern, name) is not None for name in NAMES]
    assert [written.is_in(name) for name in NAMES] == expected
    assert [replace(written, simple=None).is_in(name) for name in NAMES] == expected


@pytest.mark.parametrize(
    "pattern",
    ["(([a-z0-9._]*)*)*#", "(.|.)" * 30 + "#", "(a|a)" * 30 + "#", ".*" * 8 + "#", "((((a*)*)*)*)*#", "(.{0,99}){9}#"],
)
def test_no_pattern_takes_long(pattern: str) -> None:
    """`re` takes longer than the universe has for most of these."""
    begin = time.process_time()
    assert not tensor_pattern(pattern).is_in("a" * 30)
    assert time.process_time() - begin < 5


@together(
    "pattern",
    [
        "(",
        "a)",
        "[",
        "(?=a)",
        r"\b",
        r"(a)\1",
        "*",
        "{",
        "a{1001}",
        "(?P<x>a)",
        "a{9,1}",
        "\\",
        "a*" * 9,
        "a**",
        "a++",
        "[z-a]",
        "(" * 21 + "a" + ")" * 21,
    ],
)
def test_what_is_not_understood_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        tensor_pattern(pattern)
