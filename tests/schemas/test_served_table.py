"""The table of served requests: what is written is read, and nothing that was altered is."""

import random
import subprocess
import sys
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from helmsman.schemas.errors import BadInputError
from helmsman.schemas.served_table import CANCELLED, FINISHED, Gaps, ServedInfo, ServedTable, read_served, write_served

INFO = ServedInfo(source="simulated", plan_sha256="0" * 64, policy="neo", requests="a.csv", options={"chunk": 512})


def served(count: int = 40) -> ServedTable:
    """Requests that take a second longer each; every third was cancelled before it began."""
    row = np.arange(count)
    gone = row % 3 == 2
    times = {
        "arrival_s": 0.1 * row,
        "started_s": np.where(gone, np.nan, 0.1 * row + 0.3),
        "first_token_s": np.where(gone, np.nan, 0.1 * row + 0.5),
        "finish_s": np.where(gone, 0.1 * row + 0.2, 0.1 * row + 1.0 + row),
    }
    counts = {name: row + place for place, name in enumerate(("request", "prompt_tokens", "output_tokens", "produced"))}
    others = dict.fromkeys(("cpu_tokens", "preemptions", "reused_tokens", "replica"), row % 2)
    start = np.concatenate([[0], np.cumsum(row % 4)])
    runs = np.arange(start[-1])
    gaps = Gaps(start, 0.01 + 0.001 * runs, 1e-5 * runs, 1 + runs % 7, 1 + runs % 3, runs % 2 == 0)
    return ServedTable(INFO, **times, **counts, **others, status=np.where(gone, CANCELLED, FINISHED), gaps=gaps)


def written(content: ServedTable) -> bytes:
    stream = BytesIO()
    write_served(content, stream)
    return stream.getvalue()


def same(a: ServedTable, b: ServedTable) -> bool:
    columns = [name for name in ServedTable.__dataclass_fields__ if name not in ("info", "gaps")]
    alike = [np.array_equal(getattr(a, name), getattr(b, name), equal_nan=name.endswith("_s")) for name in columns]
    gaps = [np.array_equal(getattr(a.gaps, name), getattr(b.gaps, name)) for name in Gaps.__dataclass_fields__]
    return a.info == b.info and all(alike) and all(gaps)


@pytest.mark.parametrize("count", [0, 1, 40])
def test_what_is_written_is_read(tmp_path: Path, count: int) -> None:
    path = tmp_path / "s.parquet"
    path.write_bytes(written(served(count)))
    assert same(read_served(path), served(count))
    assert written(served(count)) == path.read_bytes()


def test_other_tools_read_it(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    table = pq.read_table(BytesIO(written(served())))
    assert table.column("status").to_pylist()[:3] == ["finished", "finished", "cancelled"]
    assert [len(gaps) for gaps in table.column("itl_first_s").to_pylist()[:4]] == [0, 1, 2, 3]


def test_no_flipped_bit_is_silently_wrong(tmp_path: Path) -> None:
    path, good, random_bits = tmp_path / "s.parquet", served(), random.Random(3)
    data = written(good)
    refused = 0
    for bit in random_bits.sample(range(8 * len(data)), 150):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        try:
            assert same(read_served(path), good)
        except BadInputError as error:
            refused += 1
            assert error.file == str(path)
    assert refused > 75


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"first_token_s": 0.05}, "out of order at first_token_s"),
        ({"finish_s": 0.15}, "out of order at finish_s"),
        ({"finish_s": np.nan}, "finished at no time"),
        ({"arrival_s": np.nan}, "no time of arrival"),
        ({"produced": -1}, "negative number of produced"),
    ],
)
def test_impossible_rows_are_refused(tmp_path: Path, change: dict[str, float], message: str) -> None:
    good, path = served(), tmp_path / "s.parquet"
    for name, value in change.items():
        column = getattr(good, name).copy()
        column[1] = value
        path.write_bytes(written(replace(good, **{name: column})))
    with pytest.raises(BadInputError, match=message) as caught:
        read_served(path)
    assert caught.value.field == "row 1"


@pytest.mark.parametrize(("name", "value"), [("first_s", -0.1), ("first_s", np.inf), ("steps", 0), ("weight", -2)])
def test_impossible_gaps_are_refused(tmp_path: Path, name: str, value: float) -> None:
    good, path = served(), tmp_path / "s.parquet"
    column = getattr(good.gaps, name).copy()
    column[2] = value
    path.write_bytes(written(replace(good, gaps=replace(good.gaps, **{name: column}))))
    with pytest.raises(BadInputError, match="gaps between tokens") as caught:
        read_served(path)
    assert caught.value.field == "row 2"


@pytest.mark.parametrize("count", [10_000_000, pytest.param(30_000_000, marks=pytest.mark.nightly)])
def test_a_small_file_of_very_many_equal_values_is_refused(tmp_path: Path, count: int) -> None:
    """A request with millions of gaps of the same length: some kB of file, up to a gigabyte of values, part of which is
    read."""
    whole = served(1)
    gaps = Gaps(np.array([0, count]), *(np.zeros(count, kind) for kind in (float, float, int, int, bool)))
    path = tmp_path / "s.parquet"
    path.write_bytes(written(replace(whole, gaps=gaps)))
    assert path.stat().st_size < 2**20
    del gaps, whole
    code = "import sys, resource; from pathlib import Path\n"
    code += "from helmsman.schemas.served_table import read_served as read\n"
    code += "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
    code += "try: read(Path(sys.argv[1]))\n"
    code += "except Exception as error: print(type(error).__name__, error)\n"
    code += "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    error, grown = done.stdout.splitlines()
    assert error.startswith("BadInputError") and "as those of no table of" in error
    assert int(grown) < 600_000, "kilobytes, Arrow itself among them"
