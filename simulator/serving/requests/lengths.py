"""CSV files of prompt and output lengths, with arrival times or without, under the names that other tools give them.

vidur: num_prefill_tokens, num_decode_tokens, arrived_at; LLMServingSim: input_toks, output_toks, arrival_time_ns."""

from pathlib import Path

import numpy as np

from helmsman.schemas.errors import BadInputError
from helmsman.schemas.requests import Place, Requests, make_requests
from helmsman.simulator.serving.requests.tables import csv_header, csv_line, read_csv

PROMPT = (
    "prompt_tokens",
    "num_prefill_tokens",
    "input_toks",
    "input_tokens",
    "input_length",
    "input_len",
    "prompt_len",
    "prompt",
    "isl",
)
OUTPUT = (
    "output_tokens",
    "num_decode_tokens",
    "output_toks",
    "output_length",
    "output_len",
    "max_tokens",
    "output",
    "osl",
)
PER_SECOND = {
    "arrival_s": 1.0,
    "arrived_at": 1.0,
    "arrival_time": 1.0,
    "arrival_time_ms": 1e3,
    "timestamp_ms": 1e3,
    "arrival_time_ns": 1e9,
}
"""Names of arrival times, and how many of their units are a second."""


def read_lengths(path: Path) -> tuple[Requests, Place]:
    """Return requests, all at once where there are no arrival times. Raises BadInputError."""
    import pyarrow as pa

    header = csv_header(path)
    prompt, output = _named(header, PROMPT, "prompt", path), _named(header, OUTPUT, "output", path)
    time = next((name for name in PER_SECOND if name in header), None)
    wanted = {prompt: pa.int64(), output: pa.int64()}
    optional = {name: kind for name, kind in (("priority", pa.int64()), ("cancel_s", pa.float64())) if name in header}
    table = read_csv(path, {**wanted, **optional, **({time: pa.float64()} if time else {})})
    arrival = table.column(time).to_numpy() / PER_SECOND[time] if time else np.zeros(table.num_rows)
    columns = {name: np.array(table.column(name).to_numpy()) for name in (*wanted, *optional)}
    requests = make_requests(
        arrival, columns[prompt], columns[output], columns.get("priority"), columns.get("cancel_s")
    )
    names = {"arrival_s": time or "arrival_s", "prompt_tokens": prompt, "output_tokens": output}
    return requests, Place(str(path), names, csv_line)


def _named(header: tuple[str, ...], names: tuple[str, ...], what: str, path: Path) -> str:
    """Return the name in a header that means the lengths of `what`."""
    columns = [name for name in names if name in header]
    if not columns:
        remedy = f"call the column one of {', '.join(names)}; the file has {', '.join(header)}"
        raise BadInputError(f"no column of {what} lengths", file=str(path), remedy=remedy)
    return columns[0]
