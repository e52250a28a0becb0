"""Files of results, each read as what its content is."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from helmsman.analysis.bench_files.aiperf import aiperf_runs, is_aiperf
from helmsman.analysis.bench_files.llama_bench import csv_rows, is_llama_bench, json_rows, jsonl_rows, table_rows
from helmsman.analysis.bench_files.measured_run import MeasuredRun, RefusedResult
from helmsman.analysis.bench_files.vllm_bench import is_vllm_bench, vllm_runs
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.read import parse_json, read_bytes

LIMIT = 64 * 2**20
"""Bytes of the largest result that is read: detailed ones of vLLM hold every latency."""

_KINDS = "llama-bench (json, jsonl, csv, md), vllm bench, AIPerf, or a Trace (.parquet)"


def read_results(path: Path) -> Iterator[MeasuredRun | RefusedResult]:
    """Yield the runs of a result. Raises BadInputError for a file that is none that is known."""
    data = read_bytes(path, LIMIT)
    if data[:4] == b"PAR1":
        problem = "a Trace says which tasks ran, not of which plan"
        raise BadInputError(problem, file=str(path), remedy="give its plan too: --plan")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInputError("not a text", file=str(path), remedy=f"give a result of {_KINDS}") from None
    return _counted(_read(text, str(path)), str(path))


def _read(text: str, file: str) -> Iterable[MeasuredRun | RefusedResult]:
    start = text.lstrip()
    if start.startswith(("{", "[")):
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) > 1 and all(line.startswith("{") and line.rstrip().endswith("}") for line in lines):
            return jsonl_rows(text, file)
        content = parse_json(text.encode(), file, frozenset({"request_rate"}))
        if is_llama_bench(content):
            return json_rows(content, file)
        if is_aiperf(content):
            return aiperf_runs(content, file)
        if is_vllm_bench(content):
            return vllm_runs(content, file)
    if start.startswith(("build_commit", '"build_commit"')):
        return csv_rows(text, file)
    if "| test |" in " ".join(text.split()) and "t/s" in text:
        return table_rows("\n".join(line for line in text.splitlines() if line.lstrip().startswith("|")), file)
    if "INSERT INTO" in text:
        problem = "SQL of llama-bench is not read"
        raise BadInputError(problem, file=file, remedy="write it with -o json")
    raise BadInputError("no result that is known", file=file, remedy=f"give one of {_KINDS}")


def _counted(runs: Iterable[MeasuredRun | RefusedResult], file: str) -> Iterator[MeasuredRun | RefusedResult]:
    count = 0
    for run in runs:
        count += 1
        yield run
    if not count:
        raise BadInputError("has no result", file=file, remedy="run the benchmark to its end")
