import hashlib
import random
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from together import together

from helmsman.schemas.errors import BadInputError
from helmsman.schemas.trace import (
    KIND,
    Probe,
    Span,
    Trace,
    TraceInfo,
    arrow_schema,
    read_trace,
    write_trace,
)


def span(i: int) -> Span:
    resource = ("cpu", "acc")[i % 2]
    return Span(0, "measured", f"{i}/3.q", i, 0, "decode", 3, "q", resource, i * 0.1, i * 0.1 + 0.05, i, 2.5 * i)


def trace(rows: int = 400) -> Trace:
    probes = (Probe(what="read", name="cpu", run=0, value=31.25e9),)
    info = TraceInfo(source="measured", plan_sha256="0" * 64, runs=1, probes=probes, notes={"cores": 2})
    return Trace(info, [span(i) for i in range(rows)])


def written(content: Trace) -> bytes:
    stream = BytesIO()
    write_trace(content, stream)
    return stream.getvalue()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.parquet"


@pytest.mark.parametrize("rows", [0, 1, 400])
def test_what_is_written_is_read(path: Path, rows: int) -> None:
    path.write_bytes(written(trace(rows)))
    assert read_trace(path) == trace(rows)


def test_the_same_trace_gives_the_same_bytes() -> None:
    assert written(trace()) == written(trace())


def test_times_keep_every_bit(path: Path) -> None:
    odd = replace(span(1), start_s=0.1 + 0.2, end_s=1e300, flops=5e-324)
    path.write_bytes(written(Trace(trace().info, [odd])))
    assert read_trace(path).spans == [odd]


def flip(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def outcome(path: Path, data: bytes, good: Trace) -> str:
    """same: the flip hit unused bytes and every value is right; wrong: a value differs and nobody noticed."""
    path.write_bytes(data)
    try:
        return "same" if read_trace(path) == good else "wrong"
    except BadInputError as error:
        assert error.file == str(path) and "\n" not in str(error)
        return "refused"


def pages(data: bytes) -> list[tuple[int, int]]:
    """(offset, length) of the column chunks: page headers and pages."""
    group = pq.ParquetFile(BytesIO(data)).metadata.row_group(0)
    columns = [group.column(i) for i in range(group.num_columns)]
    starts = [column.dictionary_page_offset or column.data_page_offset for column in columns]
    return [(start, column.total_compressed_size) for start, column in zip(starts, columns, strict=True)]


def test_no_flipped_bit_in_a_page_is_silently_wrong(path: Path) -> None:
    good, rng = trace(), random.Random(1)
    data = written(good)
    seen = []
    for start, length in pages(data):
        bits = rng.sample(range(8 * start, 8 * (start + length)), 20)
        seen += [outcome(path, flip(data, bit), good) for bit in bits]
    assert seen.count("wrong") == 0
    assert seen.count("refused") > len(seen) * 0.6


def test_no_flipped_bit_anywhere_is_silently_wrong(path: Path) -> None:
    good, rng = trace(50), random.Random(2)
    data = written(good)
    seen = [outcome(path, flip(data, rng.randrange(8 * len(data))), good) for _ in range(200)]
    assert seen.count("wrong") == 0


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.9, 0.999])
def test_a_cut_file_is_refused(path: Path, keep: float) -> None:
    data = written(trace())
    path.write_bytes(data[: int(keep * len(data))])
    with pytest.raises(BadInputError, match="cannot be read as Parquet"):
        read_trace(path)


def test_a_file_that_is_not_parquet_is_refused(path: Path) -> None:
    path.write_text('{"schema": "helm.plan/1"}')
    with pytest.raises(BadInputError, match="cannot be read as Parquet"):
        read_trace(path)


def test_a_missing_file_is_refused(path: Path) -> None:
    with pytest.raises(BadInputError, match="cannot be read"):
        read_trace(path)


def test_parquet_of_another_kind_is_refused(path: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), path)
    with pytest.raises(BadInputError, match="not a Helm trace"):
        read_trace(path)
    columns = {name: pa.array([], kind) for name, kind in zip(arrow_schema().names, arrow_schema().types, strict=True)}
    pq.write_table(pa.table(columns, schema=arrow_schema()), path)
    with pytest.raises(BadInputError, match="not a Helm trace"):
        read_trace(path)


def test_metadata_must_be_a_trace_info(path: Path) -> None:
    table = pq.read_table(BytesIO(written(trace(0))))
    info = b'{"schema": "helm.trace/2"}'
    keys = {KIND.key: info, KIND.digest_key: hashlib.sha256(info).hexdigest().encode()}
    pq.write_table(table.cast(arrow_schema().with_metadata(keys)), path)
    with pytest.raises(BadInputError, match="schema"):
        read_trace(path)


@together(
    ("change", "message"),
    [
        ({"start_s": 2.0, "end_s": 1.0}, "out of order"),
        ({"start_s": -1.0}, "out of order"),
        ({"end_s": float("nan")}, "out of order"),
        ({"end_s": float("inf")}, "out of order"),
        ({"source": "guessed"}, "unknown source"),
        ({"phase": "warmup"}, "unknown phase"),
        ({"run": -1}, "negative run"),
        ({"iteration": -1}, "negative run, iteration"),
        ({"request": -1}, "negative"),
        ({"layer": -2}, "negative"),
        ({"bytes": -1}, "bytes and flops"),
        ({"flops": -1.0}, "bytes and flops"),
        ({"flops": float("nan")}, "bytes and flops"),
        ({"flops": float("inf")}, "bytes and flops"),
    ],
)
def test_impossible_rows_are_refused(path: Path, change: dict[str, float | str], message: str) -> None:
    path.write_bytes(written(Trace(trace().info, [span(0), replace(span(1), **change)])))
    with pytest.raises(BadInputError, match=message) as caught:
        read_trace(path)
    assert caught.value.field == "row 1"


def on_lane(start: float, end: float, run: int = 0, resource: str = "cpu") -> Span:
    return replace(span(0), start_s=start, end_s=end, run=run, resource=resource)


@pytest.mark.parametrize(
    ("rows", "culprit"),
    [
        ([on_lane(0.0, 1.0), on_lane(0.5, 1.5)], 1),
        ([on_lane(0.5, 1.5), on_lane(0.0, 1.0)], 0),
        ([on_lane(0.0, 9.0), on_lane(1.0, 2.0), on_lane(9.0, 9.5)], 1),
        ([on_lane(0.0, 9.0), on_lane(9.0, 9.5), on_lane(7.0, 7.0)], 2),
        ([on_lane(0.0, 1.0), on_lane(1.0 - 2e-9, 2.0)], 1),
    ],
)
def test_spans_that_overlap_on_a_lane_are_refused(path: Path, rows: list[Span], culprit: int) -> None:
    path.write_bytes(written(Trace(trace().info, rows)))
    with pytest.raises(BadInputError, match="overlaps '0/3.q' on lane 'cpu'") as caught:
        read_trace(path)
    assert caught.value.field == f"row {culprit}"


@pytest.mark.parametrize(
    "other",
    [
        on_lane(1.0, 2.0),
        on_lane(1.0 - 0.9e-9, 2.0),
        on_lane(1.0, 1.0),
        on_lane(0.5, 1.5, run=1),
        on_lane(0.5, 1.5, resource="h2d"),
    ],
)
def test_touching_spans_other_lanes_and_other_runs_are_accepted(path: Path, other: Span) -> None:
    content = Trace(trace().info, [on_lane(0.0, 1.0), other])
    path.write_bytes(written(content))
    assert read_trace(path) == content


@pytest.mark.parametrize("value", [0.0, 1e-300, 0.99, -1.0, 1e25])
def test_a_probe_must_be_a_bandwidth(value: float) -> None:
    with pytest.raises(ValueError, match="value"):
        Probe(what="read", name="cpu", run=0, value=value)


@pytest.mark.parametrize("value", [0.0, 1e-7, -1.0, 101.0])
def test_a_probe_of_what_devices_keep_must_be_a_share(value: float) -> None:
    assert Probe(what="joint_compute", name="dram", run=0, value=0.6).value == 0.6
    with pytest.raises(ValueError, match="value|share"):
        Probe(what="joint_compute", name="dram", run=0, value=value)


def test_too_many_rows_are_refused_before_they_are_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(written(trace(50)))
    monkeypatch.setattr("helmsman.schemas.trace.MAX_ROWS", 49)
    with pytest.raises(BadInputError, match="more than 49 rows"):
        read_trace(path)
