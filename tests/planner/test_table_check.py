"""Tables that users give: of another question, in wrong units, or written by the planner itself."""

import json
from dataclasses import replace

import pytest
from fewer_blocks import fewer_blocks

from helmsman.cli.plan import main
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.planner.cost.model import CostOptions
from helmsman.planner.machine import roles
from helmsman.planner.strategies.op_split.split_rules import SplitRules
from helmsman.planner.strategies.op_split.strategy import OpSplit
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.planner.strategies.streaming.table_check import check_table, table_warnings
from helmsman.planner.strategies.streaming.tabulate import tabulate
from helmsman.schemas.described import reshaped
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.operation_table import COLUMNS, OperationTable
from helmsman.schemas.read import parse_document
from helmsman.schemas.workload import Workload

WORK = Workload(prompt_tokens=512, output_tokens=32, batch=50, context=544)
ARGV = ("--hw", "a4000-7950x", "--strategy", "op-split", "--prompt-tokens", "512", "--output-tokens", "32")
ARGV = (*ARGV, "--batch", "50")


@pytest.fixture(scope="module")
def asked() -> OpSplit:
    frame = Frame(load_model("opt-30b"), roles(load_hardware("a4000-7950x", None)), WORK)
    return OpSplit(frame, SplitRules(), CostOptions())


@pytest.fixture
def argv(tmp_path) -> tuple[str, ...]:
    """The same question about a few blocks of the model, whose tables are those of all."""
    return ("--model", fewer_blocks(tmp_path, "opt-30b", 6), *ARGV)


@pytest.fixture(scope="module")
def table(asked) -> OperationTable:
    return tabulate(asked.frame, asked.costs)


def scaled(table: OperationTable, column: str, factor: float, only: str = "") -> OperationTable:
    content = json.loads(table.to_json())
    for row in content["rows"]:
        if column in row and row["op"].startswith(only):
            row[column] |= {name: row[column][name] * factor for name in ("value", "p10", "p90")}
    return parse_document(OperationTable, json.dumps(content).encode(), "t.json")


def test_published_tables_are_in_seconds(asked):
    """The paper's tables differ from rooflines by less than what wrong units do."""
    for measured in asked.frame.roles.hardware.tables:
        frame = replace(asked.frame, workload=WORK.model_copy(update={"batch": measured.batch}))
        assert measured.shape != table_shape(asked) or table_warnings(measured, frame) == ()


def table_shape(asked):
    return asked.frame.roles.hardware.tables[0].shape


@pytest.mark.parametrize("column", ["host", "accelerator", "transfer", "transfer_q4", "decompress"])
@pytest.mark.parametrize(
    ("factor", "says"),
    [
        (1e3, "milliseconds written as seconds"),
        pytest.param(1e6, "microseconds written as seconds", marks=pytest.mark.nightly),
        pytest.param(1e-3, "seconds divided by a thousand", marks=pytest.mark.nightly),
    ],
)
def test_columns_in_wrong_units_are_named(asked, table, column, factor, says):
    warnings = [w for w in table_warnings(scaled(table, column, factor), asked.frame) if f"column {column}," in w]
    assert len(warnings) == 1
    assert ("slower" if factor > 1 else "faster") in warnings[0]
    assert says in warnings[0]


@pytest.mark.parametrize(
    ("column", "factor", "says"),
    [("host", 1e6, "microseconds written as seconds"), ("transfer", 1e-3, "seconds divided by a thousand")],
)
def test_other_wrong_units_are_named(asked, table, column, factor, says):
    test_columns_in_wrong_units_are_named(asked, table, column, factor, says)


def test_one_row_in_wrong_units_is_named(asked, table):
    (warning,) = table_warnings(scaled(table, "transfer", 1e3, only="up"), asked.frame)
    assert "column transfer, up:" in warning


@pytest.mark.parametrize("context", [1, 100000])
def test_a_wrong_context_is_not_taken_for_wrong_units(asked, table, context):
    (warning,) = table_warnings(table.model_copy(update={"context": context}), asked.frame)
    assert warning.startswith(f"`table`: context {context}, scores, ")
    assert f"and not at {table.context} tokens" in warning
    assert "looks like" not in warning


def test_wrong_units_are_named_beside_a_wrong_context(asked, table):
    wrong = scaled(table, "host", 1e3, only="up").model_copy(update={"context": 100000})
    context, units = table_warnings(wrong, asked.frame)
    assert "context 100000" in context
    assert "column host, up:" in units
    assert "milliseconds written as seconds" in units


def test_good_tables_pass(asked, table):
    check_table(table, asked.frame)
    assert table_warnings(table, asked.frame) == ()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"batch": 8}, "batch"),
        ({"format": "f32"}, "format"),
        ({"kv_format": "f32"}, "kv_format"),
        ({"host": "abacus"}, "host"),
        ({"accelerator": "abacus"}, "accelerator"),
    ],
)
def test_tables_of_other_questions_are_refused(asked, table, change, field):
    with pytest.raises(BadInputError) as error:
        check_table(table.model_copy(update=change), asked.frame, "t.json")
    assert (error.value.file, error.value.field) == ("t.json", field)


def test_tables_of_other_layers_are_refused(asked, table):
    with pytest.raises(BadInputError, match="shape.heads"):
        check_table(table, replace(asked.frame, model=reshaped(load_model("opt-30b"), heads=64, kv_heads=64)))


def test_unknown_sources_are_refused(asked, table):
    row = table.rows[1]
    other = row.model_copy(update={"host": row.host.model_copy(update={"source": "nowhere"})})
    with pytest.raises(BadInputError, match=r"rows\.1\.source"):
        check_table(table.model_copy(update={"rows": (table.rows[0], other, *table.rows[2:])}), asked.frame)


@pytest.mark.parametrize(("factor", "columns"), [(0.0, ("host",)), (1e-3, COLUMNS)], ids=["host", "all"])
def test_tables_faster_than_the_record_still_make_a_plan(tmp_path, capsys, argv, table, factor, columns):
    """The bound is then the plan's own time, and that is said."""
    fast = table
    for column in columns:
        fast = scaled(fast, column, factor)
    path = tmp_path / "t.json"
    path.write_text(fast.to_json())
    assert main([*argv, "--table", str(path), "--json"]) == 0
    out, err = capsys.readouterr()
    decode = json.loads(out)["predicted"]["decode"]
    assert decode["lower_bound"] <= decode["seconds"]["mid"]
    assert (decode["gap"] == 0) == ("the lower bound is the plan's own time" in err)


@pytest.mark.parametrize(
    ("breaking", "says"),
    [
        (lambda rows: rows[1]["host"].update(value=float("nan")), "rows.1.host.value: NaN"),
        (lambda rows: rows[1]["host"].update(value=-1.0, p10=-1.0), "rows.1.host"),
        (lambda rows: rows.pop(1), "rows are missing: q"),
        (lambda rows: rows.append(rows[1]), "two rows"),
    ],
)
def test_broken_tables_are_one_line(tmp_path, capsys, argv, table, breaking, says):
    content = json.loads(table.to_json())
    breaking(content["rows"])
    path = tmp_path / "t.json"
    path.write_text(json.dumps(content))
    assert main([*argv, "--table", str(path)]) == 5
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_a_written_table_gives_the_same_plan(tmp_path, capsys, argv):
    path = tmp_path / "t.json"
    assert main([*argv, "--json", "--write-table", str(path)]) == 0
    first = json.loads(capsys.readouterr().out)
    assert main([*argv, "--json", "--table", str(path)]) == 0
    second, error = capsys.readouterr()
    again = json.loads(second)
    assert error == ""
    assert again["label"] == first["label"]
    assert again["compute"] == first["compute"]
    for end in ("low", "mid", "high"):
        seconds = [plan["predicted"]["decode"]["seconds"][end] for plan in (first, again)]
        assert seconds[1] == pytest.approx(seconds[0], rel=1e-9)


def test_wrong_units_are_warned_of_on_standard_error(tmp_path, capsys, argv, table):
    path = tmp_path / "t.json"
    path.write_text(scaled(table, "host", 1e3).to_json())
    assert main([*argv, "--json", "--table", str(path)]) == 0
    out, error = capsys.readouterr()
    assert json.loads(out)["schema"] == "helm.plan/1"
    assert error.startswith("helm-plan: warning: --table: column host, every row:")


def test_tables_are_complete_and_keep_their_sources(asked, table):
    measured = asked.costs.table.table
    for row in table.rows:
        old = measured.row(row.op)
        for column in COLUMNS:
            new, figure = getattr(row, column), getattr(old, column) if old else None
            assert figure is None or new is None or new.source == figure.source
        assert row.host is not None
        assert row.accelerator is not None


def test_search_cost_is_told(capsys, argv):
    assert main([*argv, "-v"]) == 0
    assert "search       79 candidates priced, " in capsys.readouterr().out
