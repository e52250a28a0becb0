"""Engines side by side for people: llama-bench's Markdown, and CSV."""

import csv
import io
from collections.abc import Iterator

from helmsman.executor.measuring.bench import Test
from helmsman.executor.measuring.bench_report import markdown_table, parameter_count, size_text
from helmsman.schemas.engine_bench import BenchedEngine, EngineBench, EngineTest
from helmsman.schemas.figures import DISTURBED
from helmsman.schemas.units import format_number

_HEAD = ("model", "size", "params", "backend", "threads", "engine", "test", "t/s", "predicted")
_LEFT = ("model", "backend", "engine")
_FIELDS = (
    "engine", "program", "model_filename", "model_type", "model_size", "model_n_params", "backends", "n_threads",
    "n_prompt", "n_gen", "n_depth", "avg_ns", "stddev_ns", "avg_ts", "stddev_ts", "predicted_low_ts", "predicted_ts",
    "predicted_high_ts",
)  # fmt: skip


def bench_markdown(bench: EngineBench) -> str:
    """Return llama-bench's columns with the engine and what had been predicted; the tests one after the other."""
    rows = [_cells(bench, engine, test) for engine, test in _rows(bench)]
    lines = [f"machine: {bench.machine}", "", markdown_table(_HEAD, rows, _LEFT), ""]
    lines += [f"{engine.engine}: {engine.program}{_settings(engine)}" for engine in bench.engines]
    if bench.others_cpu_share is not None and bench.others_cpu_share > DISTURBED:
        lines.append(f"disturbed: other processes used {bench.others_cpu_share:.0%} of the processors")
    return "\n".join(lines)


def bench_csv(bench: EngineBench) -> str:
    """Return one line for every engine and test, under llama-bench's names of fields."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(_FIELDS)
    for engine, test in _rows(bench):
        predicted = test.predicted_ts
        ends = ("", "", "") if predicted is None else (predicted.low, predicted.mid, predicted.high)
        writer.writerow(
            (
                engine.engine, engine.program, bench.model_filename, bench.model_type, bench.model_size,
                bench.model_n_params, engine.backends, engine.n_threads, test.n_prompt, test.n_gen, test.n_depth,
                test.avg_ns, test.stddev_ns, test.avg_ts, test.stddev_ts, *ends,
            )
        )  # fmt: skip
    return stream.getvalue().rstrip("\n")


def _rows(bench: EngineBench) -> Iterator[tuple[BenchedEngine, EngineTest]]:
    """Yield every test of every engine, those of one test beside each other."""
    for place in range(len(bench.engines[0].results)):
        yield from ((engine, engine.results[place]) for engine in bench.engines)


def _cells(bench: EngineBench, engine: BenchedEngine, test: EngineTest) -> tuple[str, ...]:
    predicted = test.predicted_ts
    expected = (
        "" if predicted is None else " .. ".join(format_number(end, 3) for end in (predicted.low, predicted.high))
    )
    said = "-" if predicted is None else f"{predicted.mid:.2f} [{expected}]"
    return (
        bench.model_type, size_text(bench.model_size), parameter_count(bench.model_n_params), engine.backends,
        str(engine.n_threads), engine.engine, Test(test.n_prompt, test.n_gen, test.n_depth).name,
        f"{test.avg_ts:.2f} ± {test.stddev_ts:.2f}", said,
    )  # fmt: skip


def _settings(engine: BenchedEngine) -> str:
    return f": {engine.settings}" if engine.settings else ""
