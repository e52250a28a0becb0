"""The hint that a plan for the fastest decode step has slow prompts."""

from dataclasses import replace

import pytest
from questions import asked

from helmsman.planner.explain import explain
from helmsman.planner.strategies.optimal.compositions import Aim
from helmsman.planner.strategies.optimal.strategy import Optimal

STEP, REQUEST = Aim("decode step", {"decode": 1.0}), Aim("request", {"prefill": 1.0, "decode": 127.0})


def hints(decision):
    return [line for line in explain(decision).splitlines() if line.startswith("hint")]


def test_a_plan_with_slow_prompts_has_a_hint_that_helps():
    """Prompts of 1,000 tokens take the host, which has some of the work, many times as long as the accelerator."""
    question = asked("opt-125m", layers=6, vram=120 * 10**6, prompt_tokens=1000, context=1128)
    slow, fast = Optimal(question, STEP).decide({"objective": "latency"}), Optimal(question, REQUEST).decide({})
    assert hints(slow) and "--objective throughput" in hints(slow)[0]
    assert not hints(fast)
    assert fast.plan.predicted.ttft.seconds.mid < slow.plan.predicted.ttft.seconds.mid / 4


@pytest.mark.parametrize(
    ("options", "gap", "hinted"),
    [
        ({"objective": "latency"}, 9.0, True),
        ({"objective": "latency", "slo": "tpot=1s"}, 9.0, True),
        ({"objective": "latency", "slo": "ttft=1s"}, 9.0, False),
        ({"objective": "latency"}, 2.0, False),
        ({"objective": "throughput"}, 9.0, False),
    ],
)
def test_the_hint_is_for_those_who_did_not_ask_about_prompts(options, gap, hinted):
    decision = Optimal(asked("opt-125m"), STEP).decide(options)
    prefill = decision.plan.predicted.prefill.model_copy(update={"gap": gap})
    predicted = decision.plan.predicted.model_copy(update={"prefill": prefill})
    decision = replace(decision, plan=decision.plan.model_copy(update={"predicted": predicted}))
    assert bool(hints(decision)) == hinted
