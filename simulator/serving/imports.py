"""Measured runs as tables of served requests, whoever measured: ours, vLLM's bench serve, AIPerf.

Other tools' requests that got no output are left out, as they are where their files are read as requests; so what is
simulated of a file compares with what was measured of it, row by row."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from helmsman.schemas.errors import BadInputError
from helmsman.schemas.read import parse_json, read_bytes
from helmsman.schemas.requests import Floats, Ints
from helmsman.schemas.served_table import FINISHED, Gaps, ServedInfo, ServedTable, check_served, read_served
from helmsman.simulator.serving.requests.aiperf import read_records
from helmsman.simulator.serving.requests.objects import numbers
from helmsman.simulator.serving.requests.read import JSON_LIMIT
from helmsman.simulator.serving.requests.vllm_bench import answered_rows


def read_measured(path: Path) -> ServedTable:
    """Return a table of ours, what `vllm bench serve --save-detailed` wrote (.json), or AIPerf's records (.jsonl).

    Raises BadInputError."""
    suffix = path.suffix.lower()
    if suffix == ".json":
        return check_served(_from_vllm(path), path)
    return check_served(_from_aiperf(path), path) if suffix == ".jsonl" else read_served(path)


def _from_vllm(path: Path) -> ServedTable:
    file, content = str(path), parse_json(read_bytes(path, JSON_LIMIT), str(path))
    if not isinstance(content, dict):
        raise BadInputError("not what vllm bench serve wrote", file=file, remedy="use --save-result --save-detailed")
    rows_answered = answered_rows(content, file)
    first = numbers(_detail(content, "ttfts", rows_answered.row, file), file, "ttfts")[rows_answered.row]
    rows = _detail(content, "itls", rows_answered.row, file)
    gaps = [numbers(rows[row], file, f"itls.{row}") for row in rows_answered.row.tolist()]
    lengths = rows_answered.prompt_tokens, rows_answered.output_tokens
    whole = first + np.array([float(gap.sum()) for gap in gaps])
    return _table("vllm bench serve", path, rows_answered.sent_s, lengths, first, whole, gaps)


def _detail(content: dict[str, Any], name: str, row: Ints, file: str) -> list[Any]:
    """Return a list with a value for each of the file's requests."""
    values = content.get(name)
    if not isinstance(values, list) or len(values) <= int(row.max(initial=-1)):
        remedy = "run vllm bench serve with --save-result --save-detailed"
        raise BadInputError("missing: times of single requests", file=file, field=name, remedy=remedy)
    return values


def _from_aiperf(path: Path) -> ServedTable:
    records = read_records(path)
    rows = records.metrics.to_pylist()
    first = np.array([_seconds(row, "time_to_first_token") for row in rows])
    whole = np.array([_seconds(row, "request_latency") for row in rows])
    gaps = [np.array((row["inter_chunk_latency"] or {}).get("value") or ()) / 1e3 for row in rows]
    return _table("AIPerf", path, records.sent_s, (records.prompt_tokens, records.output_tokens), first, whole, gaps)


def _seconds(row: dict[str, Any], name: str) -> float:
    """Return a metric in milliseconds; nan where it is missing, as of answers that were not streamed."""
    value = (row[name] or {}).get("value")
    return np.nan if value is None else value / 1e3


def _table(
    tool: str,
    path: Path,
    sent: Floats,
    lengths: tuple[Ints, Ints],
    first: Floats,
    whole: Floats,
    gaps: Sequence[Floats],
) -> ServedTable:
    """Finished requests from when they were sent, seconds to the first token and to the last, and their gaps."""
    count = len(sent)
    nothing, values = np.zeros(count, np.int64), np.concatenate([np.zeros(0), *gaps])
    start = np.concatenate([[0], np.cumsum([len(gap) for gap in gaps])]).astype(np.int64)
    ones = np.ones(len(values), np.int64)
    return ServedTable(
        ServedInfo(source="measured", policy="unknown", requests=path.name, notes={"tool": tool}),
        request=np.arange(count),
        arrival_s=sent,
        started_s=np.full(count, np.nan),
        first_token_s=sent + first,
        finish_s=sent + whole,
        prompt_tokens=lengths[0],
        output_tokens=lengths[1],
        produced=lengths[1],
        status=np.full(count, FINISHED),
        cpu_tokens=nothing,
        preemptions=nothing,
        reused_tokens=nothing,
        replica=nothing,
        gaps=Gaps(start, values, np.zeros(len(values)), ones, ones, ones == 0),
    )
