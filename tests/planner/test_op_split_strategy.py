"""op-split end to end: published tables to plans, closed form against simulation of the lowered plan (bars 1 and 3)."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from op_tables import try_everything, try_one
from plans import figure, make_hardware
from shapes import small_model
from splits import make_frame

from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.graph import Task
from helmsman.lowering.lower import lower
from helmsman.planner.checks.accept import accept
from helmsman.planner.cost.model import CostModel, CostOptions
from helmsman.planner.machine import roles
from helmsman.planner.prediction.predict import mean_step
from helmsman.planner.strategies.flexgen import FlexGen
from helmsman.planner.strategies.op_split.search import SplitSearch, search
from helmsman.planner.strategies.op_split.split_rules import SplitRules
from helmsman.planner.strategies.op_split.strategy import OpSplit
from helmsman.planner.strategies.streaming.place import Frame, Layout, label, place
from helmsman.schemas.errors import InfeasibleError, UsageError
from helmsman.schemas.plan import Plan
from helmsman.schemas.workload import Workload
from helmsman.simulator.pricing import median_price
from helmsman.simulator.replay import replay

WORK = Workload(prompt_tokens=512, output_tokens=32, batch=50, context=544)

NVME = ("nvme0", "nvme1", "nvme2", "nvme3")


@cache
def question(apart: bool = False, layers: int = 12, **options) -> OpSplit:
    """Some layers of OPT-30B on the paper's machine, one batch of 50 (Fig 6a, 8a); `apart`: links share no lanes and
    slow no work."""
    machine = load_hardware("a4000-7950x", None)
    if apart:
        links = tuple(link.model_copy(update={"shares": None, "slows": None}) for link in machine.links)
        machine = machine.model_copy(update={"links": links})
    model = load_model("opt-30b").with_layers(layers)
    return OpSplit(Frame(model, roles(machine), WORK), SplitRules(**options), CostOptions())


@cache
def decided(**options) -> Plan:
    return question(**options).decide({}).plan


@pytest.mark.parametrize(
    ("options", "name", "milliseconds"),
    [
        ({"offload": False}, "cuda[norm1..down]", 81.258),
        ({}, "cuda[norm1..norm2] cpu[up..down]", 47.546),
        ({"compress": "all", "offload": False}, "cuda[norm1..down] q4", 72.392),
        ({"compress": "all"}, "cpu[norm1..v] cuda[scores..up] cpu[down] q4", 44.105),
    ],
)
def test_published_optima(options, name, milliseconds):
    asked = question(printed=True, **options)
    assert label(asked.frame, asked.layout(asked.every_split.best)) == name
    assert asked.every_split.best.seconds * 1e3 == pytest.approx(milliseconds, rel=1e-3)


@pytest.mark.parametrize("pinning", ["pinned", "pin-on-transfer"])
def test_the_host_has_one_part_of_an_operation(pinning):
    """What executors refuse is not chosen, even where the middle of an operation would be best to give away."""
    machine = make_hardware(bandwidth=9.4e8, latency=0.0)
    read = {"cpu": figure(2e9), "loopback": figure(2e10)}
    devices = [each.model_copy(update={"read": read.get(each.name, each.read)}) for each in machine.devices]
    machine = machine.model_copy(update={"devices": tuple(devices)})
    frame = make_frame(small_model("qwen3"), Workload(prompt_tokens=8, output_tokens=8, context=160), machine)
    asked = OpSplit(frame, SplitRules({"q": 4}, pinning=pinning), CostOptions())
    ops, every = [unit.op for unit in asked.units], search(asked.table, replace(asked.search_options, feasible=None))
    ranges = zip(every.start, every.stop, strict=True)
    one_part = np.array([i == j or set(ops[:i]).isdisjoint(ops[j:]) for i, j in ranges])
    assert one_part[every.lanes.total.argmin()] == (pinning == "pinned")
    assert asked.every_split.best.seconds == every.lanes.total[one_part].min()
    assert np.array_equal(np.isfinite(asked.every_split.lanes.total), one_part)


@pytest.mark.parametrize(("chunks", "milliseconds"), [({}, 68.615), ({"scores": 8}, 60.943)])
def test_published_prefix_splits(chunks, milliseconds):
    """The best single split point: after V; and inside Scores with eight chunks (Fig 14)."""
    asked = question(printed=True)
    asked = replace(asked, options=replace(asked.options, chunks=chunks))
    found = [asked.every_split.at(start, len(asked.units)) for start in range(len(asked.units) + 1)]
    assert min(split.seconds for split in found) * 1e3 == pytest.approx(milliseconds, rel=1e-3)


def bare(asked: OpSplit) -> SplitSearch:
    """The search where activations cross for nothing and memories have room for everybody."""
    return search(asked.table, replace(asked.search_options, flow=None, pools=(), delays=None))


def steady(asked: OpSplit, start: int, stop: int, ideal: bool = False) -> float:
    """Seconds per layer of the best configuration of units [start, stop)."""
    return _steady(asked, asked.layout(asked.every_split.at(start, stop)), ideal)


def _steady(asked: OpSplit, layout: Layout, ideal: bool = True) -> float:
    """Seconds per layer of the simulated plan when the first and last layers no longer matter.

    `ideal`: activations cross for nothing, and memories have room for everybody."""

    def price(task: Task) -> float:
        free = ideal and task.resource.endswith(":activations")
        return 0.0 if free else asked.costs.price(task).mid

    machine = asked.frame.roles.hardware
    if ideal:
        memories = tuple(memory.model_copy(update={"bandwidth": figure(1e18)}) for memory in machine.memories)
        machine = machine.model_copy(update={"memories": memories})
    ends, together = [], asked.frame.workload.batches
    for layers in (12, 20):
        frame = replace(asked.frame, model=asked.frame.model.with_layers(layers))
        graph = lower(place(frame, layout), mean_step(asked.frame.workload, together))
        ends.append(replay(graph, price, machine).makespan)
    return (ends[1] - ends[0]) / 8


SPLITS = [(0, 11), (4, 11), (4, 10), (2, 10), (0, 10), (0, 9), (0, 0)]


@pytest.mark.parametrize(("start", "stop"), SPLITS)
def test_simulation_meets_the_closed_form(start, stop):
    """L' is the steady state of the lowered plan when activations cross for nothing and nothing contends for memory
    (E-PARK-05)."""
    asked = question()
    assert steady(asked, start, stop, ideal=True) == pytest.approx(bare(asked).at(start, stop).seconds, rel=1e-9)


@pytest.mark.parametrize(("start", "stop"), SPLITS)
def test_what_the_closed_form_leaves_out_costs_little(start, stop):
    """Activations share the link and lie on the chain; attention and arriving weights share the GPU's memory."""
    asked = question()
    assert steady(asked, start, stop) == pytest.approx(asked.every_split.at(start, stop).seconds, rel=5e-3)


@pytest.mark.parametrize(("start", "stop"), [(0, 11), (0, 9), (4, 11), (4, 10), (0, 0), (5, 11)])
def test_batches_in_turns_meet_the_closed_form(start, stop):
    """L' lets a batch's section start when all of its data is there, as eq 14 does; the lowered plan starts each
    operation with its own data, and is up to 5 % faster where transfers bind."""
    work = WORK.model_copy(update={"batch": 25, "batches": 2})
    asked = question()
    asked = replace(asked, frame=replace(asked.frame, workload=work))
    ratio = steady(asked, start, stop) / asked.every_split.at(start, stop).seconds
    assert 0.95 < ratio < 1.005


def test_exposed_gpu_time_of_the_suffix_split():
    """Bar 3: 49.77 ms a layer where the printed L says 47.546."""
    assert question(printed=True).every_split.at(0, 9).seconds * 1e3 == pytest.approx(47.546, rel=1e-3)
    assert steady(question(), 0, 9) * 1e3 == pytest.approx(49.77, rel=5e-3)


def test_the_plan_is_accepted_and_replays_as_predicted():
    plan = decided()
    assert accept(plan) is plan
    assert plan.strategy.options["operation_table"] is True
    graph = lower(plan, mean_step(plan.workload))
    made = replay(graph, median_price(plan), plan.hardware).makespan
    assert made == pytest.approx(plan.predicted.decode.seconds.mid, rel=1e-3)


def test_terms_say_where_they_come_from():
    terms = {(t.op, t.resource): t.source for t in decided().predicted.decode.terms}
    assert terms["up", "cpu"] == terms["q.weights", "h2d"] == terms["scores", "cuda"] == "paper"
    derived = question()
    other = replace(derived, frame=replace(derived.frame, workload=WORK.model_copy(update={"batch": 8})))
    assert other.costs.table.batch == 8
    terms = {t.op: t.source for t in other.decide({}).plan.predicted.decode.terms}
    assert terms["up"] != "paper"


def test_gpu_only_is_flexgen_without_its_barriers():
    """PARK-09: the paper's own GPU-only mode is faster than FlexGen's schedule with the same work."""
    mine = decided(offload=False).predicted.decode.seconds.mid
    frame = question().frame
    flexgen = {
        (compress, attention): FlexGen(frame, compress, attention, CostOptions()).decide({})
        for compress in (False, True)
        for attention in (False, True)
    }
    seconds = {key: decision.plan.predicted.decode.seconds.mid for key, decision in flexgen.items()}
    assert mine < seconds[False, False]
    assert seconds[True, False] < seconds[False, False]
    for decision in flexgen.values():
        assert accept(decision.plan).strategy.name == "flexgen"


def test_flexgen_pins_caches_and_waits():
    plan = FlexGen(question().frame, False, False, CostOptions()).decide({}).plan
    graph = lower(plan, mean_step(plan.workload))
    assert {t.op for t in graph.tasks if t.kind == "pin"} == {"kv.pin"}
    ends = {i: t.layer for i, t in enumerate(graph.tasks) if t.op == "down" and t.kind == "linear"}
    for task in graph.tasks:
        if task.op == "norm1" and task.layer:
            before = {graph.tasks[dep].layer for dep in task.deps}
            assert task.layer - 1 in before
            assert any(
                graph.tasks[dep].op == "down.weights" and graph.tasks[dep].layer == task.layer for dep in task.deps
            )
    assert len(ends) == plan.model.layers


def test_storage_frees_host_memory():
    asked, plan = question(storage=NVME), decided(storage=NVME)
    stored = [rule for rule in plan.residence if rule.memory == "nvme0"]
    assert stored
    assert {rule.path for rule in stored} == {"direct"}
    assert asked.every_split.best.seconds < question().every_split.best.seconds


def test_four_devices_on_unequal_lanes_finish_together():
    """Fig 10c: one is twice as fast as the others; Fig 8a: Q takes 20.7 ms from all of them (PARK-39..42)."""
    asked = question(storage=NVME)
    assert asked.stripes == pytest.approx((0.4, 0.2, 0.2, 0.2), rel=1e-6)
    assert asked.table.storage[1] == pytest.approx(20.7e-3, rel=1e-3)
    plan = decided(storage=NVME)
    rules = [rule for rule in plan.residence if rule.memory == "nvme0"]
    assert {(rule.replicas, rule.stripes) for rule in rules} == {(NVME[1:], asked.stripes)}
    used = {use.memory: use.weights for use in plan.predicted.memory}
    assert used["nvme0"] == used["nvme1"] == used["nvme2"] == used["nvme3"] > 0


@pytest.mark.parametrize(("storage", "faster"), [(NVME[:1], 0.4), (NVME[:2], 0.6), (NVME[1:], 0.6), (NVME, 1.0)])
def test_fewer_devices_take_longer(storage, faster):
    """The table's column is of all four; the rest of them bring as much less as they are slower."""
    assert question(storage=storage).table.storage[1] == pytest.approx(20.7e-3 / faster, rel=1e-3)


@pytest.mark.parametrize("compress", ["none", "all"])
@pytest.mark.parametrize("devices", [1, 2, 4])
def test_the_search_over_storage_devices_equals_trying_everything(compress, devices):
    """The whole strategy: the table that lowering and prices make, with stripes, against one candidate at a time."""
    for path in ("direct", "bounce"):
        asked = question(apart=True, storage=NVME[:devices], compress=compress, path=path)
        tried = try_everything(asked.table, 1, False, (compress == "all",), True)
        first = min(tried, key=lambda one: one.key(asked.table, (compress == "all",)))
        best = bare(asked).best
        assert (best.start, best.stop, best.from_storage) == (first.start, first.stop, first.stored)
        assert best.seconds == pytest.approx(first.total, rel=1e-9)


@pytest.mark.parametrize("stored", [("q",), ("q", "o"), ("q", "k", "v", "o")])
@pytest.mark.parametrize("path", ["direct", "bounce"])
def test_simulation_of_weights_from_four_devices_meets_the_closed_form(stored, path):
    """Whichever lane is the longest. Through host memory, the link may wait for what storage has not read yet."""
    asked = question(apart=True, storage=NVME, path=path, offload=False)
    found = asked.every_split.best
    lanes = try_one(asked.table, 0, 11, False, stored, 1, False)
    split = replace(found, start=0, stop=11, from_storage=stored, seconds=lanes.total)
    slack = 1e-6 if path == "direct" else 0.1
    assert _steady(asked, asked.layout(split)) == pytest.approx(lanes.total, rel=slack)
    assert _steady(asked, asked.layout(split)) > lanes.total * (1 - 1e-6)


@pytest.mark.parametrize("path", ["direct", "bounce"])
def test_with_compression_the_closed_form_is_safe(path):
    """Two buffers hide the first transfer before expansion, at most 2 % here."""
    asked = question(apart=True, storage=NVME, path=path, offload=False, compress="all")
    split = asked.every_split.best
    assert split.from_storage
    assert 0.98 < steady(asked, split.start, split.stop, ideal=True) / split.seconds <= 1 + 1e-9


def test_memory_that_is_too_small():
    frame = make_frame(small_model("qwen3"), hardware=make_hardware(vram=1 << 20))
    with pytest.raises(InfeasibleError, match="more on the accelerator"):
        OpSplit(frame, SplitRules(), CostOptions()).decide({})


def test_one_memory_cannot_be_split():
    machine = roles(load_hardware("m1-16gb", None))
    asked = OpSplit(Frame(small_model("qwen3"), machine, WORK), SplitRules(), CostOptions())
    with pytest.raises(UsageError, match="offloading gains nothing"):
        asked.decide({})


def test_zig_zag_beats_batch_after_batch():
    """Weights move once for all batches (PARK-05)."""
    frame = question().frame
    small = frame.workload.model_copy(update={"batch": 25, "batches": 2})
    twice = OpSplit(replace(frame, workload=small), SplitRules(), CostOptions()).decide({}).plan
    alone = small.model_copy(update={"batches": 1})
    once = OpSplit(replace(frame, workload=alone), SplitRules(), CostOptions()).decide({}).plan
    assert twice.predicted.decode.seconds.mid < 2 * once.predicted.decode.seconds.mid
    assert "2x25" in twice.label


@pytest.mark.parametrize(("batch", "batches"), [pytest.param(60, 4, marks=pytest.mark.nightly), (25, 2)])
def test_compressed_batches_lie_above_their_lower_bound(batch, batches):
    """What is read in 4-bit groups counts as such for every batch (the bound would be too high otherwise)."""
    asked = question(compress="all")
    work = WORK.model_copy(update={"batch": batch, "batches": batches})
    decode = replace(asked, frame=replace(asked.frame, workload=work)).decide({}).plan.predicted.decode
    assert 0 < decode.lower_bound < decode.seconds.mid


def test_a_table_prices_the_operations_it_measured():
    """Scaled by the work: half the context is half the scores."""
    asked = question()
    graph = lower(place(asked.frame, asked.layout(asked.every_split.at(4, 11))), mean_step(WORK))
    costs = CostModel(asked.frame.roles.hardware, CostOptions(), asked.costs.table)
    scores = next(t for t in graph.tasks if t.op == "scores")
    assert costs.price(scores).mid == pytest.approx(0.463e-3)
    assert costs.price(scores._replace(bytes=scores.bytes // 2)).mid == pytest.approx(0.463e-3 / 2)
    keys = next(t for t in graph.tasks if t.op == "keys")
    assert costs.price(keys).mid == pytest.approx(15.344e-3)


@pytest.mark.nightly
def test_storage_lets_more_batches_fit():
    """PARK-44: two batches of 50 lack host memory; with streamed weights in storage they fit (Fig 17)."""
    work = WORK.model_copy(update={"batches": 2})
    with pytest.raises(InfeasibleError, match="more in RAM"):
        several(work).decide({})
    plan = several(work, storage=NVME).decide({}).plan
    assert accept(plan) is plan
    assert any(rule.memory == "nvme0" for rule in plan.residence)


@pytest.mark.nightly
def test_many_faster_splits_that_do_not_fit_hide_none_that_does():
    """Caches of 70 sequences leave room for few streamed ones; with half the memory, weights must come from storage."""
    plan = several(WORK.model_copy(update={"batch": 70})).decide({}).plan
    assert accept(plan).label == "cpu[norm1..wv] cuda[o..down]"
    asked = question(layers=48, storage=NVME)
    machine = asked.frame.roles.hardware
    memories = tuple(
        memory.model_copy(update={"available": 50 * 10**9}) if memory.name == "dram" else memory
        for memory in machine.memories
    )
    small = roles(machine.model_copy(update={"memories": memories}))
    work = WORK.model_copy(update={"batch": 1})
    decision = replace(asked, frame=replace(asked.frame, roles=small, workload=work)).decide({})
    assert accept(decision.plan) is decision.plan
    assert all(rejected.missing > 0 and rejected.seconds < decision.seconds for rejected in decision.rejected)


def several(work: Workload, **options) -> OpSplit:
    asked = question(layers=48, **options)
    return replace(asked, frame=replace(asked.frame, workload=work))


def with_contexts(*contexts: int) -> OpSplit:
    """The question with the published table as if measured at these contexts; at twice the context, twice the time."""
    asked = question()
    (table,) = asked.frame.roles.hardware.tables
    tables = tuple(_at(table, context) for context in contexts)
    hardware = asked.frame.roles.hardware.model_copy(update={"tables": tables})
    return replace(asked, frame=replace(asked.frame, roles=replace(asked.frame.roles, hardware=hardware)))


def _at(table, context):
    rows = []
    for row in table.rows:
        factor = context / table.context if row.op in ("scores", "wv") else 1.0
        found = {"host": row.host.model_copy(update={"value": row.host.value * factor})} if row.host else {}
        rows.append(row.model_copy(update=found))
    return table.model_copy(update={"context": context, "rows": tuple(rows)})


def scores_on_host(asked: OpSplit):
    graph = lower(place(asked.frame, asked.layout(asked.every_split.at(8, 11))), mean_step(WORK))
    return asked.costs.price(next(t for t in graph.tasks if t.op == "scores"))


def test_between_two_contexts_prices_are_interpolated():
    """The mean step has 528 tokens; what was measured there and what is interpolated to there agree on linear work."""
    exact, mixed = scores_on_host(question()), scores_on_host(with_contexts(264, 1056))
    assert mixed.mid == pytest.approx(exact.mid, rel=1e-9)
    assert (exact.source, mixed.source) == ("paper", "interpolated")
    assert with_contexts(264, 1056).costs.table.table.context == 528
    assert with_contexts(9000, 1056, 264, 20).costs.table.table.context == 528
    assert scores_on_host(with_contexts(264, 528, 1056)).source == "paper"


def test_one_context_is_scaled_with_more_spread_or_not_at_all():
    exact, scaled, far = (scores_on_host(with_contexts(context)) for context in (528, 264, 8448))
    assert scaled.mid == pytest.approx(exact.mid, rel=1e-2)
    assert scaled.source == "interpolated"
    assert scaled.high / scaled.mid > 1.5 * exact.high / exact.mid
    assert far.source not in ("interpolated", "paper")


def test_the_plan_says_with_how_many_threads_the_host_was_fastest():
    """PARK-48."""
    asked = question()
    assert asked.decide({}).plan.schedule.threads is None
    (table,) = asked.frame.roles.hardware.tables
    frame = asked.frame.with_tables(table.model_copy(update={"threads": 8}))
    assert len(frame.roles.hardware.tables) == 1
    assert replace(asked, frame=frame).decide({}).plan.schedule.threads == 8
