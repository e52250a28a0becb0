"""Fig 13: what turning caches that are kept (batch, tokens, hidden) costs, in Scores and end to end (PARK-15)."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from benchmarks.park_egger.answer import Row, answer, row
from benchmarks.park_egger.question import Method, Question, strategy
from benchmarks.park_egger.study import Found, Study
from helmsman.lowering.graph import TaskKind
from helmsman.planner.strategies.streaming.place import Layout
from helmsman.planner.strategies.streaming.work import layer_tasks

SHAPES = ((1, 25), (1, 50), (4, 20))
METHODS: tuple[Method, ...] = ("flexgen cpu", "op-split")
LAYOUTS = {False: "as used", True: "turned at every step"}


def study() -> Study:
    """Both methods that compute attention on the host, with either layout, and Scores alone."""
    turning, scores = scores_seconds(Question())
    rows = tuple(_rows())
    notes = (
        f"Scores on the host, 1x50, a layer: {1e3 * scores:.1f} ms as used, {1e3 * (scores + turning):.1f} ms turned; "
        "what turning takes of the latter is the reduction (F116).",
        "The record's rate of turning was fitted to F115, so these two numbers cannot confirm it: what follows end to "
        "end can be read. Fig 6a measured Scores beside transfers only; without them the record has no other figure.",
        "The text of 5.1 is not in the copy at hand: 70 % is taken as what turning adds; as a part of both it would "
        "add 2.3 times Scores, which is the low end of the rate's interval.",
        "op-split loses less than FlexGen: the accelerator computes attention of one batch, of four the host keeps "
        "its part.",
    )
    reduction = 100 * turning / (turning + scores)
    found = (
        Found("PARK-F115", 100 * turning / scores),
        Found("PARK-F116.0", reduction),
        Found("PARK-F116.1", reduction),
    )
    return Study("13", "OPT-30B, caches kept as attention reads them, or turned", rows, found, notes)


def scores_seconds(asked: Question) -> tuple[float, float]:
    """Of one layer on the host in the mean decode step: turning the keys, and Scores itself."""
    frame = replace(asked, reshape=True).frame()
    costs = strategy(replace(asked, reshape=True), "op-split").costs
    units = frame.units({})
    tasks = layer_tasks(frame, Layout(units, 0, 0))

    def seconds(kind: TaskKind) -> float:
        return sum(costs.price(task).mid for task in tasks if task.kind == kind and task.operation == "scores")

    return seconds("reshape"), seconds("scores")


def _rows() -> Iterator[Row]:
    for (batches, batch), method in product(SHAPES, METHODS):
        for reshape, layout in LAYOUTS.items():
            asked = Question(batches=batches, batch=batch, reshape=reshape)
            yield {"layout": layout, **row(asked, f"{method} turned" if reshape else method, answer(asked, method))}
