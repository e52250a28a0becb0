"""Azure's inference traces (2023 and 2024): TIMESTAMP with up to nine decimals, ContextTokens, GeneratedTokens.

Source: github.com/Azure/AzurePublicDataset, AzureLLMInferenceDataset2023.md and 2024.md."""

import re
from pathlib import Path

import numpy as np

from helmsman.schemas.requests import Place, Requests, make_requests
from helmsman.simulator.serving.requests.tables import csv_line, read_csv, read_start

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_ZONE = re.compile(r"(Z|[+-]\d\d:?\d\d)$")


def read_azure(path: Path) -> tuple[Requests, Place]:
    """Arrivals in seconds after the earliest. Raises BadInputError."""
    import pyarrow as pa

    time, prompt, output = COLUMNS
    kinds = {time: pa.timestamp("ns", "UTC" if _has_zone(path) else None), prompt: pa.int64(), output: pa.int64()}
    table = read_csv(path, kinds)
    nanoseconds = table.column(time).cast(pa.int64()).to_numpy()
    arrival = (nanoseconds - (nanoseconds.min() if len(nanoseconds) else 0)) / 1e9
    names = {"arrival_s": time, "prompt_tokens": prompt, "output_tokens": output}
    lengths = [np.array(table.column(name).to_numpy()) for name in (prompt, output)]
    return make_requests(arrival, lengths[0], lengths[1]), Place(str(path), names, csv_line)


def _has_zone(path: Path) -> bool:
    """Whether times say how far they are from UTC, as those of 2024 do."""
    lines = read_start(path).splitlines()
    return len(lines) > 1 and _ZONE.search(lines[1].partition(",")[0].strip()) is not None
