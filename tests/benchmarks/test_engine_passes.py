"""Constants fitted to passes of known ones, and grids of measured seconds."""

import json
from dataclasses import replace
from itertools import product
from statistics import median

import pytest
from benchmarks.engine_passes.fit import PassFit
from benchmarks.engine_passes.grids import Grid
from benchmarks.engine_passes.predict import Predictor
from benchmarks.engine_passes.profiles import PassShape
from benchmarks.engine_passes.questions import MeasuredPass
from benchmarks.engine_passes.report import outcomes, report
from benchmarks.engine_passes.table import table_of, written
from benchmarks.engine_passes.work import tasks_of

from helmsman.hwdb.catalogue import find_gpu
from helmsman.hwdb.engine_classes import lineage
from helmsman.hwdb.pass_constants import PassConstants, of_node, pass_constants

GPUS = ("L40S", "RTX A6000", "RTX 4090")
PASSES = (
    *(PassShape("decode", batch, 1, context) for batch, context in ((1, 1024), (16, 4096), (64, 1024), (128, 256))),
    *(PassShape("prefill", 1, tokens, tokens) for tokens in (128, 1024)),
)


def known_of(gpu: str) -> PassConstants:
    """Return constants of a GPU of which one differs from its kind's."""
    found = pass_constants("RTX 5090", "geforce-blackwell", "cuda")
    assert found is not None
    return replace(found, cache=found.cache * (0.6 if gpu == "L40S" else 1.0))


def measured(gpu: str) -> list[MeasuredPass]:
    sheet, _ = find_gpu(gpu)
    nodes, predictor = lineage(sheet.name, sheet.device_class, "cuda"), Predictor.of(gpu, known_of(gpu))
    rows = []
    for name, shape in product(("Llama-3.2-1B", "Qwen3-8B"), PASSES):
        parts = dict.fromkeys(("products", "head", "attention", "other"), 0.0)
        bare = MeasuredPass(
            gpu, "made", name, shape, tasks_of(name, shape), parts, nodes, sheet.bandwidth, sheet.flops, False, "16"
        )
        rows.append(replace(bare, parts=predictor.parts(bare)))
    return rows


def test_passes_of_known_constants_are_met_with_and_without_their_gpu() -> None:
    rows = [row for gpu in GPUS for row in measured(gpu)]
    fit = PassFit(rows)
    with_them, without = outcomes(rows, fit, left_out=False), outcomes(rows, fit, left_out=True)
    assert median(abs(outcome.error) for outcome in with_them) < 0.06
    slower = [outcome for outcome in without if outcome.row.gpu == "L40S" and outcome.row.shape.batch == 16]
    ratios = [outcome.said["attention"] / outcome.row.parts["attention"] for outcome in slower]
    assert len(ratios) == 2 and all(0.5 < ratio < 0.9 for ratio in ratios), "nobody else has its slow caches"
    table = json.loads(written(table_of(rows, fit)))
    node = table["nodes"]["cuda/gddr/workstation-ada/L40S"]
    assert of_node("L40S", node).cache == pytest.approx(known_of("L40S").cache, rel=0.1)
    assert "| L40S, steps |" in report(rows, fit)


def test_seconds_between_points_are_straight_in_logarithms() -> None:
    grid = Grid({(x, y): x * y**2 for x, y in product((1.0, 4.0, 16.0), (2.0, 8.0))})
    assert grid.at(2.0, 4.0) == pytest.approx(32.0)
    assert grid.at(16.0, 8.0) == pytest.approx(1024.0)
    assert grid.at(32.0, 4.0) is None
