"""Park & Egger: operation tables that the record carries, and the studies of the evaluation."""

from dataclasses import replace

from benchmarks.papers.facts.answer import EXACT, MODELLED, POINTS, Answer, Answers
from benchmarks.park_egger import ablation, limits, overlap, splits, throughput, turning
from benchmarks.park_egger.question import CHUNKS, MACHINE, NVME, OUTPUTS, PROMPT, Question
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.schemas.operation_table import OperationRow

_OPS = ("norm1", "q", "k", "v", "scores", "softmax", "wv", "o", "norm2", "up", "down")
_COLUMNS = {1: "transfer", 12: "host", 45: "accelerator", 56: "transfer_q4", 67: "decompress", 78: "storage"}
"""The first fact of each printed column, in the order of the operations."""
_PERCENT = ("F103", "F104", "F115", "F116", "F117", "F119", "F122", "F128", "F131", "F132", "F133")
_LEAST = ("F103", "F104")
"""Printed as `at least`."""
_DOUBTS = {"F117": "E-PARK-07", "F119": "E-PARK-07", "F133": "E-PARK-13", "F134": "E-PARK-13"}
_STUDIES = (splits.study, throughput.study, overlap.study, turning.study, ablation.variants, limits.study)


def answers() -> Answers:
    """Everything that is computed or given."""
    return {**_record(), **_studies()}


def _record() -> dict[str, Answer]:
    machine = load_hardware(MACHINE, None)
    table = machine.tables[0]
    found = {}
    for first, column in _COLUMNS.items():
        for place, op in enumerate(_OPS):
            row = table.row(op)
            found[f"PARK-F{first + place:03}"] = Answer(1e3 * _seconds(row, column), EXACT, "given")
    units = len(Question().frame().units({}))
    given = {"F109": len(NVME), "F121": CHUNKS, "F135": PROMPT, "F110": units * (units - 1) // 2}
    found |= {f"PARK-{fact}": Answer(float(value), 0.0, "given") for fact, value in given.items()}
    return found | {f"PARK-F136.{place}": Answer(float(each), 0.0, "given") for place, each in enumerate(OUTPUTS)}


def _seconds(row: OperationRow | None, column: str) -> float:
    figure = getattr(row, column) if row is not None else None
    return figure.value if figure is not None else 0.0


def _studies() -> dict[str, Answer]:
    answers = {}
    for study in _STUDIES:
        for each in study().found:
            fact = each.fact.removeprefix("PARK-")
            name = fact.partition(".")[0]
            points = name in _PERCENT
            answer = Answer(each.value, POINTS if points else MODELLED, points=points, doubt=_DOUBTS.get(name, ""))
            answers[each.fact] = replace(answer, kind="at least", tolerance=1.0) if name in _LEAST else answer
    return answers
