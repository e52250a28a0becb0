"""AIPerf's per-request records (profile_export.jsonl): one JSON object a line with `metadata` and `metrics`.

Source: docs.nvidia.com/aiperf, working with profile export files."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from helmsman.schemas.requests import Floats, Ints, Place, Requests, make_requests
from helmsman.simulator.serving.requests.tables import line_of, read_jsonl

if TYPE_CHECKING:
    import pyarrow as pa

NAMES = {
    "arrival_s": "metadata.request_start_ns",
    "prompt_tokens": "metrics.input_sequence_length",
    "output_tokens": "metrics.output_sequence_length",
}


@dataclass(frozen=True, slots=True)
class Records:
    """Records with an output, as they were sent: seconds after the first, and lengths; `row` counts all records.

    `metrics`: what AIPerf measured of them, in the same order."""

    row: Ints
    sent_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    metrics: "pa.StructArray"


def read_records(path: Path) -> Records:
    """Return the records that neither failed nor were cancelled. Raises BadInputError."""
    import pyarrow as pa
    import pyarrow.compute as pc

    metadata = pa.struct({"request_start_ns": pa.int64()})
    table = read_jsonl(path, pa.schema({"metadata": metadata, "metrics": _metrics()}))
    sent = pc.struct_field(table.column("metadata"), "request_start_ns")
    metrics = table.column("metrics").combine_chunks()
    prompt, output = (pc.struct_field(metrics, [f"{side}_sequence_length", "value"]) for side in ("input", "output"))
    came = np.flatnonzero(pc.and_(pc.is_valid(sent), pc.and_(pc.is_valid(prompt), pc.is_valid(output))).to_numpy())
    times = sent.take(came).to_numpy()
    order = np.argsort(times, kind="stable")
    row, times = came[order], times[order]
    lengths = [column.take(pa.array(row)).to_numpy() for column in (prompt, output)]
    return Records(row, (times - times[:1]) / 1e9, lengths[0], lengths[1], metrics.take(pa.array(row)))


def _metrics() -> "pa.StructType":
    import pyarrow as pa

    kinds = {
        "input_sequence_length": pa.int64(),
        "output_sequence_length": pa.int64(),
        "time_to_first_token": pa.float64(),
        "request_latency": pa.float64(),
        "inter_chunk_latency": pa.list_(pa.float64()),
    }
    return pa.struct({name: pa.struct({"value": kind}) for name, kind in kinds.items()})


def read_aiperf(path: Path) -> tuple[Requests, Place]:
    """Return requests as they were sent. Raises BadInputError."""
    records = read_records(path)
    requests = make_requests(records.sent_s, records.prompt_tokens, records.output_tokens)
    return requests, Place(str(path), NAMES, lambda row: line_of(path, int(records.row[row])))
