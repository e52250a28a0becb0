"""What a report says of a table, against the definitions written out."""

from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from serving_oracle import serve, simple_cost
from together import together

from helmsman.scheduler.limits import Limits
from helmsman.schemas.errors import BadInputError, UsageError
from helmsman.schemas.read import parse_document
from helmsman.schemas.requests import make_requests
from helmsman.schemas.served_table import CANCELLED, FAILED, FINISHED, REJECTED, Gaps, ServedTable, write_served
from helmsman.schemas.serving import ServingReport, Slo
from helmsman.simulator.serving.exports import aiperf_records, vllm_bench
from helmsman.simulator.serving.imports import read_measured
from helmsman.simulator.serving.report import report
from helmsman.simulator.serving.requests.read import read_requests
from helmsman.simulator.serving.requests_in_system import present, running
from helmsman.simulator.serving.slo import PRESETS, parse_slo

LIMITS = Limits(gpu_tokens=4000, cpu_tokens=0, batch_tokens=512, sequences=64, chunk=128)


@pytest.fixture(scope="module")
def table() -> ServedTable:
    """Sixty requests in a crowded cache, three of which are told to have ended otherwise."""
    requests = read_requests("synthetic:n=60,input=300,output=40,rate=20", seed=1)
    found = serve(requests, simple_cost(0.01, 1e-4, 1e-6, layers=4), LIMITS)
    status = found.status.copy()
    status[[5, 6, 7]] = CANCELLED, REJECTED, FAILED
    cpu = np.where(np.arange(60) % 4 == 0, 10, 0)
    return replace(found, status=status, cpu_tokens=cpu)


def rows(table: ServedTable) -> list[tuple[float, float, float, int]]:
    """(arrival, first token, finish, tokens) of the finished ones."""
    columns = zip(table.arrival_s, table.first_token_s, table.finish_s, table.produced, table.status, strict=True)
    return [tuple(row[:4]) for row in columns if row[4] == FINISHED]


def test_latencies_are_those_of_finished_requests(table: ServedTable) -> None:
    found, asked = report(table).latency, rows(table)
    values = {
        "ttft": [first - at for at, first, _, _ in asked],
        "tpot": [(end - first) / (count - 1) for _, first, end, count in asked],
        "e2e": [end - at for at, _, end, _ in asked],
        "per_token": [(end - at) / count for at, _, end, count in asked],
    }
    for name, each in values.items():
        spread = getattr(found, name)
        assert spread.count == 57
        assert [spread.mean, spread.p50, spread.p90, spread.p99, spread.max] == pytest.approx(
            [np.mean(each), *np.quantile(each, (0.5, 0.9, 0.99, 1.0))]
        )
    assert found.itl.count == len(table.gaps.steps)
    assert found.itl.p99 == pytest.approx(np.quantile(table.gaps.first_s, 0.99))


def test_throughput_counts_what_came(table: ServedTable) -> None:
    found = report(table)
    seconds = table.finish_s.max() - table.arrival_s[0]
    assert found.duration == pytest.approx(seconds)
    assert found.throughput.requests == pytest.approx(57 / seconds)
    assert found.throughput.output_tokens == pytest.approx(table.produced.sum() / seconds)
    assert found.throughput.total_tokens == pytest.approx((table.produced + table.prompt_tokens).sum() / seconds)
    assert found.rate == pytest.approx(59 / (table.arrival_s[-1] - table.arrival_s[0]))
    counts = found.counts
    assert (counts.asked, counts.finished, counts.cancelled, counts.rejected, counts.failed) == (60, 57, 1, 1, 1)
    assert found.preemptions == table.preemptions.sum() > 0


def test_requests_on_the_host_are_reported_apart(table: ServedTable) -> None:
    found, here = report(table), (table.cpu_tokens > 0) & (table.status == FINISHED)
    tpot = (table.finish_s - table.first_token_s) / (table.produced - 1)
    assert (found.on_cpu.requests, found.on_gpu.requests) == (here.sum(), 57 - here.sum())
    assert found.on_cpu.tpot.mean == pytest.approx(tpot[here].mean())
    assert found.on_cpu.tokens == 150 and found.on_cpu.itl is None
    assert found.on_gpu.tokens == (table.produced - 1).sum() - 150


def test_goodput_counts_failures_as_misses_and_not_who_left(table: ServedTable) -> None:
    slo = parse_slo("ttft=500ms,tpot=30ms,e2e=2s,per-token=60ms,share=0.5")
    found = report(table, slo).goodput
    good = sum(
        first - at <= 0.5 and (end - first) / (count - 1) <= 0.03 and end - at <= 2.0 and (end - at) / count <= 0.06
        for at, first, end, count in rows(table)
    )
    assert 0 < good < 57
    assert (found.good, found.share) == (good, good / 59)
    assert found.requests == pytest.approx(good / report(table).duration)
    assert found.met == (good / 59 >= 0.5)


def test_one_token_has_no_tpot_and_keeps_any() -> None:
    ones = make_requests(np.zeros(3), np.full(3, 10), np.ones(3, np.int64))
    found = report(serve(ones, simple_cost(), LIMITS), Slo(tpot=1e-9))
    assert found.latency.tpot is None and found.latency.itl is None and found.on_gpu.tpot is None
    assert found.goodput.met and found.rate is None
    assert "tpot" not in found.to_dict()["latency"]


def test_nothing_served_is_a_report_too() -> None:
    large = make_requests(np.zeros(2), np.full(2, 10**6), np.full(2, 10))
    found = report(serve(large, simple_cost(), LIMITS), Slo(ttft=1.0))
    assert (found.counts.rejected, found.duration, found.throughput.requests) == (2, 0.0, 0.0)
    assert found.latency.ttft is None and not found.goodput.met
    assert parse_document(ServingReport, found.to_json().encode(), "report") == found


def test_little_s_law_is_exact(table: ServedTable) -> None:
    whole = replace(table, status=np.zeros(60, np.int64))
    found, there = report(whole), present(whole)
    assert there.mean() == pytest.approx(60 / found.duration * found.latency.e2e.mean, rel=1e-12)
    assert there.count[-1] == 0 and there.count.max() >= running(whole).count.max()


def test_slos_are_read() -> None:
    assert parse_slo("ttft=2s,tpot=100ms") == Slo(ttft=2.0, tpot=0.1)
    assert parse_slo("mlperf-llama2-70b-interactive") == PRESETS["mlperf-llama2-70b-interactive"]
    changed = parse_slo("mlperf-llama3.1-8b,tpot=50ms,share=0.9")
    assert (changed.ttft, changed.tpot, changed.share, changed.name) == (2.0, 0.05, 0.9, "mlperf-llama3.1-8b")


@together(
    "text", ["", "ttft", "ttft=", "ttft=0", "ttft=-1s", "ttft=1s,ttft=2s", "speed=1s", "share=0.9", "ttft=1s,share=1.1",
             "ttft=1s,share=x", "mlperf-gpt9", "ttft=1s,mlperf-llama2-70b"]
)  # fmt: skip
def test_what_is_no_slo_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_slo(text)
    assert caught.value.field == "slo"


def test_vllm_s_shape_has_its_figures(table: ServedTable) -> None:
    found = report(table)
    bench = vllm_bench(table, found)
    assert bench["median_ttft_ms"] == pytest.approx(1e3 * found.latency.ttft.p50)
    assert bench["p99_e2el_ms"] == pytest.approx(1e3 * found.latency.e2e.p99)
    assert (bench["completed"], bench["failed"], len(bench["errors"])) == (57, 3, 60)
    assert "itls" not in bench
    measured = replace(table, info=table.info.model_copy(update={"source": "measured"}))
    gaps = vllm_bench(measured, found)["itls"]
    assert [len(each) + 1 for each in gaps] == table.produced.tolist()
    assert sum(gaps[3]) == pytest.approx(table.finish_s[3] - table.first_token_s[3])


def test_what_is_exported_is_read_as_requests(table: ServedTable, tmp_path: Path) -> None:
    import json

    path = tmp_path / "bench.json"
    path.write_text(json.dumps(vllm_bench(table, report(table))))
    again = read_requests(str(path))
    done = table.status == FINISHED
    assert again.prompt_tokens.tolist() == table.prompt_tokens[done].tolist()
    assert again.output_tokens.tolist() == table.output_tokens[done].tolist()
    records = tmp_path / "profile_export.jsonl"
    records.write_text("".join(json.dumps(record) + "\n" for record in aiperf_records(table)))
    again = read_requests(str(records))
    assert again.output_tokens.tolist() == table.output_tokens[done].tolist()
    assert np.diff(again.arrival_s) == pytest.approx(np.diff(table.arrival_s[done]), abs=2e-9)
    first = json.loads(records.read_text().splitlines()[0])["metrics"]
    assert first["time_to_first_token"]["value"] == pytest.approx(1e3 * (table.first_token_s[0] - table.arrival_s[0]))
    assert first["inter_token_latency"]["unit"] == "ms"


def test_what_other_tools_measured_is_a_table_too(table: ServedTable, tmp_path: Path) -> None:
    import json

    measured = replace(table, info=table.info.model_copy(update={"source": "measured"}))
    ours = report(measured)
    bench, records = tmp_path / "bench.json", tmp_path / "profile_export.jsonl"
    bench.write_text(json.dumps(vllm_bench(measured, ours)))
    records.write_text("".join(json.dumps(record) + "\n" for record in aiperf_records(measured)))
    for path in (bench, records):
        found = read_measured(path)
        assert found.info.source == "measured" and (found.status == FINISHED).all() and len(found) == 57
        for name in ("ttft", "tpot", "e2e", "per_token"):
            theirs, expected = getattr(report(found).latency, name), getattr(ours.latency, name)
            assert (theirs.count, theirs.mean, theirs.p99) == pytest.approx((57, expected.mean, expected.p99), rel=1e-6)
        again = read_requests(str(path))
        assert found.arrival_s.tolist() == again.arrival_s.tolist()
        assert found.output_tokens.tolist() == again.output_tokens.tolist()


@pytest.mark.parametrize(
    ("change", "field"),
    [({"ttfts": [1.0]}, "ttfts"), ({"itls": None}, "itls"), ({"itls": [[0.1], ["a"]]}, "itls.1.0"),
     ({"ttfts": [-1.0, 1.0]}, "row 0"), ({"itls": [[0.1], [-0.3]]}, "row 1")],
)  # fmt: skip
def test_measured_times_that_cannot_be_are_refused(tmp_path: Path, change: dict[str, object], field: str) -> None:
    import json

    path = tmp_path / "bench.json"
    whole = {"input_lens": [5, 6], "output_lens": [2, 2], "start_times": [0.0, 1.0], "ttfts": [0.5, 0.5]}
    path.write_text(json.dumps({**whole, "itls": [[0.1], [0.1]], **change}))
    with pytest.raises(BadInputError) as caught:
        read_measured(path)
    assert (caught.value.file, caught.value.field) == (str(path), field)


def test_a_simulated_table_survives_a_file(table: ServedTable, tmp_path: Path) -> None:
    from helmsman.schemas.served_table import read_served

    stream = BytesIO()
    write_served(table, stream)
    path = tmp_path / "s.parquet"
    path.write_bytes(stream.getvalue())
    assert report(read_served(path)) == report(table)
    again = read_requests(str(path))
    assert again.arrival_s.tolist() == table.arrival_s.tolist()
    assert again.output_tokens.tolist() == table.output_tokens.tolist()
    assert isinstance(read_served(path).gaps, Gaps)
