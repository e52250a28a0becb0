"""Speeds of models with experts or windows beside llama.cpp: random weights of real shapes, one engine at a time.

    python -m benchmarks.expert_speed FOLDER --peer-python PYTHON [--models NAME,..] [--layers N|all]
        [-p 128,1024] [-n 32] [-d 0,4096] [--threads 2] [--pairs 5] [--skewed] [--json FILE]

Files are written into FOLDER, where they are not there yet: the first N layers of a model (default: as many as give
2.5 GB), all of them need 2 to 17 GB each. Engines run in fresh processes that alternate, each of which loads the file,
runs every test once to warm up and once to be timed; so that only one of them is in memory. Between two processes a
plain read of memory is timed, with as many threads. Ratios are medians of pair-wise ones, with the least and the
largest; decode is also compared with the reads beside it, over the bytes that its steps must read. `peak`: resident
memory when a model has been loaded, less its file. Routing is that of the weights: about uniform, or with `--skewed`
that of routers whose rows are smaller the later their expert: a quarter of 128 experts takes three quarters of the
choices."""

import argparse
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.kernel_bench import Bench, open_bench
from benchmarks.machine import print_machine
from benchmarks.peers import plan_at, streamed
from benchmarks.rows import show
from helmsman.cli.plan import main as plan_main
from helmsman.engines.engine_process import engine_process, worker_command
from helmsman.engines.programs import EngineProgram
from helmsman.executor.checkpoint.gguf_write import write_gguf
from helmsman.executor.measuring.bench import Test, longest_prompt, tests_of
from helmsman.executor.system.interference import cpu_times, others_share
from helmsman.hwdb.gguf_files import gguf_places
from helmsman.hwdb.load_model import load_model
from helmsman.schemas.formats import FileFormat
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import read_document

CUTS: dict[str, tuple[FileFormat, int]] = {
    "Qwen3-30B-A3B": ("q4_0", 6),
    "gpt-oss-20b": ("mxfp4", 2),
    "gemma-3-4b-it": ("q4_0", 34),
    "Qwen3.5-35B-A3B": ("q4_0", 4),
}
"""By catalogue name, the format and how many layers are 2.5 GB or the whole model."""
SKEW = 0.1
"""Standard deviation of the last expert's logits over that of the first expert's, where routing is skewed."""

READS = 5
"""Reads of memory before our process, and after it: the first ones of a pool that has waited are slow."""


@dataclass(frozen=True)
class SpeedRow:
    """Tokens per second of a test, ours and theirs; ratios of pairs; `of_reads`: decode over reads beside it;
    `others`: share of CPU time that other processes took."""

    model: str
    layers: int
    test: str
    threads: int
    ours: float
    theirs: float
    ratio: float
    low: float
    high: float
    of_reads: float | None
    peak: int
    others: float | None

    def __str__(self) -> str:
        reads = "" if self.of_reads is None else f" | {self.of_reads:.2f} of reads"
        others = "?" if self.others is None else f"{self.others:.0%}"
        return (
            f"{self.model:14s} {self.layers:3d} layers {self.test:14s} {self.threads} thr {self.ours:8.1f} tokens/s |"
            f" llama.cpp {self.theirs:8.1f} | ratio {self.ratio:5.2f} [{self.low:.2f}, {self.high:.2f}]{reads}"
            f" | peak {self.peak / 2**20:+.0f} MiB | others {others}"
        )


def main() -> int:
    """Measure and print."""
    args = _arguments()
    print_machine()
    bench = open_bench(1)
    show((row for name in args.models for row in _rows(args, name, bench)), args.json)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--peer-python", type=Path, required=True)
    parser.add_argument("--models", type=_cut_models, default=list(CUTS))
    parser.add_argument("--layers", help="a number, or all (default: what makes 2.5 GB)")
    parser.add_argument("-p", "--prompts", type=_counts, default=(128, 1024))
    parser.add_argument("-n", "--steps", type=int, default=32)
    parser.add_argument("-d", "--depths", type=_counts, default=(0, 4096))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--skewed", action="store_true", help="some experts are chosen more often than others")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _cut_models(text: str) -> list[str]:
    """Return the names of models; raises ArgumentTypeError for one that CUTS does not have."""
    names = text.split(",")
    for name in names:
        if name not in CUTS:
            raise argparse.ArgumentTypeError(f"unknown model {name!r}; use {', '.join(CUTS)}")
    return names


def _counts(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def _rows(args: argparse.Namespace, name: str, bench: Bench) -> Iterator[SpeedRow]:
    place = _written(args, name)
    tests = (*tests_of(args.prompts, (), (0,)), *tests_of((), (args.steps,), args.depths))
    context = max(test.context for test in tests)
    plan_file = place.with_suffix(".plan.json")
    if plan_main(["--model", str(place), "--hw", "this", "--strategy", "cpu-only", "-o", str(plan_file), "-q"]):
        raise SystemExit(f"{place}: no plan")
    plan = plan_at(read_document(Plan, plan_file), args.threads, context)
    worker = [sys.executable, "-m", "benchmarks.helm_worker", str(plan_file), str(place), str(args.threads)]
    ours = [*worker, str(context), str(longest_prompt(tests, fills=False))]
    program = EngineProgram("llama.cpp", "package", str(args.peer_python))
    settings = {"model": str(place.absolute()), "threads": args.threads, "context": context, "flash": "off"}
    theirs = worker_command(program, settings)
    before = cpu_times()
    pairs = [_pair(ours, theirs, tests, bench, args.threads, index % 2 == 0) for index in range(args.pairs)]
    others = others_share(before, cpu_times())
    peak = max(pair.peak for pair in pairs) - place.stat().st_size
    for index, test in enumerate(tests):
        tokens = test.prompt or test.steps
        rates = [(tokens / pair.ours[index], tokens / pair.theirs[index]) for pair in pairs]
        ratios = [mine / its for mine, its in rates]
        reads = [streamed(plan, test) / pair.ours[index] / pair.read for pair in pairs] if test.steps else None
        yield SpeedRow(
            name, plan.model.layers, test.name, args.threads, *(median(side) for side in zip(*rates, strict=True)),
            median(ratios), min(ratios), max(ratios), None if reads is None else median(reads), peak, others,
        )  # fmt: skip


def _written(args: argparse.Namespace, name: str) -> Path:
    """Return the file of a model's first layers, which is written where it is not there."""
    fmt, layers = CUTS[name]
    model = load_model(name)
    if args.layers is not None:
        layers = model.layers if args.layers == "all" else int(args.layers)
    place: Path = args.folder / f"{name}-{fmt}-{layers}.gguf"
    if not place.exists():
        write_gguf(model.with_layers(layers), place, 0, fmt)
    return _skewed(place) if args.skewed else place


def _skewed(place: Path) -> Path:
    """Return a copy of a file whose routers choose the first experts most often, which is written where it is not
    there: the logits of an expert spread less, so that it is among the largest more seldom."""
    copy = place.with_stem(f"{place.stem}-skewed")
    if copy.exists():
        return copy
    shutil.copyfile(place, copy)
    for name, tensor in gguf_places(copy).items():
        if name.endswith("ffn_gate_inp.weight"):
            experts, hidden = tensor.shape
            rows = np.memmap(copy, np.float32, "r+", tensor.start, (experts, hidden))
            rows *= SKEW ** np.linspace(0.0, 1.0, experts, dtype=np.float32)[:, None]
    return copy


@dataclass(frozen=True)
class _Pair:
    """Seconds of every test by both engines; `read`: bytes per second of reads between them; `peak`: bytes."""

    ours: tuple[float, ...]
    theirs: tuple[float, ...]
    read: float
    peak: int


def _pair(
    ours: Sequence[str], theirs: Sequence[str], tests: Sequence[Test], bench: Bench, threads: int, first: bool
) -> _Pair:
    its = None if first else answers_of(theirs, tests)[1]
    reading = bench.reading(threads)
    before = [reading.seconds() for _ in range(READS)]
    peak, mine = answers_of(ours, tests)
    read = reading.work * 1e9 / median((*before, *(reading.seconds() for _ in range(READS))))
    return _Pair(mine, its or answers_of(theirs, tests)[1], read, peak)


def answers_of(command: Sequence[str], tests: Sequence[Test]) -> tuple[int, tuple[float, ...]]:
    """Return bytes of resident memory once a process has loaded its model, and its seconds of every test when that is
    run the second time."""
    with engine_process(command, command[0]) as process:
        both = [[process.seconds(test.prompt, test.steps, test.depth) for _ in range(2)] for test in tests]
        return process.peak, tuple(second for _, second in both)


if __name__ == "__main__":
    sys.exit(main())
