"""Labels of compositions: each is shown once, and told from others of the same label."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from questions import asked

from helmsman.planner.strategies.optimal.configurations.block_ways import on_accelerator, on_host
from helmsman.planner.strategies.optimal.configurations.label import contents, label, told_apart
from helmsman.planner.strategies.optimal.configurations.rules import Assignment
from helmsman.planner.strategies.optimal.search.compositions import Aim
from helmsman.planner.strategies.optimal.search.finalist import Finalist
from helmsman.planner.strategies.optimal.strategy import Optimal

STEP = Aim("decode step", {"decode": 1.0})
PROMPT = Aim("prompt pass", {"prefill": 1.0, "decode": 1e-3}, tie="decode")
QUESTION = asked("opt-125m", layers=4)
FRAME = QUESTION.frame
HOST, HERE, COMING = on_host(FRAME.model), on_accelerator(FRAME.model), on_accelerator(FRAME.model, False)
HALF = replace(HERE, resident=(True, True, True, *COMING.resident[3:]))
FIRST = Assignment((HOST, HOST, COMING, HERE), "host", "accelerator", {})


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"embedding": "accelerator"}, "embedding on the accelerator"),
        ({"output": "host"}, "output on the host"),
        ({"blocks": (HOST, HOST, HALF, HERE)}, "1 more cuda<-cpu, o up down coming"),
        ({"output": "host", "embedding": "accelerator"}, "embedding on the accelerator, output on the host"),
    ],
)
def test_what_tells_equal_labels_apart(change, difference):
    other = replace(FIRST, **change)
    assert label(FRAME, other) == label(FRAME, FIRST)
    texts = list(told_apart([(FRAME, FIRST), (FRAME, other)]))
    assert texts == [label(FRAME, FIRST), f"{label(FRAME, FIRST)} ({difference})"]


def test_the_order_of_blocks_tells_nothing_apart():
    assert contents(FRAME, FIRST) == contents(FRAME, replace(FIRST, blocks=(HERE, HOST, COMING, HOST)))
    assert contents(FRAME, FIRST) != contents(FRAME, replace(FIRST, output="host"))


def test_a_composition_is_shown_once_in_its_best_order():
    optimal = Optimal(QUESTION, STEP)
    orders = [replace(FIRST, blocks=blocks) for blocks in ((HERE, HOST, COMING, HOST), FIRST.blocks)]
    found = [
        Finalist(QUESTION, each, seconds, seconds) for seconds, each in enumerate([still(), *orders, still()], start=1)
    ]
    vars(optimal)["finalists"] = tuple(found)
    assert list(optimal._runner_ups(found[0])) == [(label(FRAME, orders[0]), 2)]


def test_what_breaks_ties_never_puts_a_slower_plan_first():
    """A plan whose steps were 15 s shorter was put before one whose prompt was 5 ms shorter, and printed beside it."""
    optimal = Optimal(QUESTION, PROMPT)
    slower, faster = Finalist(QUESTION, still(), 1.01, 1.005), Finalist(QUESTION, FIRST, 1.02, 1.0)
    alike = Finalist(QUESTION, replace(FIRST, output="host"), 1.03, 1.0 - 1e-12)
    vars(optimal)["search"] = SimpleNamespace(answer=((slower, alike, faster), 0.9))
    assert optimal.finalists == (faster, alike, slower)
    assert [seconds for _, seconds in optimal._runner_ups(faster)] == [1.0 - 1e-12, 1.005]


def still() -> Assignment:
    return replace(FIRST, blocks=(HOST, HOST, HERE, HERE))


@pytest.mark.nightly
def test_no_two_runner_ups_read_alike():
    """Two of them differ in where the output is, and in which weights come."""
    decision = Optimal(asked("Llama-2-13b-hf", "rtx3060-5600x", batch=8), STEP).decide({})
    texts = [decision.plan.label, *(text for text, _ in decision.runner_ups)]
    assert len(texts) > 2 and len(set(texts)) == len(texts)
    seconds = [decision.seconds, *(each for _, each in decision.runner_ups)]
    assert seconds == sorted(seconds)
