"""Had Helm called which settings of llama.cpp are faster here? Files of random weights, settings in turns.

    python -m benchmarks.referee FOLDER --peer-python PYTHON [--models NAME,..] [--formats q4_0,q8_0]
        [--contexts 256,2048] [--runs 7] [--fit] [--json FILE]

For every model, format and context (twelve cells by default) llama.cpp runs with the settings that Helm writes for its
plan of this machine, with its own (its default, or with --fit what it places), and with Helm's second choice, as
`helm-check --engine` has them: in fresh processes that take turns. A cell is right where all its calls are, and kept
where the plan's settings are not slower than llama.cpp's own beyond noise. Bars: 11 of 12 cells right, all kept.
A prompt is a context less 128 tokens that are made.
Files are written into FOLDER where they are not there yet; `--peer-python`: an interpreter with llama-cpp-python. Exit
code 1 where a bar is missed. Nothing else may run meanwhile: a cell says what share of processor time others took."""

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

from benchmarks.machine import print_machine
from helmsman.engines.contest import referee
from helmsman.executor.checkpoint.gguf_write import write_gguf
from helmsman.hwdb.load_model import load_model
from helmsman.library import plan
from helmsman.schemas.engine_contest import EngineContest, OwnChoice

MODELS = ("Qwen3-0.6B", "Llama-3.2-1B", "Qwen3-1.7B")
OUTPUT = 128
"""Tokens that a request makes."""
BAR = 11 / 12
"""The share of cells whose calls must be right."""


@dataclass(frozen=True)
class CellRow:
    """A cell: its verdict, whether the plan's settings were no slower than llama.cpp's own, by how much more time these
    took, measured with its interval and predicted, and others' share of processor time."""

    model: str
    fmt: str
    context: int
    right: bool
    kept: bool
    relative: float
    low: float
    high: float
    predicted: float | None
    settings: str
    others: float | None

    def __str__(self) -> str:
        said = "?" if self.predicted is None else f"{self.predicted:+.1%}"
        others = "?" if self.others is None else f"{self.others:.0%}"
        return (
            f"{self.model:14s} {self.fmt:5s} context {self.context:5d} | own {self.relative:+.1%}"
            f" [{self.low:+.1%} .. {self.high:+.1%}], predicted {said} | {'right' if self.right else 'WRONG'}"
            f"{'' if self.kept else ', SLOWER than its own'} | others {others} | {self.settings}"
        )


def main() -> int:
    """Measure, print, judge."""
    args = _arguments()
    print_machine()
    rows = []
    for name, fmt, context in product(args.models, args.formats, args.contexts):
        rows.append(_row(args, name, fmt, context))
        print(rows[-1], flush=True)
        if args.json is not None:
            args.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    right, kept = sum(row.right for row in rows), sum(row.kept for row in rows)
    print(f"{right} of {len(rows)} cells right, {kept} no slower than llama.cpp's default")
    return 0 if right >= BAR * len(rows) and kept == len(rows) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--peer-python", type=Path, required=True)
    parser.add_argument("--models", type=lambda text: text.split(","), default=list(MODELS))
    parser.add_argument("--formats", type=lambda text: text.split(","), default=["q4_0", "q8_0"])
    parser.add_argument("--contexts", type=lambda text: [int(part) for part in text.split(",")], default=[256, 2048])
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _row(args: argparse.Namespace, name: str, fmt: str, context: int) -> CellRow:
    place: Path = args.folder / f"{name}-{fmt}.gguf"
    if not place.exists():
        write_gguf(load_model(name), place, 0, fmt)
    question = {"model": str(place), "hardware": "this", "engine": "llama.cpp", "context": context}
    decision = plan({**question, "prompt_tokens": context - OUTPUT, "output_tokens": OUTPUT})
    choice: OwnChoice = "fit" if args.fit else "default"
    contest = referee(decision.plan, place, python=args.peer_python, runs=args.runs, own_choice=choice)
    return row_of(name, fmt, context, contest)


def row_of(name: str, fmt: str, context: int, contest: EngineContest) -> CellRow:
    """Return a cell's row: right where every call that was made is, disturbed or not."""
    first = contest.calls[0]
    return CellRow(
        model=name,
        fmt=fmt,
        context=context,
        right=all(call.right is True for call in contest.calls),
        kept=first.ran != "slower",
        relative=first.relative,
        low=first.low,
        high=first.high,
        predicted=first.predicted,
        settings=contest.sides[0].settings,
        others=contest.others_cpu_share,
    )


if __name__ == "__main__":
    sys.exit(main())
