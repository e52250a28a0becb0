"""What busy links cost: closed form of the search, prediction and simulation of the same plans (PARK-43)."""

from dataclasses import replace

import numpy as np
import pytest
from plans import figure

from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.lower import lower
from helmsman.planner.cost.model import CostOptions
from helmsman.planner.machine import roles
from helmsman.planner.prediction.predict import mean_step, predict
from helmsman.planner.strategies.op_split.interference import BesideLinks, delayed
from helmsman.planner.strategies.op_split.pipeline import Section
from helmsman.planner.strategies.op_split.split_rules import SplitRules
from helmsman.planner.strategies.op_split.strategy import OpSplit
from helmsman.planner.strategies.streaming.place import Frame, Layout, place
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.workload import Workload
from helmsman.simulator.replay import replay

WORK = Workload(prompt_tokens=512, output_tokens=32, batch=50, context=544)
NVME = ("nvme0", "nvme1", "nvme2", "nvme3")


def machine(storage: float, h2d: float = 0.0) -> Hardware:
    """The paper's: its devices together slow the GPU by `storage`, its link by `h2d`; bandwidth for everybody."""
    hardware = load_hardware("a4000-7950x", None)
    links = []
    for link in hardware.links:
        share = {"s2d0": 0.4, "s2d1": 0.2, "s2d2": 0.2, "s2d3": 0.2}.get(link.name, 0.0) * storage
        extra = h2d if link.name == "h2d" else share
        sourced = figure(extra).model_copy(update={"source": "park-gds-slows"})
        links.append(link.model_copy(update={"slows": {"cuda": sourced} if extra else None, "shares": None}))
    return hardware.model_copy(update={"links": tuple(links)})


def question(hardware: Hardware, work: Workload = WORK, **options) -> OpSplit:
    return OpSplit(Frame(load_model("opt-30b"), roles(hardware), work), SplitRules(**options), CostOptions())


def steady(asked: OpSplit, layout: Layout) -> float:
    """Simulated seconds per layer."""
    ends, together = [], asked.frame.workload.batches
    for layers in (8, 14):
        frame = replace(asked.frame, model=asked.frame.model.with_layers(layers))
        graph = lower(place(frame, layout), mean_step(asked.frame.workload, together))
        price, hardware = asked.costs.price, asked.frame.roles.hardware
        ends.append(replay(graph, lambda t, p=price: p(t).mid, hardware, asked.costs.slowed()).makespan)
    return (ends[1] - ends[0]) / 6


def section(work: float) -> Section:
    values = {name: np.array([work, 0.0]) for name in Section.__slots__}
    return Section(**{**values, "chain": 2 * values["host"], "caches_move": np.array([True, False])})


@pytest.mark.parametrize("batches", [1, 3])
@pytest.mark.parametrize("busy", [0.0, 1.0, 4.0, 40.0])
def test_work_beside_a_busy_link(batches: int, busy: float) -> None:
    """min((1 + f) D, D + f / (1 + f) S), per batch of those that share the seconds S."""
    f, work = 0.5, 2.0
    beside = BesideLinks(section((1 + f) * work), np.full(2, busy), np.array([(1 + f) * work * batches, 0.0]))
    found = delayed(section(work), [beside], batches)
    expected = min((1 + f) * work, work + f / (1 + f) * busy / batches)
    for name in ("host", "accelerator", "ready", "weights_ready", "caches_ready", "weights_work", "caches_work"):
        assert getattr(found, name) == pytest.approx([expected, 0.0])
    assert found.chain == pytest.approx([2 * expected, 0.0])
    assert found.weights[0] == found.storage[0] == work
    twice = delayed(section(work), [beside, beside], batches)
    assert twice.host[0] - work == pytest.approx(2 * (expected - work))


@pytest.mark.parametrize("storage", [0.1, 0.3, 0.54, 1.0])
def test_what_eq_10_stores_beside_groups(storage: float) -> None:
    """The plan that the printed equations choose: the closed form is above its simulation, as it is without delays."""
    layout = (eq10 := question(machine(0.0), compress="all", storage=NVME, printed=True)).layout(eq10.every_split.best)
    asked = question(machine(storage), compress="all", storage=NVME)
    start, stop = eq10.every_split.best.start, eq10.every_split.best.stop
    alone, beside = steady(eq10, layout), steady(asked, layout)
    loss = storage / (1 + storage) * eq10.every_split.best.s2d
    assert alone < beside <= alone + loss * 1.001
    assert beside == pytest.approx(alone + loss, rel=0.02)
    assert asked.every_split.at(start, stop).seconds <= (eq10.every_split.best.seconds + loss) * 1.001


@pytest.mark.parametrize(
    ("storage", "h2d", "batches"),
    [
        (0.3, 0.0, 1),
        (0.0, 0.4, 1),
        (0.5, 0.4, 2),
        *(pytest.param(*each, marks=pytest.mark.nightly) for each in ((0.3, 0.0, 2), (0.0, 0.4, 2), (0.5, 0.4, 1))),
    ],
)
def test_the_search_agrees_with_the_simulation_of_what_it_chooses(batches: int, storage: float, h2d: float) -> None:
    """The link's factor is counted in the table's figures, so only storage slows anything here."""
    work = WORK.model_copy(update={"batch": 50 // batches, "batches": batches})
    for compress in ("none", "all"):
        asked = question(machine(storage, h2d), work, compress=compress, storage=NVME)
        best = asked.every_split.best
        assert steady(asked, asked.layout(best)) == pytest.approx(best.seconds, rel=0.1)


def test_derived_figures_are_slowed_by_the_link_too() -> None:
    """Without a table everything on the GPU was measured alone. Delayed so much, its work outlasts the link's; L' adds
    the delayed end of the flow shop, which the next layer hides, so it is above the simulation."""
    alone, slowed = (
        question(
            machine(0.0, h2d).model_copy(update={"tables": ()}), WORK.model_copy(update={"batch": 2}),
            compress="all", offload=False,
        )
        for h2d in (0.0, 6.0)
    )  # fmt: skip
    before, after = (steady(asked, asked.layout(asked.every_split.best)) for asked in (alone, slowed))
    assert after > before * 1.1
    assert after * 0.99 < slowed.every_split.best.seconds < after * 1.3


def test_new_keys_on_their_way_home_are_not_what_streams() -> None:
    """A link that only takes results back delays the search by nothing that h2d is busy for."""
    hardware = machine(0.0)
    slow = {"cuda": figure(1.0).model_copy(update={"source": "park-gds-slows"})}
    links = tuple(ln.model_copy(update={"slows": slow}) if ln.name == "d2h" else ln for ln in hardware.links)
    back = hardware.model_copy(update={"links": links, "tables": ()})
    plain, slowed = (question(each.model_copy(update={"tables": ()})) for each in (hardware, back))
    assert np.array_equal(plain.every_split.lanes.total, slowed.every_split.lanes.total)


def test_printed_equations_know_no_contention() -> None:
    for storage in (0.0, 1.0):
        asked = question(machine(storage), compress="all", storage=NVME, printed=True)
        assert asked.every_split.best.seconds * 1e3 == pytest.approx(41.0753, rel=1e-5)


def test_the_record_agrees_with_what_was_measured() -> None:
    """E-PARK-17: storage is not used beside 4-bit groups, where eq 10 would; without compression it helps."""
    hardware = load_hardware("a4000-7950x", None)
    asked = {(c, s): question(hardware, compress=c, storage=s) for c in ("none", "best") for s in ((), NVME)}
    best = {key: each.every_split.best for key, each in asked.items()}
    assert best["best", NVME].compressed and not best["best", NVME].from_storage
    assert best["best", NVME].seconds == best["best", ()].seconds
    assert best["none", NVME].from_storage == ("o",)
    with_storage, without = (steady(asked["none", s], asked["none", s].layout(best["none", s])) for s in (NVME, ()))
    assert with_storage < 0.98 * without
    eq10 = question(hardware, compress="all", storage=NVME, printed=True)
    loser = steady(eq10, eq10.layout(eq10.every_split.best))
    assert eq10.every_split.best.from_storage and loser > 1.02 * steady(
        asked["best", ()], asked["best", ()].layout(best["best", ()])
    )


def test_links_of_storage_share_the_lanes_of_the_gpu() -> None:
    links = {link.name: link for link in load_hardware("a4000-7950x", None).links}
    assert all(links[f"s2d{n}"].shares == "h2d" for n in range(4))
    assert links["h2d"].carries is not None and links["h2d"].carries.value > links["h2d"].bandwidth.value


def test_prediction_and_simulation_agree() -> None:
    """The predicted step counts delays as the simulator does; its ends take the ends of the factors."""
    hardware = machine(0.54)
    eq10 = question(hardware, compress="all", storage=NVME, printed=True)
    placed = place(eq10.frame, eq10.layout(eq10.every_split.best))
    seconds = predict(placed, eq10.costs).decode.seconds
    graph = lower(placed, mean_step(WORK))
    made = replay(graph, lambda t: eq10.costs.price(t).mid, hardware, eq10.costs.slowed()).makespan
    assert seconds.mid == pytest.approx(made, rel=0.01)
    none = question(machine(0.0), compress="all", storage=NVME, printed=True)
    free = predict(place(none.frame, none.layout(none.every_split.best)), none.costs).decode.seconds
    assert seconds.mid > 1.1 * free.mid and seconds.low < seconds.mid < seconds.high
