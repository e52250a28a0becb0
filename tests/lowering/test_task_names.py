"""Names of tasks: what is read is what was written, and nobody else takes them apart."""

import ast
import re
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from random import Random

import pytest
from divided import divided_plan
from lowered_serving import lower_serving
from paged import make_paged_plan
from plans import make_hardware
from serving import random_two, serving_plan
from shapes import small_model

from helmsman.lowering.cargo import CACHE_WORDS, cargo
from helmsman.lowering.emit import Emitter
from helmsman.lowering.graph import Task
from helmsman.lowering.lower import lower
from helmsman.lowering.paging import passes_of
from helmsman.lowering.streams import Hop
from helmsman.lowering.task_names import TaskName, read_name
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.workload import Workload

ROOT = Path(__file__).parents[2]
ROOMS = (
    "analysis",
    "benchmarks",
    "executor",
    "hwdb",
    "lowering",
    "planner",
    "scheduler",
    "service",
    "simulator",
    "src",
    "timing",
)
READERS = ("lowering/task_names.py",)
"""Where texts of tasks are read."""

OF_TEXTS = {
    "endswith",
    "find",
    "partition",
    "removeprefix",
    "removesuffix",
    "rpartition",
    "rsplit",
    "split",
    "startswith",
}
OF_PATTERNS = {"findall", "finditer", "fullmatch", "match", "search", "sub"}
OPERATIONS = {
    "weights": ("q", "norm1", "embedding"), "cache": ("attention", "scores", "wv"), "prefix": ("prefix",),
    "activation": ("hidden", "new_kv", "token", "qkv", "attention"), **dict.fromkeys(CACHE_WORDS, ("attention",)),
}  # fmt: skip


def said_of(task: Task) -> TaskName:
    """What the name of a task has to say."""
    move = task.kind if task.kind in ("transfer", "decompress", "pin", "reshape") else None
    return TaskName(
        task.step, task.layer, task.batch, move, task.operation, task.payload, task.rows, task.piece, task.home
    )


def moves(payload: str) -> Iterator[Task]:
    """Everything that may be said of moves of a payload."""
    (link, *_), out = make_hardware().links, Emitter(Iteration(7, "decode", 1, 1, 2))
    pieces = (3, 10) if payload == "cache page" else (None, 1, 12)
    homes = (None, "nvme0", "far.1 TB") if payload in ("weights", "cache") else (None,)
    rows = (None, (16, 1024)) if payload in ("weights", "cache") else (None,)
    for operation, layer, batch, part, piece, home in product(
        OPERATIONS[payload], (None, 11), (0, 2), rows, pieces, homes
    ):
        moved, out.batch = cargo(operation, payload, part, piece, home), batch
        out.transfer(moved, layer, Hop(link, 1, "pinned"), "f16", ())
        whole = piece is None and home is None
        kinds = ("pin", "decompress", *(("reshape",) if payload == "cache" and whole else ()))
        for kind in kinds if payload in ("weights", "cache") else ():
            out.preparation(kind, moved, layer, "cpu", 1, "f16", ("dram",), ())
    yield from out.take()


@pytest.mark.parametrize("payload", OPERATIONS)
def test_what_is_read_of_a_move_is_what_was_written(payload: str) -> None:
    tasks = list(moves(payload))
    assert len({task.id for task in tasks}) == len(tasks)
    assert [read_name(task.id) for task in tasks] == [said_of(task) for task in tasks]
    for task in tasks:
        if task.kind != "transfer":
            assert (read_name(task.op).move, read_name(task.op).payload) == (task.kind, payload)


def test_names_of_passes_are_read_as_they_are_written() -> None:
    work, chance, kinds = Workload(prompt_tokens=5, output_tokens=3, context=8, batch=2, batches=2), Random(3), set()
    plans = [divided_plan(chance, "qwen3", work, heads=heads) for heads in (False, True) for _ in range(5)]
    plans.append(
        make_paged_plan(small_model("qwen3"), workload=Workload(prompt_tokens=200, output_tokens=90, context=290))
    )
    graphs = [lower(plan, each) for plan in plans for each in (*passes_of(plan).prompt, passes_of(plan).step(2))]
    graphs += [lower_serving(serving_plan(3), random_two(chance)) for _ in range(10)]
    for task in (task for graph in graphs for task in graph.tasks):
        assert read_name(task.id) == said_of(task)
        kinds.add((task.kind, task.payload))
    assert {payload for _, payload in kinds} >= {
        None,
        "weights",
        "cache",
        "activation",
        "new cache entries",
        "cache page",
    }


@pytest.mark.parametrize("text", ["submission", "hand-over", "", "1/", "7/3.Q@", "Attention (paper)"])
def test_other_texts_are_operations(text: str) -> None:
    assert read_name(text)[3:] == (None, text, None, None, None, None)


def test_nobody_else_takes_the_id_or_the_op_of_a_task_apart() -> None:
    files = [
        path
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        if path.relative_to(ROOT).as_posix() not in READERS
    ]
    found = [f"{path.relative_to(ROOT)}:{line}" for path in files for line in taken_apart(path.read_text("utf-8"))]
    assert len(files) > 500 and not found


def test_taking_apart_is_seen() -> None:
    texts = (
        'task.op.endswith(".weights")', "_RANGE.search(span.task)", 'task.id.split("/")[1]', '".new" in task.id',
        "each.id[1:]", "term.op.partition('.')[0]",
    )  # fmt: skip
    assert [list(taken_apart(text)) for text in texts] == [[1]] * len(texts)
    assert not list(taken_apart('task.op == "hidden" and task.op in names and tensor.op.split(".")'))


def taken_apart(source: str) -> Iterator[int]:
    """Lines that take the text of a task, of a Trace's row or of a term apart."""
    if not re.search(r"\.(id|op|task)\b", source):
        return
    for node in ast.walk(ast.parse(source)):
        looked_at: Iterable[ast.expr] = ()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            texts, patterns = (node.func.attr in names for names in (OF_TEXTS, OF_PATTERNS))
            looked_at = (node.func.value,) if texts else node.args if patterns else ()
        elif isinstance(node, ast.Compare) and isinstance(node.left, ast.Constant | ast.JoinedStr):
            looked_at = [right for op, right in zip(node.ops, node.comparators, strict=True) if isinstance(op, ast.In)]
        elif isinstance(node, ast.Subscript):
            looked_at = (node.value,)
        if any(is_text(each) for each in looked_at):
            yield node.lineno


def is_text(node: ast.expr) -> bool:
    """Whether it is an id or an `op`; those of tensors are others."""
    named = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id != "tensor"
    return named and node.attr in ("id", "op", "task")
