"""What compositions add up to is never more than they take: the proof of `optimal` rests on that."""

import random
from dataclasses import replace

import numpy as np
import pytest
from daily import one_in
from plans import figure
from questions import asked

from helmsman.planner.cost.model import CostModel
from helmsman.planner.machine import roles
from helmsman.planner.memory.usage import memory_use
from helmsman.planner.strategies.optimal.configurations.block_ways import on_host
from helmsman.planner.strategies.optimal.configurations.rules import Assignment, place
from helmsman.planner.strategies.optimal.configurations.stored_blocks import fullest
from helmsman.planner.strategies.optimal.pricing.interplay import Interplay
from helmsman.planner.strategies.optimal.search.compositions import Aim, Compositions
from helmsman.planner.strategies.optimal.search.finalist import predicted
from helmsman.planner.strategies.optimal.search.tracks import Tracks
from helmsman.planner.strategies.optimal.strategy import Optimal
from helmsman.schemas.hardware import JointProducts

STEP, PROMPT = Aim("decode step", {"decode": 1.0}), Aim("prompt pass", {"prefill": 1.0})


@pytest.mark.parametrize(
    ("model", "machine", "aim", "work"),
    one_in(
        2,
        [
            pytest.param("opt-1.3b", "gh200-96gb", STEP, {}, marks=pytest.mark.nightly),
            pytest.param("Qwen3-0.6B", "a10g-g5.4xlarge", STEP, {"batch": 2}, marks=pytest.mark.nightly),
            ("opt-125m", "a10-xeon6342", STEP, {"batch": 8}),
            ("opt-125m", "rtx3090x2-5950x", STEP, {}),
            ("Llama-2-13b-hf", "rtx3090x2-threadripper3960x", STEP, {"layers": 2}),
            pytest.param(
                "Llama-3.3-70B-Instruct", "a40x2-2xeon6330", STEP, {"layers": 1, "batch": 2}, marks=pytest.mark.nightly
            ),
            ("opt-125m", "m1-16gb", STEP, {}),
            ("opt-125m", "rtx4060-laptop", PROMPT, {"batch": 4}),
            ("opt-125m", "gh200-96gb", PROMPT, {"batch": 16, "batches": 4, "layers": 1}),
            ("opt-125m", "a100x2-dgx", STEP, {"batch": 16, "batches": 4, "layers": 1}),
            ("opt-125m", "rtx4060-laptop", STEP, {"batch": 16, "batches": 4, "layers": 2}),
        ],
    ),
)
@pytest.mark.parametrize("draws", [6, pytest.param(25, marks=pytest.mark.nightly)])
def test_no_plan_is_faster_than_its_blocks_add_up_to(model, machine, aim, work, draws):
    assert compared_with_blocks(Optimal(asked(model, machine, **work), aim), aim, draws) > draws // 5


@pytest.mark.parametrize(("model", "batches"), [("opt-125m", 1), ("Qwen3-0.6B", 2)])
def test_no_prompt_is_faster_than_its_blocks_where_devices_slow_each_others_arithmetic(model, batches):
    question = asked(model, "m1-16gb", batch=4, batches=batches, layers=4)
    hardware = question.frame.roles.hardware
    memories = tuple(each.model_copy(update={"joint_compute": figure(0.5)}) for each in hardware.memories)
    slower = roles(hardware.model_copy(update={"memories": memories}))
    optimal = Optimal(replace(question, frame=replace(question.frame, roles=slower)), PROMPT)
    assert CostModel(optimal.question.frame.roles.hardware).slowed() is not None
    assert compared_with_blocks(optimal, PROMPT, 12) > 2


@pytest.mark.parametrize("aim", [STEP, PROMPT])
def test_no_plan_is_faster_than_its_blocks_where_products_draw_more_than_their_bytes(aim):
    question = asked("opt-125m", "m1-16gb", batch=2, layers=4)
    hardware = question.frame.roles.hardware
    products = (JointProducts(format="f16", share=figure(0.6)),)
    memories = tuple(each.model_copy(update={"joint_products": products}) for each in hardware.memories)
    drawing = roles(hardware.model_copy(update={"memories": memories}))
    assert (
        compared_with_blocks(Optimal(replace(question, frame=replace(question.frame, roles=drawing)), aim), aim, 12) > 2
    )


def compared_with_blocks(optimal, aim, draws):
    """Hold plans of blocks in one to three ways at random, in any order, predicted task by task, against what their
    blocks add up to; how many fit."""
    chance = random.Random(7)
    blocks, compared = optimal.blocks, 0
    for _ in range(draws):
        ways = chance.sample(range(len(blocks.ways)), chance.randint(1, 3))
        rows = [chance.choice(ways) for _ in range(blocks.count)]
        ends = chance.choice(blocks.arrangements)
        chosen = Assignment(tuple(blocks.ways[row] for row in rows), *ends, blocks.shares)
        found = predicted(optimal.question, chosen, aim)
        if found is not None:
            room = Compositions(blocks).room(ends, aim).room
            lanes = room.ends + sum(blocks.exact(row) for row in rows)
            assert lanes.max() <= found.seconds * (1 + 1e-9), (chosen, blocks.lanes[int(np.argmax(lanes))])
            compared += 1
    return compared


@pytest.mark.parametrize("machine", ["gh200-96gb", "a10g-g5.4xlarge", "rtx4070-7600"])
def test_what_may_run_at_once_counts_for_no_more_than_the_time_it_takes(machine):
    """Whatever pair of an operation and a transfer: their speeds beside each other, as they count, are at most one."""
    basis = Optimal(asked("Qwen3-0.6B", machine), STEP).blocks.members[0].bases["decode"]
    play = basis.interplays[basis.link]
    assert isinstance(play, Interplay) and play.working and play.coming
    for share in (0.05, 0.3, 0.7, 1.0):
        for task in play.working:
            own, (work, link) = play.kept(task, share), play._speeds(task)
            for transfer in play.coming:
                place = play._place[transfer.bytes]
                counted = play.counted(transfer, share) / play.costs.price(transfer).mid
                assert own * work[place] + share * counted * link[place] <= 1 + 1e-9
        assert play.counted(play._kinds[0], share) == pytest.approx(play.costs.price(play._kinds[0]).mid)


def test_what_accelerators_have_no_room_for_is_in_host_memory():
    """No plan that fits keeps less there than what links are priced for, which is most of the model here."""
    optimal, chance = Optimal(asked("opt-125m", "a100-memory-mode", vram=90 * 10**6, batch=2), STEP), random.Random(3)
    question, blocks = optimal.question, optimal.blocks

    def kept(chosen):
        return {use.memory: use.weights + use.kv for use in memory_use(place(question.frame, chosen))}["dram"]

    least, compared = kept(fullest(question.frame)), 0
    for _ in range(40):
        ways = chance.sample(range(len(blocks.ways)), 2)
        rows = [chance.choice(ways) for _ in range(blocks.count)]
        chosen = Assignment(tuple(blocks.ways[row] for row in rows), *chance.choice(blocks.arrangements), blocks.shares)
        if question.fits(place(question.frame, chosen)):
            assert least <= kept(chosen)
            compared += 1
    everything = kept(Assignment((on_host(question.frame.model),) * blocks.count, "host", "host", {}))
    assert compared > 5 and least > everything / 2


def test_waiting_that_is_taken_to_be_lost_is_not_part_of_what_compositions_take():
    """They ask more evenly for the link, and add up to what their blocks take."""
    optimal = Optimal(asked("Qwen3-0.6B", "rtx4060-laptop", vram=300 * 10**6), STEP)
    blocks, waiting, waited = optimal.blocks, Tracks(optimal.blocks).waiting, []
    for lost in (0.0, 0.3):
        space = Compositions(blocks, lost=lost * waiting)
        ends, best = space.search(STEP).best[0]
        rows = {space.name(way): count for way, count in best.counts}
        lanes = space.room(ends, STEP).room.ends + sum(count * blocks.exact(row) for row, count in rows.items())
        assert best.seconds == pytest.approx(lanes.max())
        waited.append(sum(count * waiting[row].max() for row, count in rows.items()))
    assert waited[1] < waited[0]
