"""AIPerf's per-request records (profile_export.jsonl): one JSON object a line with `metadata` and `metrics`.

Source: docs.nvidia.com/aiperf, working with profile export files."""

from pathlib import Path

import numpy as np

from helmsman.schemas.requests import Place, Requests, make_requests
from helmsman.simulator.serving.requests.tables import line_of, read_jsonl


def read_aiperf(path: Path) -> tuple[Requests, Place]:
    """Requests as they were sent; those that failed or were cancelled are left out.

    Raises BadInputError."""
    import pyarrow as pa
    import pyarrow.compute as pc

    tokens = pa.struct({"value": pa.int64()})
    metrics = pa.struct({"input_sequence_length": tokens, "output_sequence_length": tokens})
    table = read_jsonl(path, pa.schema({"metadata": pa.struct({"request_start_ns": pa.int64()}), "metrics": metrics}))
    sent = pc.struct_field(table.column("metadata"), "request_start_ns")
    prompt, output = (pc.struct_field(table.column("metrics"), [name, "value"]) for name in metrics.names)
    came = pc.and_(pc.is_valid(sent), pc.and_(pc.is_valid(prompt), pc.is_valid(output)))
    rows = np.flatnonzero(came.to_numpy())
    times, *lengths = (np.array(column.filter(came).to_numpy(), np.int64) for column in (sent, prompt, output))
    order = np.argsort(times, kind="stable")
    arrival = (times - (times.min() if len(times) else 0)) / 1e9
    found = make_requests(arrival[order], lengths[0][order], lengths[1][order])
    names = {
        "arrival_s": "metadata.request_start_ns",
        "prompt_tokens": "metrics.input_sequence_length",
        "output_tokens": "metrics.output_sequence_length",
    }
    return found, Place(str(path), names, lambda row: line_of(path, int(rows[order[row]])))
