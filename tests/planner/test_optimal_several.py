"""`optimal` on several accelerators: against one of them, against trying everything, and what bounds it."""

import random
from dataclasses import replace
from itertools import pairwise, product

import pytest
from pairs import least_of_pairs
from questions import simulated

from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.planner.checks.accept import accept
from helmsman.planner.cost.model import CostOptions
from helmsman.planner.machine import roles
from helmsman.planner.memory.usage import memory_use
from helmsman.planner.strategies.optimal.configurations.block_ways import on_accelerator, on_host
from helmsman.planner.strategies.optimal.configurations.resident import resident
from helmsman.planner.strategies.optimal.configurations.rules import Assignment, place
from helmsman.planner.strategies.optimal.order.order import arranged_each, lined_up, seconds
from helmsman.planner.strategies.optimal.order.pace import HOST, Track, paced
from helmsman.planner.strategies.optimal.search.compositions import Aim, Compositions
from helmsman.planner.strategies.optimal.search.finalist import predicted
from helmsman.planner.strategies.optimal.search.symmetry import SymmetricWays
from helmsman.planner.strategies.optimal.strategy import Optimal
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.planner.strategies.streaming.question import Question
from helmsman.schemas.errors import InfeasibleError
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.workload import Workload

STEP = Aim("decode step", {"decode": 1.0})
MB = 10**6
BRIDGED, BARE, SWITCHED = "rtx3090x2-threadripper3960x", "rtx3090x2-5950x", "a100x2-dgx"


def machine(name: str = BARE, vram: int | None = None, dram: int | None = None, slower: float = 1.0) -> Hardware:
    """A machine with so many bytes on each GPU and in host memory; the second GPU reads `slower` times slower."""
    found = load_hardware(name, None)
    room = {"vram": vram, "vram1": vram, "dram": dram}
    memories = tuple(
        each if room.get(each.name) is None else each.model_copy(update={"available": room[each.name]})
        for each in found.memories
    )
    rates = {"value", "p10", "p90"}
    devices = tuple(
        each
        if each.name != "cuda1"
        else each.model_copy(
            update={"read": each.read.model_copy(update={end: getattr(each.read, end) / slower for end in rates})}
        )
        for each in found.devices
    )
    return found.model_copy(update={"memories": memories, "devices": devices})


def asked(hardware: Hardware, model: str = "opt-125m", layers: int | None = None, **work: int) -> Question:
    found = load_model(model)
    if layers is not None:
        found = found.with_layers(layers)
    workload = Workload(**{"prompt_tokens": 64, "output_tokens": 64, "context": 128, **work})
    return Question(Frame(found, roles(hardware), workload, fused=True), CostOptions())


def of_one(question: Question) -> Question:
    """The same question for the first accelerator alone."""
    frame = question.frame
    return replace(question, frame=replace(frame, roles=replace(frame.roles, others=())))


@pytest.mark.parametrize(
    ("name", "vram", "slower", "work"),
    [
        (BARE, 90, 1.0, {}),
        (BRIDGED, 110, 2.0, {}),
        pytest.param(SWITCHED, 90, 1.0, {"batch": 4}, marks=pytest.mark.nightly),
    ],
)
def test_two_are_never_worse_than_one_and_never_beat_the_bound(name, vram, slower, work):
    question = asked(machine(name, vram * MB, slower=slower), layers=4, **work)
    both, one = Optimal(question, STEP).decide({}), Optimal(of_one(question), STEP).decide({})
    assert both.seconds <= one.seconds * (1 + 1e-9)
    proof = accept(both.plan).certificate
    assert proof.lower_bound <= both.seconds <= proof.lower_bound * (1 + proof.gap + 1e-9)
    assert simulated(question, both.plan) == pytest.approx(both.plan.predicted.decode.seconds.mid, rel=1e-6)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_no_pair_of_blocks_beats_the_bound(seed):
    """Two blocks on either accelerator in every way of a sample, predicted task by task."""
    optimal = Optimal(asked(machine(vram=(60, 110)[seed] * MB), layers=2), STEP)
    model = optimal.question.frame.model
    plain = [on_host(model), *(replace(on_accelerator(model), on=on) for on in (0, 1))]
    ways = [*plain, *random.Random(seed).sample(optimal.blocks.ways, 2)]
    least = least_of_pairs(optimal, ways, (("host", "host"), ("host", 1)))
    decision = optimal.decide({})
    assert optimal.bound <= least * (1 + 1e-9)
    assert decision.seconds <= least * (1 + decision.plan.certificate.gap + 1e-9)


@pytest.mark.parametrize("name", [BARE, SWITCHED])
def test_the_mean_of_all_turns_asks_for_no_more(name):
    """Whatever is composed of both accelerators' ways takes at least what its ways together take on the pooled one."""
    blocks = Optimal(asked(machine(name, 90 * MB)), STEP).blocks
    together, chance = SymmetricWays(blocks, "together"), random.Random(3)
    pooled = {
        (way.parts, way.resident, way.cache, way.prompt, way.paced): row
        for row, way in enumerate(blocks.ways)
        if not way.on
    }
    place_of = {int(row): number for number, row in enumerate(together.rows)}
    for _ in range(20):
        rows = chance.sample(range(len(blocks.ways)), 6)
        ways = [blocks.ways[row] for row in rows]
        own = [place_of[pooled[way.parts, way.resident, way.cache, way.prompt, way.paced]] for way in ways]
        real = blocks.summed.lanes[rows].sum(axis=0)
        mean = together.summed.lanes[own].sum(axis=0)
        assert mean.max() <= real.max() * (1 + 1e-9)
        kept = blocks.summed.kept[rows].sum(axis=0)
        assert together.summed.kept[own].sum(axis=0) == pytest.approx([kept[0], kept[1:].sum()])


def test_what_each_of_alike_accelerators_does_is_a_plan_of_all():
    question = asked(machine(vram=90 * MB), layers=7)
    blocks = Optimal(question, STEP).blocks
    each = SymmetricWays(blocks, "each")
    space = Compositions(each)
    _, best = space.search(STEP).best[0]
    counts = each.spread({space.name(way): count for way, count in best.counts})
    assert each.count == 4 and sum(count for _, count in best.counts) == 4
    assert sum(counts.values()) == 7
    assert len({blocks.ways[row].on for row in counts if not blocks.ways[row].alone}) == 2


def test_accelerators_that_differ_are_told_apart():
    same, other = (Optimal(asked(machine(slower=slower)), STEP).blocks for slower in (1.0, 2.0))
    assert same.alike and not other.alike
    assert len(same.arrangements) == 5 and len(other.arrangements) == 9


def test_a_model_that_fits_both_lives_on_both():
    decision = Optimal(asked(machine(vram=180 * MB), layers=12), STEP).decide({})
    plan = accept(decision.plan)
    assert {use.memory for use in plan.predicted.memory if use.weights} >= {"vram", "vram1"}
    assert plan.predicted.memory[0].weights <= sum(use.weights for use in plan.predicted.memory) * 0.5
    assert "<-" not in plan.label and "cuda1" in plan.label


def test_ranges_of_what_lives_there_are_as_even_as_memories_allow():
    frame = asked(machine(vram=180 * MB), layers=12).frame
    (found,) = resident(frame)
    assert [way.on for way in found.blocks] == [0] * 6 + [1] * 6
    assert not any(use.used > use.available for use in memory_use(place(frame, found)))
    assert not list(resident(asked(machine(vram=100 * MB), layers=12).frame))


@pytest.mark.nightly
def test_batches_take_turns_on_accelerators():
    """While one batch is on an accelerator another is on the next, instead of one range after the other; and the output
    is not where the last block is, if that is needed for another batch."""
    question = asked(machine(BRIDGED), "Qwen3-0.6B", layers=14, batches=4, batch=8)
    optimal = Optimal(question, STEP)
    ranges, *turns = (predicted(question, each, STEP) for each in resident(question.frame))
    assert {tuple(way.on for way in each.chosen.blocks) for each in turns} == {(0, 1) * 7}
    assert {(each.chosen.embedding, each.chosen.output) for each in turns} == set(product((0, 1), repeat=2))
    assert max(each.seconds for each in turns) < 0.7 * ranges.seconds
    assert optimal.decide({}).seconds <= min(each.seconds for each in turns) * (1 + 1e-9)


def test_a_pass_may_begin_on_an_accelerator_that_has_no_block():
    crossings = {(a, b): 0.0 if a == b else 0.25 for a, b in product((HOST, 0, 1), repeat=2)}
    track = Track((paced(1.0, 0.0, 0.0, 0.0), paced(1.0, 3.0, 3.5, 0.2)), crossings, ends=(1, 0))
    assert sorted(arranged_each([{0: 2, 1: 2}], track, 2)[0].rows) == [0, 0, 1, 1]


def test_ways_of_twins_ask_for_the_same_of_other_lanes():
    """What is lowered for the first one is what lowering finds for the second."""
    blocks = Optimal(asked(machine(BRIDGED, 90 * MB), layers=2), STEP).blocks
    assert blocks.twins
    for row in random.Random(5).sample([row for row, way in enumerate(blocks.ways) if way.on], 8):
        on, own = blocks.rows[row]
        lowered = blocks.joined.spread(on, [own], blocks.members[on].exact(own)[None])[0]
        assert blocks.exact(row) == pytest.approx(lowered)


def test_what_fits_nowhere_says_what_is_missing():
    with pytest.raises(InfeasibleError, match="optimal does not fit") as caught:
        Optimal(asked(machine(vram=1 * MB, dram=10 * MB)), STEP).decide({})
    assert "more in RAM" in caught.value.remedy


def test_hidden_states_cross_as_rarely_as_they_can():
    """Blocks of a device follow each other where nothing comes; where much does, both links are used at once."""
    still = paced(1.0, 0.0, 0.0, 0.0)
    ways = (still, still._replace(on=1, first=1, last=1))
    crossings = {(a, b): 0.0 if a == b else 0.25 for a, b in product((HOST, 0, 1), repeat=2)}
    track = Track(ways, crossings, ends=(0, 1))
    rows = lined_up(arranged_each([{0: 3, 1: 3}], track, 2)[0], {0: 3, 1: 3}, track, 2).rows
    assert rows == (0, 0, 0, 1, 1, 1) and seconds(rows, track, 2) == 6.25
    coming = tuple(paced(1.0, 4.0, 5.0, 0.0)._replace(on=on, first=on, last=on) for on in (0, 1))
    track = Track(coming, crossings, ends=(0, 1))
    alternating = lined_up(arranged_each([{0: 4, 1: 4}], track, 2)[0], {0: 4, 1: 4}, track, 2).rows
    assert sum(a != b for a, b in pairwise(alternating)) > 3


def test_streams_go_round_in_the_buffers_of_their_own_memory():
    """Blocks in turns keep both links busy, ranges one after the other but for what fits the second one's buffers."""
    question = asked(machine(vram=60 * MB), layers=8)
    away = on_accelerator(question.frame.model, resident=False)
    turns, ranges = (
        Assignment(tuple(replace(away, on=on) for on in order), "host", "host", {})
        for order in ([0, 1] * 4, [0] * 4 + [1] * 4)
    )
    took = [question.step_seconds(place(question.frame, each)) for each in (turns, ranges)]
    assert 1.3 * took[0] < took[1] < 1.6 * took[0]
