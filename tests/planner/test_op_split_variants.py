"""KV selection and activation caching as operation tables and plans (PARK-66): formulas, directions, replay."""

from dataclasses import replace
from functools import cache

import pytest
from daily import one_in
from plans import make_hardware
from shapes import small_model
from splits import WORK as SMALL
from splits import make_frame

from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.lower import lower
from helmsman.planner.checks.accept import accept
from helmsman.planner.cost.model import CostModel, CostOptions
from helmsman.planner.machine import roles
from helmsman.planner.memory.usage import memory_use
from helmsman.planner.prediction.predict import mean_step
from helmsman.planner.strategies.op_split.split_rules import SplitRules
from helmsman.planner.strategies.op_split.strategy import OpSplit
from helmsman.planner.strategies.op_split.variants import varied_table, with_cache_use
from helmsman.planner.strategies.streaming.place import Frame, Layout, place
from helmsman.planner.strategies.streaming.tabulate import tabulate
from helmsman.schemas.cache_use import CacheUse
from helmsman.schemas.described import reshaped
from helmsman.schemas.errors import BadInputError, UsageError
from helmsman.schemas.operation_table import OperationTable
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import parse_document
from helmsman.schemas.workload import Workload
from helmsman.simulator.pricing import median_price
from helmsman.simulator.replay import replay

WORK = Workload(prompt_tokens=512, output_tokens=32, batch=50, context=544)
PLAIN, H2O = CacheUse(), CacheUse(keep=0.2)
INFINIGEN, ASC = CacheUse(keep=0.2, select=0.3), CacheUse(holds="activations")
BOTH = CacheUse(keep=0.2, select=0.3, holds="activations")
VARIANTS = (H2O, INFINIGEN, ASC, BOTH)
OPT = load_model("opt-30b")
PAPER = load_hardware("a4000-7950x", None)


def published() -> OperationTable:
    return PAPER.tables[0]


@cache
def question(use: CacheUse = PLAIN, layers: int = OPT.layers, **options) -> OpSplit:
    """OPT-30B, or some layers of it, on the paper's machine."""
    model = OPT.with_layers(layers)
    frame = with_cache_use(Frame(model, roles(PAPER), WORK, cache=use))
    return OpSplit(frame, SplitRules(**options), CostOptions())


@cache
def decided(use: CacheUse = PLAIN, **options) -> Plan:
    return question(use, **options).decide({}).plan


def step(plan: Plan) -> float:
    """Milliseconds of a layer's mean decode step by the best plan's prediction."""
    return plan.predicted.decode.seconds.mid / OPT.layers * 1e3


def milliseconds(table: OperationTable, op: str, column: str) -> float:
    return getattr(table.row(op), column).value * 1e3


def test_rows_of_chosen_tokens_from_the_published_table():
    """Of 527 past tokens 106 stay; three tenths of all keys and half a softmax choose them."""
    table, plain = varied_table(published(), INFINIGEN, OPT), published()
    assert milliseconds(table, "wv", "host") == pytest.approx(77.527 * 107 / 528)
    scores = 77.527 * (107 + 0.3 * 527) / 528 + 0.5 * 0.776 * 527 / 528
    assert milliseconds(table, "scores", "host") == pytest.approx(scores, rel=1e-6)
    assert milliseconds(table, "softmax", "host") == pytest.approx(0.776 * 107 / 528)
    for op in ("scores", "wv"):
        assert milliseconds(table, op, "transfer") == pytest.approx(15.344 * 106 / 527)
        assert milliseconds(table, op, "transfer_q4") == pytest.approx(4.11 * 106 / 527)
    same = [row for row in table.rows if row.op not in ("scores", "softmax", "wv")]
    assert same == [row for row in plain.rows if row.op not in ("scores", "softmax", "wv")]


def test_expansion_has_a_fixed_part():
    """E-PARK-10: a = 5.0 ms and 1.73 x for 4 x the bytes; a fifth of the tokens takes more than a fifth of the time."""
    seconds = milliseconds(varied_table(published(), H2O, OPT), "scores", "decompress")
    assert 5.0 < seconds < 10.963
    assert seconds == pytest.approx(5.02 + (10.963 - 5.02) * 106 / 527, rel=0.02)


def test_rows_of_cached_activations_from_the_published_table():
    """X is half of K and V: one transfer of 15.344 ms instead of two; attention takes its FLOPs at FC's rate."""
    table = varied_table(published(), ASC, OPT)
    assert [row.op for row in table.rows] == ["norm1", "q", "k", "attention", "v", "o", "norm2", "up", "down"]
    assert milliseconds(table, "attention", "transfer") == pytest.approx(15.344)
    assert milliseconds(table, "attention", "host") == pytest.approx(77.527 + 0.776 / 2, rel=1e-3)
    flops = 4 * 50 * 528 * 56 * 7168
    rate = 2 * 50 * 7168 * 28672 / 1.097e-3
    assert milliseconds(table, "attention", "accelerator") == pytest.approx(flops / rate * 1e3, rel=1e-3)
    assert table.row("k") == published().row("k")
    assert table.row("v") == published().row("v")


@pytest.mark.parametrize("use", VARIANTS)
def test_changed_figures_name_a_source_of_their_own(use):
    frame = with_cache_use(Frame(OPT, roles(PAPER), WORK, cache=use))
    table, known = frame.roles.hardware.tables[0], frame.roles.hardware.sources
    assert table.cache == use
    for row in table.rows:
        plain = published().row(row.op)
        for figure in row.figures():
            source = known[figure.source]
            untouched = plain is not None and figure in tuple(plain.figures())
            assert (source.kind == "paper") == untouched
            assert untouched or source.where.startswith("derived by work for attention on")


@pytest.mark.parametrize("use", VARIANTS)
def test_derived_tables_are_tables_of_derived_work(use):
    """On a machine of bandwidths alone, deriving rows from rooflines and rooflines of derived work are one."""
    frame = make_frame(small_model("opt"), replace_workload(batch=8), make_hardware(latency=1e-12))
    varied = replace(frame, cache=use)
    costs = CostModel(frame.roles.hardware, CostOptions())
    derived = varied_table(tabulate(frame, costs), use, frame.model)
    direct = tabulate(varied, costs)
    assert {row.op for row in derived.rows} == {row.op for row in direct.rows}
    for row in derived.rows:
        other = direct.row(row.op)
        for column in ("host", "accelerator", "transfer", "transfer_q4", "decompress"):
            figure, expected = getattr(row, column), getattr(other, column)
            assert (figure is None) == (expected is None)
            # a softmax stands in for reading the choice's scores, and for fused attention's own
            tolerance = 1e-2 if row.op in ("scores", "attention") else 1e-5
            assert figure is None or figure.value == pytest.approx(expected.value, rel=tolerance), (row.op, column)


def replace_workload(**changes) -> Workload:
    return SMALL.model_copy(update=changes)


LAYER = {
    (PLAIN, "none"): (81.3, 50.8),
    (PLAIN, "all"): (71.4, 45.0),
    (INFINIGEN, "none"): (56.8, 36.2),
    (INFINIGEN, "all"): (61.9, 38.6),
    (ASC, "none"): (66.0, 45.4),
    (ASC, "all"): (60.4, 42.9),
}
"""Milliseconds a layer that the formulas give on the published tables: the GPU alone, and split."""


@pytest.mark.parametrize(
    ("use", "compress"),
    one_in(3, [pytest.param(*each, marks=() if each[1] == "none" else pytest.mark.nightly) for each in LAYER]),
)
def test_variants_help_and_splits_help_variants(use, compress):
    """Fig 20 in direction (its figures are not in the copy at hand): either method is faster than plain attention,
    with and without compression, and splits are faster than streaming everything with either."""
    alone, split = LAYER[use, compress]
    assert step(decided(use, compress=compress, offload=False)) == pytest.approx(alone, rel=5e-3)
    assert step(decided(use, compress=compress)) == pytest.approx(split, rel=5e-3)
    assert split < alone
    assert use == PLAIN or (alone < LAYER[PLAIN, compress][0] and split < LAYER[PLAIN, compress][1])


def test_reordering_halves_the_cache_for_at_most_half_more_throughput():
    """Section 2.2: half the cache, up to 50 % higher throughput; one batch of 50 gains less."""
    plain, cached = (decided(use, compress="none", offload=False) for use in (PLAIN, ASC))
    assert kv_bytes(cached)["dram"] * 2 == kv_bytes(plain)["dram"]
    assert 1.2 < step(plain) / step(cached) < 1.5


def kv_bytes(plan: Plan) -> dict[str, int]:
    return {use.memory: use.kv for use in plan.predicted.memory}


def test_selection_stores_everything_and_its_partial_keys():
    """All tokens stay in host memory; three tenths of the keys lie beside the accelerator's scores, none beside the
    host's own."""
    plain = kv_bytes(decided(compress="none"))
    chosen = kv_bytes(decided(INFINIGEN, compress="none", offload=False))
    assert chosen["dram"] == plain["dram"]
    assert chosen["vram"] == pytest.approx(0.3 * plain["dram"] / 2, rel=1e-6)
    asked = question(INFINIGEN)
    home = memory_use(place(asked.frame, Layout(asked.units, 0, 0)))
    assert {use.memory: use.kv for use in home} == {"dram": plain["dram"], "vram": 0} | {
        f"nvme{k}": 0 for k in range(4)
    }
    assert kv_bytes(decided(H2O, compress="none", offload=False))["vram"] == 0


@pytest.mark.parametrize(
    ("use", "compress"),
    [
        (H2O, "none"),
        pytest.param(INFINIGEN, "all", marks=pytest.mark.nightly),
        pytest.param(ASC, "none", marks=pytest.mark.nightly),
        (BOTH, "all"),
    ],
)
def test_a_plan_replays_as_predicted_after_a_round_trip(use, compress):
    asked = question(use, layers=8, compress=compress)
    plan = parse_document(Plan, asked.decide({"kv_keep": use.keep}).plan.to_json().encode(), "plan")
    assert accept(plan) is plan
    assert plan.schedule.cache == use
    assert plan.hardware.tables[0].cache == use
    assert use.label in plan.label
    graph = lower(plan, mean_step(plan.workload))
    made = replay(graph, median_price(plan), plan.hardware).makespan
    assert made == pytest.approx(plan.predicted.decode.seconds.mid, rel=5e-3)


def test_what_passes_around_reordered_attention_stays_on_one_device():
    found = question(ASC).every_split
    names = [unit.op for unit in question(ASC).units]
    first, last = names.index("k"), names.index("v")
    for split in found.ranked(40):
        inside = [split.start <= unit < split.stop for unit in range(first, last + 1)]
        assert all(inside) or not any(inside)


@pytest.mark.parametrize(
    ("name", "says"), [("Llama-2-7b-hf", "rotated"), ("Llama-3.1-8B", "rotated"), ("Qwen3-8B", "rotated or normed")]
)
def test_rotated_keys_do_not_follow_from_activations(name, says):
    with pytest.raises(UsageError, match=says):
        with_cache_use(Frame(load_model(name), roles(PAPER), WORK, cache=ASC))


def test_activations_that_are_not_smaller_are_refused():
    model = reshaped(OPT, kv_heads=28)
    with pytest.raises(UsageError, match="not smaller than K and V"):
        with_cache_use(Frame(model, roles(PAPER), WORK, cache=ASC))


def test_a_plan_that_was_edited_to_cache_activations_is_refused():
    plan = parse_document(Plan, decided(compress="none").to_json().encode(), "plan")
    rope = load_model("Llama-2-7b-hf").with_layers(3)
    whole = plan.schedule.model_copy(update={"cache": ASC, "attention": "whole"})
    other = OpSplit(Frame(rope, roles(PAPER), WORK.model_copy(update={"batch": 4})), SplitRules(), CostOptions())
    edited = other.decide({}).plan.model_copy(update={"schedule": whole})
    with pytest.raises(BadInputError, match="rotated"):
        accept(edited)


def test_a_table_of_a_variant_is_not_varied_again():
    once = varied_table(published(), H2O, OPT)
    with pytest.raises(BadInputError, match="variant already"):
        varied_table(once, INFINIGEN, OPT)
    assert varied_table(published(), PLAIN, OPT) is published()


def test_a_given_table_of_the_variant_goes_before_derived_ones():
    frame = Frame(OPT, roles(PAPER), WORK, cache=H2O)
    mine = varied_table(published(), H2O, OPT).model_copy(update={"key": "mine"})
    machine = frame.roles.hardware.model_copy(
        update={"sources": with_cache_use(frame).roles.hardware.sources, "tables": (mine, *PAPER.tables)}
    )
    found = with_cache_use(replace(frame, roles=replace(frame.roles, hardware=machine)))
    assert found.roles.hardware.tables == machine.tables
