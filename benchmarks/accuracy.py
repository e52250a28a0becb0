"""Predicted against measured on this machine: every model and format all on the CPUs, as layers split twice, with a
window, and with the matrices shared as other strategies share them.

    python -m benchmarks.accuracy --models Qwen3-0.6B Qwen3-1.7B --formats bf16 q8_0 q4_0 --checkpoints DIR
    python -m benchmarks.accuracy --models Qwen3-30B-A3B-q4_0-6.gguf gemma-3-4b-it-q4_0-34.gguf

A model is a name of the catalogue, whose random weights are written and kept in every format, or a GGUF file as it is,
e.g. one that `benchmarks.expert_speed` wrote. Models with routed experts are also planned with experts divided between
both devices and with experts cached in slots of the accelerator. One profile serves all, and none of the models' shapes
is in it. Prints, per cell, the plan, the predicted, simulated and measured decode step, the raw and the scaled signed
error, the noise, and how wide two intervals are: of the plan, which holds what the machine did while it was profiled,
and of the step at the speeds that probes read beside the runs, which `helm-check` prints (HELM-83, rules 6 and 7 of
measuring). A mark says which of them the measured step is outside; as errors are judged scaled, so are intervals, and
the plan's are reported beside.

A window is measured 8192 tokens deep, over caches of noise. `--stages` tells apart what needs the machine for itself
(profile, measure) and what does not (plan, check)."""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Literal

from benchmarks.machine import print_machine
from helmsman.analysis.check import others_of
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.routing import experts_of
from helmsman.lowering.tensors import parameters
from helmsman.schemas.formats import STORED_FORMATS, StoredFormat, size_of
from helmsman.schemas.hardware import OTHERS, Hardware
from helmsman.schemas.model import Model
from helmsman.schemas.plan import Plan
from helmsman.schemas.predicted import Interval
from helmsman.schemas.read import read_document
from helmsman.schemas.trace import read_trace

PROMPT, DEPTH, WINDOW, PAGE = 16, 8192, 2048, 512
ROOM = 28 << 20
"""Bytes of buffers beside weights and caches."""
STAGES = ("profile", "plan", "measure", "check")
MEDIAN, WORST = 0.04, 0.10
LEAST_COVERED, MOST_COVERED, WIDTH = 0.85, 0.97, 0.20
_COLUMNS = ("predicted", "simulated", "measured", "raw", "scaled", "noise", "raw width", "sc. width")
QUIET, ATTEMPTS = 0.08, 3
"""A measurement beside which others took a larger share of the processors is repeated."""


@dataclass(frozen=True)
class Placement:
    """A strategy and the memory that its plan may use: parts of the weights' bytes on the loopback accelerator and on
    the host. `of`: the models that can be placed so: those with one kind of plain block, those with routed experts, or
    any."""

    name: str
    accelerator: float
    host: float
    deep: bool = False
    strategy: str = "layer-split"
    of: Literal["any", "dense", "experts"] = "any"

    def suits(self, model: Model) -> bool:
        """Whether a model can be placed so."""
        if self.of == "experts":
            return any(experts_of(model, layer) for layer in range(model.layers))
        return self.of == "any" or model.is_dense


PLACEMENTS = (
    Placement("all-cpu", 0.0, 2.0),
    Placement("most on the host", 0.6, 0.75),
    Placement("most on the accelerator", 0.85, 0.4),
    Placement("window", 0.85, 0.6, deep=True, of="dense"),
    Placement("optimal", 0.4, 0.9, strategy="optimal", of="dense"),
    Placement("op-split", 0.4, 2.0, strategy="op-split", of="dense"),
    Placement("hetegen", 0.4, 2.0, strategy="hetegen", of="dense"),
    Placement("twinpilots", 0.4, 2.0, strategy="twinpilots", of="dense"),
    Placement("experts divided", 0.5, 2.0, strategy="ktransformers", of="experts"),
    Placement("experts cached", 0.4, 2.0, strategy="freetoken", of="experts"),
)


@dataclass(frozen=True)
class Cell:
    """One model in one format with one placement; its files are `work`/name.*. `weights`: the GGUF file that has
    them; None where a checkpoint has them, to be kept in `format`."""

    model: Model
    format: StoredFormat | Literal["native"]
    placement: Placement
    work: Path
    weights: Path | None = None

    @property
    def name(self) -> str:
        """Without spaces."""
        model = self.model.name if self.weights is None else self.weights.stem
        return f"{model}-{self.format}-{self.placement.name.replace(' ', '-')}"

    def file(self, ending: str) -> Path:
        """One of its files."""
        return self.work / f"{self.name}.{ending}"

    @property
    def prompt(self) -> int:
        """Tokens before the first step."""
        return DEPTH if self.placement.deep else PROMPT

    @property
    def sizes(self) -> tuple[int, int]:
        """Bytes of memory for the accelerator and for the host, which has the caches of a window too."""
        if self.format == "native":
            assert self.weights is not None
            weights = self.weights.stat().st_size
        else:
            weights = size_of(parameters(self.model), self.format)
        parts = (int(part * weights) for part in (self.placement.accelerator, self.placement.host))
        accelerator, host = (part + ROOM if part else 1 for part in parts)
        if self.placement.deep:
            token = 2 * self.model.layers * self.model.dense.kv_width * 2
            accelerator, host = accelerator + WINDOW * token, host + (DEPTH + PAGE) * token
        return accelerator, host


@dataclass(frozen=True)
class Row:
    """A cell's seconds and shares; `low` and `high`: the ends of the plan's interval as shares of its median;
    `scaled_low`, `scaled_high`: of the interval at the speeds of the runs."""

    model: str
    format: str
    plan: str
    predicted: float
    simulated: float
    measured: float
    error: float
    scaled_error: float
    noise: float
    low: float
    high: float
    scaled_low: float
    scaled_high: float
    others_cpu_share: float | None
    speed_now: dict[str, float]

    @property
    def width(self) -> float:
        """Of the plan's interval, as a share of its median."""
        return self.high - self.low

    @property
    def scaled_width(self) -> float:
        """Of the interval at the speeds of the runs, as a share of its median."""
        return self.scaled_high - self.scaled_low

    @property
    def covered(self) -> bool:
        """Whether the step as it was measured lies in the plan's interval."""
        return self.low <= 1 + self.error <= self.high

    @property
    def scaled_covered(self) -> bool:
        """Whether it lies in the interval at the speeds of the runs."""
        return self.scaled_low <= 1 + self.scaled_error <= self.scaled_high

    @property
    def within(self) -> bool:
        """Whether the scaled error is one that the worst cell may have."""
        return abs(self.scaled_error) <= WORST


def main() -> int:
    """Do the stages asked for; after the last, 4 where the errors or the intervals are beyond their bars."""
    args = _arguments()
    args.work.mkdir(parents=True, exist_ok=True)
    print_machine()
    record = args.work / "hardware.json"
    cells = tuple(_cells(args))
    if "profile" in args.stages:
        _quietly(partial(_profile, record, args), "the profile")
    if "plan" in args.stages:
        for cell in cells:
            _plan(cell, record, args)
    if "measure" in args.stages:
        for cell in cells:
            _quietly(partial(_measure, cell, args), cell.name)
    if "check" not in args.stages:
        return 0
    rows = list(_rows(cells))
    (args.work / "accuracy.json").write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 0 if verdict(rows) else 4


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["Qwen3-0.6B", "Qwen3-1.7B"])
    parser.add_argument("--formats", nargs="+", choices=STORED_FORMATS, default=["bf16", "q8_0", "q4_0"])
    parser.add_argument("--cells", nargs="+", choices=[each.name for each in PLACEMENTS], help="default: all")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES)
    parser.add_argument("--checkpoints", type=Path, default=Path("demo/checkpoints"))
    parser.add_argument("--work", type=Path, default=Path("demo/accuracy"))
    parser.add_argument("--accelerator", choices=("loopback", "cuda"), default="loopback", help="the second device")
    parser.add_argument("--vram", default="4GiB", help="of the loopback record; plans use parts of it")
    parser.add_argument("--output-tokens", type=int, default=12)
    parser.add_argument("--runs", type=int, default=9, help="short ones: probes stand between them")
    return parser.parse_args()


def _cells(args: argparse.Namespace) -> Iterator[Cell]:
    for name in args.models:
        model, file = load_model(name), Path(name) if Path(name).suffix == ".gguf" else None
        for fmt in args.formats if file is None else ("native",):
            for placement in PLACEMENTS:
                if args.cells is None and placement.deep and args.accelerator == "cuda":
                    continue  # a depth is not assumed there
                if placement.suits(model) and (args.cells is None or placement.name in args.cells):
                    yield Cell(model, fmt, placement, args.work, file)


def _quietly(measure: Callable[[], float | None], what: str) -> None:
    """Measure; again while others take too large a share of the processors, which `measure` returns."""
    for _ in range(ATTEMPTS):
        others = measure()
        if others is None or others <= QUIET:
            return
        print(f"{what}: other processes used {others:.0%} of the processors", file=sys.stderr)


def _profile(record: Path, args: argparse.Namespace) -> float | None:
    loopback = ("--loopback", f"cores=1,vram={args.vram},link=2GB/s,latency=20us")
    _command("helm-profile", *(loopback if args.accelerator == "loopback" else ()), "-q", "-o", record)
    readings = read_document(Hardware, record).readings
    return next((each.figure.value for each in readings if each.what == OTHERS), None)


def _plan(cell: Cell, record: Path, args: argparse.Namespace) -> None:
    accelerator, host = cell.sizes
    shape = ("--prompt-tokens", cell.prompt, "--output-tokens", args.output_tokens, "--format", cell.format)
    sizes = ("--vram-avail", accelerator, "--ram-avail", host)
    method = ("--strategy", cell.placement.strategy, "--objective", "latency")
    window = ("--kv-window", WINDOW) if cell.placement.deep else ()
    words = (*method, *sizes, *shape, *window, "-q", "-o", cell.file("json"))
    model = cell.model.name if cell.weights is None else cell.weights
    _command("helm-plan", "--model", model, "--hw", record, *words)


def _measure(cell: Cell, args: argparse.Namespace) -> float | None:
    """Prompts are run where they are short; deep caches hold noise but for their last token."""
    checkpoint = cell.weights or args.checkpoints / cell.model.name
    if not checkpoint.exists():
        args.checkpoints.mkdir(parents=True, exist_ok=True)
        _command("helm-make-checkpoint", "--model", cell.model.name, "--seed", 1, "-q", "-o", checkpoint)
    depth, tokens = (cell.prompt - 1 if cell.placement.deep else 0), cell.file("tokens")
    tokens.write_text(json.dumps([(37 * i) % 256 for i in range(cell.prompt - depth)]))
    run = ("helm-run", cell.file("json"), "--checkpoint", checkpoint, "--tokens", tokens, "--ignore-eos")
    deep = ("--depth", depth) if depth else ()
    _command(*run, *deep, "--runs", args.runs, "-q", "--trace", cell.file("parquet"))
    return others_of(read_trace(cell.file("parquet")))


def _rows(cells: Sequence[Cell]) -> Iterator[Row]:
    columns = [f"{name:>10}" for name in _COLUMNS]
    print(f"{'model':<26}{'format':<7}{'plan':<26}" + "".join(columns), flush=True)
    for cell in cells:
        row = _row(cell)
        print(_line(row), flush=True)
        yield row


def _row(cell: Cell) -> Row:
    plan = read_document(Plan, cell.file("json"))
    words = (cell.file("json"), "--measured", cell.file("parquet"), "--json")
    report = json.loads(_command("helm-check", *words, allowed=(0, 4, 6)))
    keys = ("predicted", "simulated", "measured", "error", "scaled_error", "noise")
    figures: dict[str, Any] = {key: report["step"][key] for key in keys}
    seconds: Interval = plan.predicted.decode.seconds
    scaled = Interval.model_validate(report["at_run_speeds"]["step_s"])
    ends: dict[str, Any] = {"low": seconds.low / seconds.mid, "high": seconds.high / seconds.mid}
    ends |= {"scaled_low": scaled.low / scaled.mid, "scaled_high": scaled.high / scaled.mid}
    others: dict[str, Any] = {"others_cpu_share": report["others_cpu_share"], "speed_now": report["speed_now"]}
    name = cell.model.name if cell.weights is None else cell.weights.stem
    return Row(name, cell.format, plan.label, **figures, **ends, **others)


def verdict(rows: Sequence[Row]) -> bool:
    """Print what all cells say together, and whether that is within the bars."""
    errors = [abs(row.scaled_error) for row in rows]
    covered = sum(row.scaled_covered for row in rows) / len(rows)
    width = median(row.scaled_width for row in rows)
    raw = sum(row.covered for row in rows) / len(rows)
    beyond = [row for row in rows if not row.within]
    print(f"|scaled error|: median {median(errors):.1%} (bar {MEDIAN:.0%}), worst {max(errors):.1%}, ", end="")
    print(f"{len(beyond)} of {len(rows)} beyond {WORST:.0%}")
    bars = (f"bar {LEAST_COVERED:.0%} to {MOST_COVERED:.0%}", f"bar {WIDTH:.0%}")
    print(f"intervals at the speeds of runs: {covered:.0%} cover ({bars[0]}), median width {width:.1%} ({bars[1]})")
    print(f"intervals of plans: {raw:.0%} cover, median width {median(row.width for row in rows):.1%}")
    sound = LEAST_COVERED <= covered <= MOST_COVERED and width <= WIDTH
    return median(errors) <= MEDIAN and not beyond and sound


def _command(*command: object, allowed: tuple[int, ...] = (0,)) -> str:
    words = [str(word) for word in command]
    program = str(Path(sys.executable).with_name(words[0]))
    done = subprocess.run([program, *words[1:]], check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode not in allowed:
        sys.exit(f"{' '.join(words)} ended with {done.returncode}")
    return done.stdout


def _line(row: Row) -> str:
    times = "".join(f"{1e3 * value:>7.2f} ms" for value in (row.predicted, row.simulated, row.measured))
    shares = "".join(f"{value:>+10.1%}" for value in (row.error, row.scaled_error, row.noise))
    widths = f"{row.width:>10.1%}{row.scaled_width:>10.1%}"
    marks = "".join(
        f"  {mark}"
        for mark, missed in (
            ("outside raw", not row.covered),
            ("outside scaled", not row.scaled_covered),
            ("beyond", not row.within),
        )
        if missed
    )
    return f"{row.model:<26}{row.format:<7}{row.plan:<26}{times}{shares}{widths}{marks}"


if __name__ == "__main__":
    sys.exit(main())
