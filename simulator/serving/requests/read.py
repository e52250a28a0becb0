"""Requests from any file that is known, told apart by what is in it, or from a line that describes them."""

from collections.abc import Callable
from pathlib import Path

from helmsman.schemas.errors import BadInputError
from helmsman.schemas.read import parse_json, read_bytes
from helmsman.schemas.requests import Place, Requests, check_requests, sort_requests
from helmsman.simulator.serving.requests.aiperf import read_aiperf
from helmsman.simulator.serving.requests.azure import COLUMNS as AZURE
from helmsman.simulator.serving.requests.azure import read_azure
from helmsman.simulator.serving.requests.lengths import read_lengths
from helmsman.simulator.serving.requests.mooncake import read_mooncake
from helmsman.simulator.serving.requests.osc import read_osc
from helmsman.simulator.serving.requests.served_table import read_served_requests
from helmsman.simulator.serving.requests.synthetic import PREFIX, make_synthetic, parse_synthetic
from helmsman.simulator.serving.requests.tables import csv_header, read_start
from helmsman.simulator.serving.requests.vllm_bench import read_vllm_bench

JSON_LIMIT = 2**28
_KNOWN = "CSV (.csv), JSON Lines (.jsonl), JSON (.json), a table of served requests (.parquet) or synthetic:..."


def read_requests(source: str, seed: int = 0, sort: bool = False) -> Requests:
    """Checked requests of a file or a `synthetic:` line. `sort`: bring them into order of arrival first.

    Raises BadInputError naming file, line, column and value; UsageError for a line that describes none."""
    if source.startswith(PREFIX):
        return make_synthetic(parse_synthetic(source), seed)
    path = Path(source)
    requests, place = _reader(path)(path)
    return check_requests(sort_requests(requests) if sort else requests, place)


def _reader(path: Path) -> Callable[[Path], tuple[Requests, Place]]:
    suffix = path.suffix.lower()
    if suffix == ".csv":
        return read_azure if set(AZURE) <= set(csv_header(path)) else read_lengths
    if suffix == ".jsonl":
        return read_aiperf if '"metadata"' in read_start(path).partition("\n")[0] else read_mooncake
    if suffix == ".json":
        return _read_json
    if suffix == ".parquet":
        return read_served_requests
    raise BadInputError("not a file of requests", file=str(path), remedy=f"use {_KNOWN}")


def _read_json(path: Path) -> tuple[Requests, Place]:
    content = parse_json(read_bytes(path, JSON_LIMIT), str(path))
    if isinstance(content, dict):
        return read_vllm_bench(content, path)
    if isinstance(content, list):
        return read_osc(content, path)
    remedy = "use a list of lengths, or what vllm bench serve wrote"
    raise BadInputError("not a file of requests", file=str(path), value=content, remedy=remedy)
