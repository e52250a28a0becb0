"""Operation tables at other batches and models than they were measured with: carried, interpolated, expanded."""

from dataclasses import replace

import pytest

from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.graph import Task
from helmsman.planner.cost.estimate import Estimate
from helmsman.planner.cost.expansion import expansion, line
from helmsman.planner.cost.model import CostModel, CostOptions
from helmsman.planner.machine import roles
from helmsman.planner.strategies.op_split.split_rules import SplitRules
from helmsman.planner.strategies.op_split.strategy import OpSplit
from helmsman.planner.strategies.streaming.place import Frame, Layout
from helmsman.planner.strategies.streaming.work import layer_tasks
from helmsman.schemas.workload import Workload

PAPER = load_hardware("a4000-7950x", None)
TABLE = PAPER.tables[0]


def asked(batch: int, model: str = "opt-30b", compress: bool = True, hardware=PAPER) -> OpSplit:
    work = Workload(prompt_tokens=512, output_tokens=32, batch=batch, context=544)
    frame = Frame(load_model(model), roles(hardware), work)
    return OpSplit(frame, SplitRules(compress="all" if compress else "none"), CostOptions())


def priced(question: OpSplit, side: str) -> dict[str, tuple[Task, Estimate]]:
    """Every task of a layer that is all on the host, or all on the accelerator with what comes in 4-bit groups."""
    units = question.frame.units({})
    layout = Layout(units, 0, 0 if side == "host" else len(units))
    if side == "packed":
        layout = replace(layout, weights_q4=True, cache_q4=True)
    costs = question.costs
    return {task.op: (task, costs.price(task)) for task in layer_tasks(question.frame, layout)}


@pytest.mark.nightly
def test_more_sequences_take_longer_whatever_batch_was_measured():
    """Beyond the table's batch rooflines took over, whose expansion was 18 times cheaper: 100 sequences beat 50."""
    steps = [asked(batch).decide({}).plan.predicted.decode.seconds.mid for batch in (25, 50, 100)]
    assert steps == sorted(steps)
    assert steps[2] > 1.2 * steps[1]


def test_expansion_of_a_matrix_does_not_depend_on_the_batch():
    (_, here), (_, there) = (priced(asked(batch), "packed")["q.weights.decompress"] for batch in (50, 100))
    assert there.mid == pytest.approx(here.mid) == pytest.approx(TABLE.row("q").decompress.value, rel=1e-3)


def test_expansion_lies_on_the_line_through_what_was_measured():
    """E-PARK-10: caches of 100 sequences, which nobody measured, by the constant and the slope of the rows."""
    known = expansion(PAPER, "cuda")
    assert known.fixed == pytest.approx(5e-3, rel=0.02)
    task, price = priced(asked(100), "packed")["keys.decompress"]
    assert price.mid == pytest.approx(known.fixed + known.slope * task.bytes)
    assert 1.4 < price.mid / TABLE.row("scores").decompress.value < 2


def test_keys_and_values_are_two_expansions():
    """FlexGen brings both at once, and expands one after the other; so do the rows of a table of divided attention."""
    known = expansion(PAPER, "cuda")
    task, one = priced(asked(100), "packed")["keys.decompress"]
    both = CostModel(PAPER).price(task._replace(operation="attention", bytes=2 * task.bytes))
    assert both.mid == pytest.approx(2 * one.mid) == pytest.approx(2 * known.fixed + known.slope * 2 * task.bytes)


def test_a_small_matrix_does_not_pay_all_that_a_large_one_does():
    """Between the share of the smallest that was measured and all of the constant, with both in the interval."""
    known = expansion(PAPER, "cuda")
    task, price = priced(asked(1, "Meta-Llama-3-8B"), "packed")["k.weights.decompress"]
    share = task.bytes / known.smallest
    whole = known.fixed + known.slope * known.smallest
    assert share < 0.1
    assert share * whole < price.mid < known.fixed
    assert price.low < share * whole and price.high > known.fixed
    assert price.source == "assumed"
    assert known.seconds(known.smallest * 0.999).value == pytest.approx(known.seconds(known.smallest).value, rel=1e-3)


def test_norms_and_softmax_keep_their_fixed_cost_at_other_batches():
    for side, column in (("host", "host"), ("packed", "accelerator")):
        bare = CostModel(PAPER.model_copy(update={"tables": ()}))
        for op in ("norm1", "softmax"):
            task, price = priced(asked(1), side)[op]
            measured = getattr(TABLE.row(op), column).value
            assert 0.9 * measured < price.mid <= measured
            assert bare.price(task).mid < 0.5 * price.mid
            assert price.high > 1.3 * price.mid and price.source == "interpolated"


@pytest.mark.parametrize(("batch", "op"), [(10, "scores"), (200, "wv"), (200, "q"), (25, "up")])
def test_products_and_attention_keep_their_share_of_the_roofline(batch, op):
    bare = CostModel(PAPER.model_copy(update={"tables": ()}))
    (here, known), (there, carried) = (priced(asked(each), "host")[op] for each in (50, batch))
    shares = [price.mid / bare.price(task).mid for task, price in ((here, known), (there, carried))]
    assert shares[1] == pytest.approx(shares[0], rel=1e-6)
    assert carried.high / carried.mid > known.high / known.mid


def test_between_tables_of_two_batches_figures_are_interpolated():
    def at(batch: int):
        rows = tuple(
            row.model_copy(update={"host": row.host.model_copy(update={"value": batch * 1e-3, "p10": 0, "p90": 1.0})})
            for row in TABLE.rows
        )
        return TABLE.model_copy(update={"batch": batch, "rows": rows})

    hardware = PAPER.model_copy(update={"tables": (at(80), at(20))})
    question = asked(40, compress=False, hardware=hardware)
    _, price = priced(question, "host")["q"]
    assert (price.mid, price.source) == (pytest.approx(40e-3), "interpolated")
    assert question.costs.table.table.batch == 40
    assert asked(20, hardware=hardware).costs.table.table.batch == 20


def test_a_line_has_no_negative_part():
    assert line([(1.0, 3.0), (2.0, 5.0)]) == (pytest.approx(1.0), pytest.approx(2.0))
    assert line([(2.0, 5.0)]) == (pytest.approx(0.0), pytest.approx(2.5))
    fixed, slope = line([(1.0, 1.0), (2.0, 4.0)])
    assert fixed == pytest.approx(0.0) and slope > 0
    assert line([(1.0, 4.0), (2.0, 1.0)])[1] == 0.0
