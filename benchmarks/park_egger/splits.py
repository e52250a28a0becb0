"""Fig 14: L over one split point, with and without dividing Scores, plain and compressed (PARK-33, 62)."""

from dataclasses import replace

from benchmarks.park_egger.answer import Row
from benchmarks.park_egger.question import CHUNKS, Question, op_split
from benchmarks.park_egger.study import Found, Study
from helmsman.analysis.plots.split_curve import Names, split_curve
from helmsman.planner.strategies.op_split.strategy import OpSplit

PANELS = {
    "a": Question(chunks=1),
    "b": Question(chunks=CHUNKS),
    "c": Question(batch=100, compressed=True, chunks=1),
    "d": Question(batch=100, compressed=True, chunks=CHUNKS),
}


def study() -> Study:
    """Every point of the four curves, and what the published tables give."""
    found = {name: _searched(asked) for name, asked in PANELS.items()}
    best = {name: min(_totals(asked)) for name, asked in found.items()}
    compressed = _searched(replace(PANELS["a"], compressed=True))
    return Study(
        "14",
        "one split point, L as printed, whatever fits (ms per layer)",
        tuple(row for name, asked in found.items() for row in _rows(name, asked)),
        (
            Found("PARK-F137", 1e3 * _totals(found["a"])[0]),
            Found("PARK-F138", 1e3 * best["a"]),
            Found("PARK-F139", 1e3 * found["a"].every_split.best.seconds),
            Found("PARK-F140", 1e3 * best["b"]),
            Found("PARK-F145", 1e3 * _totals(compressed)[0]),
            Found("PARK-F146", 1e3 * compressed.every_split.best.seconds),
            Found("PARK-F117", 100 * (1 - best["a"] / _totals(found["a"])[0])),
            Found("PARK-F119", 100 * (1 - best["b"] / best["a"])),
        ),
        (
            "E-PARK-07: the percentages of Fig 14a and b do not follow from Fig 6a; values derived from the tables do.",
            "c, d: prices of 100 sequences are carried from the tables of 50; the paper prints none.",
        ),
    )


def _searched(asked: Question) -> OpSplit:
    return op_split(asked, printed=True)


def _totals(asked: OpSplit) -> list[float]:
    """L by the number of units before the split."""
    return [asked.every_split.at(start, len(asked.units)).seconds for start in range(len(asked.units) + 1)]


def _rows(panel: str, asked: OpSplit) -> list[Row]:
    curves = split_curve(asked.every_split, asked.units, asked.every_split.best, Names("", "", "L", "GPU"))
    line = next(each for each in curves.lines if each.side == "host")
    names = ("GPU-only", *curves.units)
    return [
        {
            "panel": panel,
            "last on CPU": names[point],
            "CPU": 1e3 * line.cpu[at],
            "H2D": 1e3 * line.h2d[at],
            "decompress": 1e3 * line.decompress[at],
            "L": 1e3 * line.total[at],
            "against GPU-only": line.total[at] / line.total[0] - 1,
        }
        for at, point in enumerate(line.at)
    ]
