"""Table 2: what preparing costs, part by part (PARK-50): measuring a layer on this machine, searching for the paper's.

The paper profiles on its own machine; here the executor measures the same layers on this one, with a loopback
accelerator. What can be compared is which parts there are and how they grow, not seconds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from time import perf_counter

from benchmarks.park_egger.answer import Row
from benchmarks.park_egger.question import CHUNKS, MODELS, OUTPUTS, PROMPT, Question, op_split
from benchmarks.park_egger.study import Found, Study
from helmsman.executor.profile import question as layers
from helmsman.executor.profile.run import profile
from helmsman.executor.profile.settings import Loopback
from helmsman.executor.profile.table import measure_table
from helmsman.executor.profile.table_place import TablePlace
from helmsman.executor.system.machine import Machine
from helmsman.hwdb.load_model import load_model
from helmsman.planner.strategies.op_split.entry import search_parts
from helmsman.planner.strategies.op_split.strategy import OpSplit
from helmsman.schemas.errors import HardwareUnavailableError

LINK = Loopback(link=4e9)
"""Slower ones would bring a layer of OPT-30B in no reasonable time."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A line of Table 2: the fact that gives its seconds, and its question; 100 sequences only fit compressed."""

    fact: str
    model: str
    batch: int
    chunks: int

    @property
    def asked(self) -> Question:
        """What is searched."""
        return Question(model=self.model, batch=self.batch, chunks=self.chunks, compressed=self.batch > 1)


LINES = (
    Prepared("PARK-F096", "OPT-30B", 1, 1),
    Prepared("PARK-F097", "OPT-30B", 100, 1),
    Prepared("PARK-F098", "OPT-30B", 100, CHUNKS),
    Prepared("PARK-F099", "LLaMA-2-34B", 1, 1),
    Prepared("PARK-F100", "LLaMA-2-34B", 100, 1),
    Prepared("PARK-F101", "LLaMA-2-34B", 100, CHUNKS),
)

Measured = Callable[[str, int], Mapping[str, float] | None]
"""Seconds of the parts of measuring a layer of a model for so many sequences; None where there is no room."""


def study(lines: tuple[Prepared, ...] = LINES) -> Study:
    """Every line; a layer is measured once, however Scores are divided."""
    machine = Machine.this()
    began = datetime.now(UTC)
    place = TablePlace.of(profile(machine, LINK, f"{began:%Y-%m-%d}"), machine)
    took = (datetime.now(UTC) - began).total_seconds()
    once = cache(partial(measured, place))
    rows = tuple(row(line, once) for line in lines)
    found = (Found(line.fact, total) for line, each in zip(lines, rows, strict=True) if (total := _total(each)))
    notes = (
        f"Measured on this machine ({len(machine.cpus)} CPUs); {took:.0f} s for the machine, once for all lines.",
        "Searches are for the paper's machine; the finalists among splits are predicted in full, which the paper does "
        "not do. A line without figures lacks memory here.",
    )
    return Study("table2", "seconds of preparing, by part", rows, tuple(found), notes)


def row(line: Prepared, measure: Measured) -> Row:
    """The parts of a line, and their sum."""
    head: Row = {"model": line.model, "input": f"1x{line.batch}", "Scores divided": line.chunks > 1}
    measuring, searching = measure(line.model, line.batch), _searching(op_split(line.asked))
    if measuring is None:
        return {**head, **dict.fromkeys(PARTS), **searching, "total": None}
    return {**head, **measuring, **searching, "total": sum(measuring.values()) + sum(searching.values())}


PARTS = (
    "layers in memory",
    "host by threads",
    "host beside the link",
    "accelerator beside the link",
    "turning of keys",
    "expansion of 4-bit groups",
    "storage",
)
"""Of measuring, as the profiler names them."""


def measured(place: TablePlace, model: str, batch: int) -> Mapping[str, float] | None:
    """Return the seconds that each part of measuring a layer of `model` took on this machine, at the mean context of
    the paper's shortest outputs; None where the machine cannot measure it."""
    question = layers.LayerQuestion(load_model(MODELS[model]), batch, PROMPT + OUTPUTS[0] // 2)
    try:
        return measure_table(place, question).parts
    except HardwareUnavailableError:
        return None


def _total(row: Row) -> float | None:
    total = row["total"]
    return total if isinstance(total, float) else None


def _searching(split: OpSplit) -> Mapping[str, float]:
    """Seconds of the parts of a search."""
    return {name: _seconds(part) for name, part in search_parts(split).items()}


def _seconds(part: Callable[[], object]) -> float:
    began = perf_counter()
    part()
    return perf_counter() - began
