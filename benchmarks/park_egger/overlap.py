"""Fig 18: what works at the same time in a decoder layer (PARK-64), and FlexGen's shares of section 2.3."""

from collections.abc import Iterator

from benchmarks.park_egger.answer import Lacks, Row, answer
from benchmarks.park_egger.question import Method, Question
from benchmarks.park_egger.study import Found, Study
from helmsman.simulator.overlap import FIELDS, OverlapShares

SHAPES = ((1, 25, False), (1, 50, False), (1, 50, True), (1, 100, True), (4, 10, False), (4, 25, True), (4, 60, True))
"""Batches, sequences of each, compressed."""
_TRANSFERS = ("h2d", "h2d_cpu", "h2d_gpu", "all")
_HOST = ("cpu", "h2d_cpu", "cpu_gpu", "all")
_IDLE = ("h2d", "h2d_cpu", "cpu", "other", "idle")


def study() -> Study:
    """Shares of the decode step in the middle."""
    rows = tuple(_rows())
    multi = [row for row in rows if not str(row["shape"]).startswith("1x")]
    found = (
        Found("PARK-F128", 100 * max(_share(row, _HOST) for row in multi if row["method"] == "op-split")),
        Found("PARK-F103", 100 * min(_share(row, _TRANSFERS) for row in rows if _flexgen(row))),
        Found("PARK-F104", 100 * min(_share(row, _IDLE) for row in multi if _flexgen(row))),
    )
    notes = (
        "Fig 18's rows: H2D only = h2d, OVL_HC = h2d_cpu, OVL_CG = cpu_gpu, GPU only = gpu. The paper's layer has "
        "transfers beside all of the others; h2d_gpu and all are these overlaps, apart.",
        "FlexGen without compression: section 2.3 does not say which workload its shares are of.",
    )
    return Study("18", "OPT-30B, shares of a decode step by what works", rows, found, notes)


def _rows() -> Iterator[Row]:
    methods: tuple[Method, ...] = ("op-split", "gpu-only", "flexgen")
    for batches, batch, compressed in SHAPES:
        asked = Question(batches=batches, batch=batch, compressed=compressed)
        for method in methods:
            found = answer(asked, method)
            if not isinstance(found, Lacks):
                head: Row = {"shape": asked.shape, "compressed": compressed, "method": method}
                yield {**head, **_shares(found.shares)}


def _shares(shares: OverlapShares) -> Row:
    return {name: getattr(shares, name) / shares.total for name in FIELDS}


def _share(row: Row, names: tuple[str, ...]) -> float:
    return sum(value for name in names if isinstance(value := row[name], float))


def _flexgen(row: Row) -> bool:
    return row["method"] == "flexgen" and row["compressed"] is False
