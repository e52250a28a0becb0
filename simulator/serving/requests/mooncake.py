"""Mooncake's traces: JSON Lines of timestamp (ms), input_length, output_length, hash_ids of 512-token blocks.

Source: github.com/kvcache-ai/Mooncake, FAST25-release/traces."""

from functools import partial
from pathlib import Path

import numpy as np

from helmsman.schemas.errors import BadInputError
from helmsman.schemas.requests import Place, Requests
from helmsman.simulator.serving.requests.tables import line_of, read_jsonl

BLOCK = 512
"""Tokens of a block that a hash stands for."""


def read_mooncake(path: Path) -> tuple[Requests, Place]:
    """Arrivals in seconds of the trace's own clock; prefixes by their hashes. Raises BadInputError."""
    import pyarrow as pa

    kinds = {"timestamp": pa.float64(), "input_length": pa.int64(), "output_length": pa.int64()}
    table = read_jsonl(path, pa.schema({**kinds, "hash_ids": pa.list_(pa.int64())}))
    hashes = table.column("hash_ids").combine_chunks()
    if hashes.null_count or hashes.values.null_count:
        remedy = "write the hash of every block, or an empty list"
        raise BadInputError("a hash is null", file=str(path), field="hash_ids", remedy=remedy)
    count = table.num_rows
    requests = Requests(
        arrival_s=table.column("timestamp").to_numpy() / 1e3,
        prompt_tokens=np.array(table.column("input_length").to_numpy()),
        output_tokens=np.array(table.column("output_length").to_numpy()),
        priority=np.zeros(count, np.int64),
        cancel_s=np.full(count, np.inf),
        hash_start=hashes.offsets.to_numpy().astype(np.int64) - hashes.offsets[0].as_py(),
        hashes=np.array(hashes.flatten().to_numpy(), np.int64),
        hash_block=BLOCK,
    )
    names = {"arrival_s": "timestamp", "prompt_tokens": "input_length", "output_tokens": "output_length"}
    names["hashes"] = "hash_ids"
    return requests, Place(str(path), names, partial(line_of, path))
