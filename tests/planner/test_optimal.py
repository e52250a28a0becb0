"""`optimal`: against trying everything, against other strategies, and what its certificate says."""

import random
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from pairs import least_of_pairs
from plans import figure, make_hardware
from questions import asked, simulated
from shapes import small_model
from splits import make_frame

from helmsman.planner.checks.accept import accept
from helmsman.planner.cost.model import CostModel, CostOptions
from helmsman.planner.decision import Decision
from helmsman.planner.machine import roles
from helmsman.planner.memory.usage import memory_use
from helmsman.planner.strategies.hetegen import HeteGen
from helmsman.planner.strategies.layer_rules import SplitQuestion
from helmsman.planner.strategies.layer_search import decide as decide_split
from helmsman.planner.strategies.layer_split import LayerSplit
from helmsman.planner.strategies.optimal.configurations.block_ways import BlockWay, block_ways, on_accelerator, on_host
from helmsman.planner.strategies.optimal.configurations.rules import Assignment, place
from helmsman.planner.strategies.optimal.pricing.blocks import Blocks
from helmsman.planner.strategies.optimal.search.compositions import Aim
from helmsman.planner.strategies.optimal.search.finalist import predicted
from helmsman.planner.strategies.optimal.strategy import Optimal, _prompts_away
from helmsman.planner.strategies.streaming.question import Question
from helmsman.planner.strategies.twinpilots import TwinPilots
from helmsman.schemas.errors import InfeasibleError
from helmsman.schemas.hardware import Compute
from helmsman.schemas.workload import Workload

STEP, PROMPT = Aim("decode step", {"decode": 1.0}), Aim("prompt pass", {"prefill": 1.0, "decode": 1e-3})
REQUEST, FEW = (Aim("request", {"prefill": 1.0, "decode": steps}) for steps in (127.0, 1.0))
MB = 10**6


@cache
def half_on_the_accelerator() -> tuple[Question, Decision]:
    """The fastest step of a model of which half fits the accelerator."""
    question = asked("Qwen3-0.6B", vram=500 * MB)
    return question, Optimal(question, STEP).decide({})


def least_by_trying(optimal: Optimal, seed: int, count: int = 3) -> float:
    """Of two blocks: the least predicted seconds over every pair of some ways and every arrangement of the ends."""
    ways = [on_host(optimal.question.frame.model), on_accelerator(optimal.question.frame.model)]
    ways += random.Random(seed).sample(optimal.blocks.ways, count)
    return least_of_pairs(optimal, ways)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (1, 2))])
def test_no_pair_of_blocks_beats_the_bound(seed):
    """Two blocks in every way of a sample, predicted task by task."""
    vram = (90, 140, 250)[seed] * MB
    optimal = Optimal(asked("opt-125m", layers=2, vram=vram, batch=1 + 3 * seed), STEP)
    tried, decision = least_by_trying(optimal, seed), optimal.decide({})
    assert optimal.bound <= tried * (1 + 1e-9)
    assert decision.seconds <= tried * (1 + decision.plan.certificate.gap + 1e-9)
    assert decision.plan.certificate.lower_bound <= decision.seconds


@pytest.mark.parametrize(
    ("vram", "batch", "aim"),
    [
        (100, 1, STEP),
        pytest.param(220, 8, STEP, marks=pytest.mark.nightly),
        pytest.param(220, 8, REQUEST, marks=pytest.mark.nightly),
        (400, 1, REQUEST),
    ],
    ids=str,
)
def test_never_worse_than_a_layer_split(vram, batch, aim):
    question = asked("opt-125m", vram=vram * MB, batch=batch)
    decision = Optimal(question, aim).decide({})
    frame = question.frame
    objective = "latency" if aim is STEP else "throughput"
    costs = CostModel(frame.roles.hardware, CostOptions())
    split = LayerSplit(frame.model, frame.roles, frame.workload, SplitQuestion(objective=objective), costs)
    assert decision.seconds <= decide_split(split, {}).seconds * (1 + 1e-9)


def test_beats_what_streams_whole_blocks_beside_the_host():
    question, ours = half_on_the_accelerator()
    theirs = TwinPilots(question).decide({})
    assert ours.seconds < 0.98 * theirs.seconds


@pytest.mark.parametrize(
    ("machine", "prompt", "aim"),
    [
        ("p40-xeon-e5-2696v3", 1000, PROMPT),
        pytest.param("rtx4070tis-7800x3d", 256, FEW, marks=pytest.mark.nightly),
    ],
    ids=str,
)
def test_prompts_have_shares_of_their_own(machine, prompt, aim):
    """HeteGen divides the rows of prompts otherwise than those of decode steps: neither faster, nor below the bound."""
    question = asked("Qwen3-0.6B", machine, layers=4, vram=400 * MB, prompt_tokens=prompt, context=prompt + 128)
    optimal, theirs = Optimal(question, aim), HeteGen(question).decide({}).plan.predicted
    seconds = {"prefill": theirs.prefill.seconds.mid, "decode": theirs.decode.seconds.mid}
    took = sum(weight * seconds[phase] for phase, weight in aim.weights.items())
    ours = optimal.decide({})
    assert optimal.bound <= min(took, ours.seconds) and ours.seconds <= took
    assert any(way.prompt == "divided" for way in optimal.finalists[0].chosen.blocks)


def test_the_simulator_takes_as_long_as_the_plan_says():
    question, decision = half_on_the_accelerator()
    plan = accept(decision.plan)
    assert simulated(question, plan) == pytest.approx(plan.predicted.decode.seconds.mid, rel=1e-3)
    assert plan.predicted.decode.seconds.mid == pytest.approx(plan.certificate.seconds)


def test_what_fits_the_accelerator_is_there_and_proven():
    decision = Optimal(asked("Qwen3-0.6B", "a10-xeon6342"), STEP).decide({})
    assert decision.plan.label == "optimal 28 cuda"
    assert decision.plan.certificate.gap <= 0.01


def test_one_memory_needs_nothing_to_come():
    plan = accept(Optimal(asked("Qwen3-0.6B", "m1-16gb"), STEP).decide({}).plan)
    assert plan.schedule.prefetch == 0 and {use.memory for use in plan.predicted.memory if use.used} == {"unified"}


def test_one_memory_has_prompts_on_the_accelerator_whoever_does_the_steps():
    """A plan found for steps alone took less than the bound for requests, whose ways had prompts where steps are."""
    question = asked("Llama-3.2-1B", "m4max-128gb", layers=2, batch=4, batches=2)
    steps, whole = Optimal(question, STEP), Optimal(question, REQUEST)
    best = steps.finalists[0].chosen
    shared = next(way for way in steps.blocks.ways if set(way.parts) == {"host", "accelerator"} and not way.half_comes)
    moved = replace(best, blocks=tuple(_prompts_away([shared] * len(best.blocks))))
    assert {way.prompt for way in moved.blocks} == {"accelerator"}
    seconds = predicted(question, moved, REQUEST).counted
    assert max(whole.bound, whole.decide({}).seconds) <= seconds * (1 + 1e-9)


def test_a_machine_without_accelerator():
    decision = Optimal(asked("Qwen3-0.6B", "ryzen7950x-cpu"), STEP).decide({})
    assert decision.plan.label == "optimal 28 cpu" and decision.plan.certificate.gap == 0.0


def test_limits_are_kept():
    question = asked("opt-125m", layers=3, vram=90 * MB)
    free = Optimal(question, STEP).decide({}).plan.predicted
    limit = 0.7 * free.ttft.seconds.mid
    held = Optimal(question, Aim("decode step", {"decode": 1.0}, {"prefill": limit})).decide({}).plan.predicted
    assert held.ttft.seconds.mid <= limit
    assert held.decode.seconds.mid >= free.decode.seconds.mid * (1 - 1e-9)


def test_limits_that_cannot_be_kept_name_the_smallest_change():
    aim = Aim("decode step", {"decode": 1.0}, {"decode": 1e-6})
    question = asked("opt-125m", layers=3, vram=70 * MB)
    with pytest.raises(InfeasibleError, match="no plan reaches tpot of 1 us") as caught:
        Optimal(question, aim).decide({})
    name, _, value = caught.value.remedy.removeprefix("the smallest change: ").partition("=")
    limit = float(value.removesuffix("s"))
    assert name == "tpot"
    assert Optimal(question, Aim("decode step", {"decode": 1.0}, {"decode": limit})).decide({}).seconds <= limit


def test_what_fits_nowhere_says_what_is_missing():
    question = asked("opt-125m")
    hardware = question.frame.roles.hardware
    memories = tuple(memory.model_copy(update={"available": 10 * MB}) for memory in hardware.memories)
    small = roles(hardware.model_copy(update={"memories": memories}))
    with pytest.raises(InfeasibleError, match="optimal does not fit") as caught:
        Optimal(replace(question, frame=replace(question.frame, roles=small)), STEP).decide({})
    assert "more in RAM" in caught.value.remedy and caught.value.lacks


def test_ways_are_each_there_once():
    model = asked("Qwen3-8B").frame.model
    ways = block_ways(model, prompts=True)
    assert len(set(ways)) == len(ways) and set(block_ways(model)) < set(ways)
    assert {on_host(model), on_accelerator(model), on_accelerator(model, False, "host")} <= set(ways)


def test_prompts_go_to_no_accelerator_of_the_host_s_own_cores():
    """All cores decode fastest, and the loopback accelerator, which is one of them, would be faster with prompts."""
    machine = make_hardware(vram=3_000_000)
    twice = (Compute(phase="decode", flops=figure(2e11)),)
    slow = tuple(
        device.model_copy(update={"compute": (Compute(phase="prefill", flops=figure(1e9)), *twice)})
        if device.name == "cpu-all"
        else device
        for device in machine.devices
    )
    work = Workload(prompt_tokens=512, output_tokens=4, context=516)
    frame = make_frame(small_model("llama"), work, machine.model_copy(update={"devices": slow}))
    plan = Optimal(Question(frame, CostOptions()), STEP).decide({}).plan
    assert {rule.device for rule in plan.compute} == {"cpu-all"}
    accept(plan)


def test_sums_of_parts_are_at_most_what_a_way_asks_for():
    """The relaxation's prices are optimistic, so that its bound holds for ways that were never lowered."""
    question = asked("Qwen3-0.6B", vram=500 * MB)
    blocks = Optimal(question, REQUEST).blocks
    for row in random.Random(1).sample(range(len(blocks.ways)), 25):
        assert (blocks.exact(row) >= blocks.summed.lanes[row] * (1 - 1e-9)).all()


@pytest.mark.parametrize(("machine", "vram"), [("rtx4060-laptop", 500 * MB), ("m4max-128gb", None)])
def test_bytes_of_blocks_are_those_of_the_plan(machine, vram):
    question = asked("opt-125m", machine, layers=4, vram=vram, batch=4)
    blocks, host = Optimal(question, REQUEST).blocks, on_host(question.frame.model)
    without = kept_of(question, (host,) * 4, blocks)
    base = blocks.summed.kept[blocks.ways.index(host)]
    for row in random.Random(2).sample(range(len(blocks.ways)), 40):
        with_it = kept_of(question, (blocks.ways[row], host, host, host), blocks)
        assert with_it - without == pytest.approx(blocks.summed.kept[row] - base)


def kept_of(question: Question, ways: tuple[BlockWay, ...], blocks: Blocks) -> np.ndarray:
    """Bytes that the host's and the accelerator's memory keep, which may be one."""
    placed = place(question.frame, Assignment(ways, "host", "host", blocks.shares))
    kept = {use.memory: use.weights + use.kv + use.pinned for use in memory_use(placed)}
    return np.array([kept[name] for name in ("dram", "vram", "unified") if name in kept], dtype=float)
