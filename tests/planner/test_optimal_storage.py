"""`optimal` with weights in storage: what a plan keeps there, against trying everything, where it is not offered."""

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from pairs import least_of_pairs
from questions import asked, simulated
from splits import with_storage

from helmsman.hwdb.load_hardware import load_hardware
from helmsman.planner.checks.accept import accept
from helmsman.planner.machine import roles
from helmsman.planner.memory.buffers import STOPS
from helmsman.planner.memory.usage import memory_use
from helmsman.planner.strategies.flexgen_lp import FlexGenLp
from helmsman.planner.strategies.offload.place import Keeping
from helmsman.planner.strategies.optimal.configurations.block_ways import BlockWay, block_ways, from_storage, on_host
from helmsman.planner.strategies.optimal.configurations.rules import Assignment, place
from helmsman.planner.strategies.optimal.configurations.stored_blocks import needs_store
from helmsman.planner.strategies.optimal.explain.explanation import near_to
from helmsman.planner.strategies.optimal.explain.quantities import quantities
from helmsman.planner.strategies.optimal.explain.shadow_prices import priced
from helmsman.planner.strategies.optimal.search.compositions import Aim
from helmsman.planner.strategies.optimal.strategy import Optimal
from helmsman.planner.strategies.streaming.question import Question
from helmsman.planner.strategies.streaming.store import WeightStore, store_of
from helmsman.schemas.errors import InfeasibleError
from helmsman.schemas.hardware import Hardware

STEP = Aim("decode step", {"decode": 1.0})
REQUEST = Aim("request", {"prefill": 1.0, "decode": 127.0})
FOUR, ONE = "a4000-7950x", "a100-fsdax"
"""Four devices that the accelerator reads straight or through the host's memory; one that the host reads."""
MB = 10**6


def question(machine: str = FOUR, dram: int = 120, vram: int = 120, path=None, **asking) -> Question:
    """Of opt-125m (250 MB), with so many MB in both memories."""
    found = asked("opt-125m", machine, vram=vram * MB, **asking)
    hardware = with_room(found.frame.roles.hardware, "dram", dram * MB)
    frame = replace(found.frame, roles=roles(hardware), fused=True)
    return replace(found, frame=replace(frame, store=store_of(frame.roles, path)))


def with_room(hardware: Hardware, name: str, size: int) -> Hardware:
    memories = (m.model_copy(update={"available": size}) if m.name == name else m for m in hardware.memories)
    return hardware.model_copy(update={"memories": tuple(memories)})


def stored_ways(optimal: Optimal, seed: int, count: int) -> list[BlockWay]:
    return random.Random(seed).sample([way for way in optimal.blocks.ways if way.stored], count)


def test_the_only_plan_there_is():
    """Nothing fits without storage; through the host's memory unless it is asked to be read straight."""
    tight = question(dram=110, vram=40, layers=4)
    with pytest.raises(InfeasibleError):
        Optimal(replace(tight, frame=replace(tight.frame, store=None)), STEP).decide({})
    for path in (None, "direct"):
        found = question(dram=110, vram=40, layers=4, path=path)
        plan = accept(Optimal(found, STEP).decide({}).plan)
        stored = [rule for rule in plan.residence if rule.memory == "nvme0"]
        assert {rule.path for rule in stored} == {path or "bounce"}
        assert all(rule.replicas == ("nvme1", "nvme2", "nvme3") for rule in stored)
        used = {use.memory: use.weights for use in plan.predicted.memory}
        assert used["nvme0"] == used["nvme3"] > 0 and "nvme" in plan.label
        assert simulated(found, plan) == pytest.approx(plan.predicted.decode.seconds.mid, rel=1e-3)


@pytest.mark.parametrize(("machine", "seed", "path"), [(FOUR, 2, "direct"), (ONE, 1, None), ("a100-optane", 3, None)])
def test_no_pair_of_blocks_beats_the_bound(machine, seed, path):
    """Two blocks in every way of a sample, most with weights in storage, predicted task by task."""
    optimal = Optimal(question(machine, 120, 110, path, layers=2, batch=1 + seed), STEP)
    ways = [on_host(optimal.question.frame.model), *stored_ways(optimal, seed, 2)]
    ways += random.Random(seed).sample(optimal.blocks.ways, 1)
    tried, decision = least_of_pairs(optimal, ways), optimal.decide({})
    assert optimal.bound <= tried * (1 + 1e-9)
    assert decision.seconds <= tried * (1 + decision.plan.certificate.gap + 1e-9)


@pytest.mark.parametrize("path", [None, "direct"])
def test_sums_of_parts_are_at_most_what_a_way_asks_for(path):
    optimal = Optimal(question(path=path, batch=2), REQUEST)
    rows = [optimal.blocks.ways.index(way) for way in stored_ways(optimal, 3, 10)]
    for row in rows:
        exact, summed = optimal.blocks.exact(row), optimal.blocks.summed.lanes[row]
        assert (exact >= summed * (1 - 1e-9)).all()
        links = [lane for lane, (_, name) in enumerate(optimal.blocks.lanes) if name.startswith("s2")]
        assert exact[links] == pytest.approx(summed[links])


def test_bytes_of_blocks_are_those_of_the_plan():
    """In every memory, those on their way and those that stop in host memory too."""
    optimal = Optimal(question(layers=4, batch=4), REQUEST)
    blocks, host = optimal.blocks, on_host(optimal.question.frame.model)
    base, none = uses(optimal, (host,) * 4), blocks.summed.kept[blocks.ways.index(host)]
    buffers = blocks.buffers
    for way in stored_ways(optimal, 4, 20):
        row, found = blocks.ways.index(way), uses(optimal, (way, host, host, host))
        kept = blocks.summed.kept[row] - none
        assert [each[0] for each in found] == pytest.approx([b[0] + k for b, k in zip(base, kept, strict=True)])
        stops = (blocks.summed.coming[row] @ buffers)[0]
        assert found[0][1] - base[0][1] == stops == STOPS * blocks.summed.coming[row][2] > 0


def uses(optimal: Optimal, ways: Sequence[BlockWay]) -> list[tuple[int, int]]:
    """By memory, what is kept and buffers."""
    placed = place(optimal.question.frame, Assignment(tuple(ways), "host", "host", optimal.blocks.shares))
    found = {use.memory: use for use in memory_use(placed)}
    names = optimal.blocks.memories
    return [(found[name].weights + found[name].kv + found[name].pinned, found[name].buffers) for name in names]


@pytest.mark.nightly
@pytest.mark.parametrize(("machine", "dram", "vram", "batch"), [(ONE, 240, 200, 8)])
def test_never_slower_than_the_policy_of_flexgen(machine, dram, vram, batch):
    found = question(machine, dram, vram, batch=batch)
    ours = Optimal(found, STEP).decide({})
    theirs = FlexGenLp(found.frame, Keeping("dram", found.frame.store.memories[0]), found.cost_options).decide({})
    assert simulated(found, ours.plan) <= simulated(found, theirs.plan)
    assert ours.plan.certificate.lower_bound <= simulated(found, theirs.plan)


def test_other_memories_that_no_device_works_in():
    """Where the host's is full, or where somebody asks; what comes from there takes no other path."""
    found = question("a100-cxl-asic", dram=110, vram=40, layers=4)
    decision = Optimal(found, STEP).decide({})
    stored = [rule for rule in accept(decision.plan).residence if rule.memory == "cxl"]
    assert stored and {rule.path for rule in stored} == {"pinned"} and "<-cxl" in decision.plan.label
    machine = found.frame.roles
    assert store_of(machine) == WeightStore(("cxl",), (), "pinned")
    assert store_of(machine, home="cxl").requested and store_of(machine, home="vram") is None
    assert store_of(machine, home="dram") is None and store_of(machine, "bounce") is None
    room = question("a100-cxl-asic", dram=1000)
    assert not needs_store(room.frame)
    assert needs_store(replace(room.frame, store=store_of(room.frame.roles, home="cxl")))


def test_storage_is_left_out_where_host_memory_holds_everything():
    room = question(dram=1000)
    assert not needs_store(room.frame) and needs_store(question().frame)
    assert needs_store(question(dram=1000, path="direct").frame)
    blocks = Optimal(room, STEP).blocks
    assert not any(way.stored for way in blocks.ways) and not any("nvme" in name for name in blocks.memories)


def test_ways_from_storage_bring_what_the_accelerator_has_alone():
    model = question().frame.model
    ways = block_ways(model, storage=True)
    assert len(set(ways)) == len(ways) and from_storage(model) in ways
    for way in ways:
        assert all(way.parts[k] == "accelerator" and not way.resident[k] for k in way.stored)


def test_what_a_faster_storage_is_worth():
    """Where it is what binds, as many per cent as it is faster."""
    optimal = Optimal(question(ONE, dram=110, vram=40, layers=4), STEP)
    near = near_to(optimal, optimal.finalists[0])
    solved, frame = near.solved(), optimal.question.frame
    found = {(each.what, each.name): each for each in quantities(frame.roles, frame.store)}
    faster = found["memory bandwidth", "fsdax"].times(frame.roles.hardware, 2.0)
    assert faster.link("fsdax", "dram").bandwidth.value == 2 * found["memory bandwidth", "fsdax"].size
    worth = priced(near, solved, found["memory bandwidth", "fsdax"])
    assert worth.more.price == pytest.approx(worth.more.again, rel=0.05) and worth.shares[0] > 0.5
    other = question("a100-cxl-asic").frame
    assert ("link bandwidth", "cxl-h2d") in [(each.what, each.name) for each in quantities(other.roles, other.store)]


def test_where_storage_is_read():
    hardware = question().frame.roles.hardware
    through = store_of(roles(hardware))
    assert through.bounces and through.memories == ("nvme0", "nvme1", "nvme2", "nvme3")
    assert sum(through.stripes) == pytest.approx(1.0) and through.stripes[0] > through.stripes[1]
    straight = hardware.model_copy(update={"links": tuple(ln for ln in hardware.links if "s2h" not in ln.name)})
    assert not store_of(roles(straight)).bounces
    assert store_of(roles(straight), "bounce") is None
    assert store_of(asked().frame.roles) is None
    several = roles(with_storage(load_hardware("a100x2-dgx", None), "nvme0", direct=False))
    assert store_of(several) is None and store_of(several.per_accelerator[0]).bounces
    assert store_of(roles(hardware.model_copy(update={"links": hardware.links[:2]}))) is None


def test_even_a_large_store_may_not_be_enough():
    """What does not fit names the memory that lacks most of it."""
    with pytest.raises(InfeasibleError, match="optimal does not fit") as caught:
        Optimal(question(dram=60, vram=60), STEP).decide({})
    assert set(caught.value.lacks) <= {"dram", "vram"} and not np.isinf(caught.value.lacks["dram"])
