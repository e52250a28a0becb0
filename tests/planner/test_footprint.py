"""Links whose rate depends on what is kept behind them (GUPTA-03, 05, 06, E-GUPTA-09)."""

import random

import pytest

from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.planner.cost.footprint import hit_rate, with_kept
from helmsman.planner.cost.model import CostModel, CostOptions
from helmsman.planner.cost.plan_costs import cost_model
from helmsman.planner.machine import roles
from helmsman.planner.strategies.offload.place import Keeping
from helmsman.planner.strategies.offload.strategy import Offloading
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.planner.strategies.weights_on_host import WeightsOnHost
from helmsman.schemas.hardware import Footprint, Hardware
from helmsman.schemas.workload import Workload

GB = 10**9


def rate(hardware: Hardware, memory: str, kept: int) -> float:
    link = with_kept(hardware, {memory: kept}).link(memory, "vram")
    assert link is not None
    return link.bandwidth.value


@pytest.mark.parametrize(("kept", "expected"), [(0, 19.91), (4, 19.91), (83, 18.32), (297, 16.68), (900, 16.68)])
def test_optane_is_slower_the_more_is_read(kept, expected):
    assert rate(load_hardware("a100-optane", None), "optane", kept * GB) == pytest.approx(expected * GB, rel=1e-3)


@pytest.mark.parametrize(("kept", "share", "expected"), [(83, 0.28125, 17.97), (297, 1.0, 16.73)])
def test_weights_reach_what_the_paper_implies(kept, share, expected):
    """E-GUPTA-09: a block of OPT-175B in 4-bit groups, in f16; its 16 tensors also take their copies' constant."""
    hardware = load_hardware("a100-optane", None)
    link = with_kept(hardware, {"optane": kept * GB}).link("optane", "vram")
    size = share * 12 * 12288**2 * 2
    seconds = size / link.bandwidth.value + 16 * link.latency.value
    assert size / seconds == pytest.approx(expected * GB, rel=0.015)


def test_a_cache_hides_optane_while_it_holds_everything():
    hardware = load_hardware("a100-memory-mode", None)
    rates = [rate(hardware, "dram", kept * GB) for kept in (1, 32, 83, 297, 900)]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] == pytest.approx(24.89 * GB, rel=0.01)
    assert rates[1] > 0.96 * 24.89 * GB  # Fig 3a: as fast as DRAM at 32 GB
    assert 16.68 * GB < rates[-1] < 17.5 * GB


@pytest.mark.parametrize("load", [0.1, 0.5, 1.0, 2.0])
def test_hits_of_a_direct_mapped_cache(load):
    """Pages placed at random, read in order again and again."""
    rng, places = random.Random(7), 4000
    pages = [rng.randrange(places) for _ in range(round(load * places))]
    held: dict[int, int] = {}
    hits = 0
    for turn in range(3):
        for page, place in enumerate(pages):
            hits += turn == 2 and held.get(place) == page
            held[place] = page
    assert hits / len(pages) == pytest.approx(hit_rate(load, 1.0), abs=0.03)


def test_plan_and_simulation_use_the_same_rates():
    frame = Frame(load_model("opt-30b"), roles(load_hardware("a100-optane", None)), Workload())
    asked = Offloading(frame, WeightsOnHost(), Keeping("optane"), CostOptions())
    plan = asked.decide({}).plan
    used = [
        next(link for link in costs.hardware.links if link.name == "optane-h2d")
        for costs in (asked.costs, cost_model(plan))
    ]
    assert used[0].bandwidth == used[1].bandwidth
    assert used[0].bandwidth.value < 19 * GB


@pytest.mark.parametrize(("capped", "expected"), [(True, 24.89), (False, 28.0)])
def test_cxl_is_capped_by_the_link_that_it_shares(capped, expected):
    """E-GUPTA-10; the printed projection ignores the link."""
    costs = CostModel(load_hardware("a100-cxl-asic", None), CostOptions(capped=capped))
    frame = Frame(load_model("opt-30b"), roles(costs.hardware), Workload())
    plan = (
        Offloading(frame, WeightsOnHost(), Keeping("cxl"), CostOptions(capped=capped)).decide({"capped": capped}).plan
    )
    moving = next(term for term in plan.predicted.decode.terms if term.op == "up.weights")
    assert moving.bytes / moving.seconds.mid == pytest.approx(expected * GB, rel=0.01)
    assert cost_model(plan).options.capped is capped


@pytest.mark.parametrize("content", [{}, {"at": (2.0, 1.0), "share": ()}, {"cache": 5}, {"cached": None, "cache": 0}])
def test_a_footprint_says_something(content):
    with pytest.raises(ValueError, match="cache|curve|at"):
        Footprint(memory="dram", **content)
