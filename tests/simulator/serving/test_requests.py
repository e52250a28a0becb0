"""Requests from files as other tools write them, and from a line; what cannot be is refused by line and column."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from together import together

from helmsman.schemas.errors import BadInputError, UsageError
from helmsman.schemas.requests import Place, check_requests, make_requests, take_requests
from helmsman.simulator.serving.requests.arrivals import Arrivals, arrive, own_rate, parse_arrivals
from helmsman.simulator.serving.requests.read import read_requests

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:50.9951690,879,55
"""
MOONCAKE = [
    {"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [0, 1]},
    {"timestamp": 0, "input_length": 513, "output_length": 7, "hash_ids": [0, 2]},
    {"timestamp": 3000, "input_length": 1537, "output_length": 1, "hash_ids": [0, 1, 3, 4]},
]
RECORD = {
    "metadata": {"session_num": 0, "request_start_ns": 1759813207532900363, "was_cancelled": False},
    "metrics": {
        "input_sequence_length": {"value": 550, "unit": "tokens"},
        "output_sequence_length": {"value": 9, "unit": "tokens"},
        "time_to_first_token": {"value": 255.8, "unit": "ms"},
    },
    "error": None,
}


def file(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def lines(rows: list[dict[str, object]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_azure_keeps_seven_decimals_and_ties(tmp_path: Path) -> None:
    found = read_requests(file(tmp_path, "a.csv", AZURE))
    assert found.arrival_s.tolist() == pytest.approx([0.0, 4.314579, 4.314579], rel=1e-12)
    assert found.prompt_tokens.tolist() == [374, 396, 879]
    assert found.output_tokens.tolist() == [44, 109, 55]
    assert found.hash_block == 0 and np.isinf(found.cancel_s).all()


def test_azure_of_2024_has_a_time_zone(tmp_path: Path) -> None:
    rows = ["2024-05-10 00:00:00.009930+00:00,2162,5", "2024-05-10 00:00:01+00:00,10,6"]
    text = "\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows, ""])
    assert read_requests(file(tmp_path, "a.csv", text)).arrival_s.tolist() == pytest.approx([0.0, 0.99007])


def test_mooncake_has_prefixes(tmp_path: Path) -> None:
    found = read_requests(file(tmp_path, "m.jsonl", lines(MOONCAKE)))
    assert found.arrival_s.tolist() == [0.0, 0.0, 3.0]
    assert (found.hash_block, found.hash_start.tolist()) == (512, [0, 2, 4, 8])
    assert found.hashes.tolist() == [0, 1, 0, 2, 0, 1, 3, 4]
    taken = take_requests(found, np.array([2, 0]))
    assert (taken.hashes.tolist(), taken.hash_start.tolist()) == ([0, 1, 3, 4, 0, 1], [0, 4, 6])


@pytest.mark.parametrize("hashes", [[None], None, [1, None]])
def test_a_hash_that_is_null_is_refused(tmp_path: Path, hashes: object) -> None:
    row = {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": hashes}
    with pytest.raises(BadInputError, match="hash_ids"):
        read_requests(file(tmp_path, "m.jsonl", lines([row])))


@pytest.mark.parametrize(
    ("header", "rows", "times"),
    [
        ("num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio", "10,20,30,0.5\n11,21,32,0.5", [0.0, 0.0]),
        ("input_toks,output_toks,arrival_time_ns", "10,20,46926808\n11,21,347938951", [0.046926808, 0.347938951]),
        ("arrived_at,num_prefill_tokens,num_decode_tokens", "0.5,10,20\n1.5,11,21", [0.5, 1.5]),
        ("prompt,output", "10,20\n11,21", [0.0, 0.0]),
    ],
)
def test_lengths_have_the_names_of_many_tools(tmp_path: Path, header: str, rows: str, times: list[float]) -> None:
    found = read_requests(file(tmp_path, "l.csv", f"{header}\n{rows}\n"))
    assert (found.prompt_tokens.tolist(), found.output_tokens.tolist()) == ([10, 11], [20, 21])
    assert found.arrival_s.tolist() == pytest.approx(times, rel=1e-15)


def test_lengths_may_say_priority_and_who_leaves(tmp_path: Path) -> None:
    text = "arrival_s,prompt,output,priority,cancel_s\n0,10,20,1,inf\n1,11,21,0,2.5\n"
    found = read_requests(file(tmp_path, "l.csv", text))
    assert (found.priority.tolist(), found.cancel_s.tolist()) == ([1, 0], [np.inf, 2.5])


def test_what_other_tools_wrote_is_read(tmp_path: Path) -> None:
    osc = [{"prompt": 269, "max_tokens": 42}, {"prompt": 270, "max_tokens": 52}]
    found = read_requests(file(tmp_path, "osc.json", json.dumps(osc)))
    assert (found.prompt_tokens.tolist(), found.output_tokens.tolist()) == ([269, 270], [42, 52])
    bench = {"input_lens": [5, 6, 7], "output_lens": [8, 0, 9], "start_times": [12.5, 11.0, 11.5], "completed": 2}
    found = read_requests(file(tmp_path, "bench.json", json.dumps(bench)))
    assert (found.prompt_tokens.tolist(), found.arrival_s.tolist()) == ([7, 5], [0.0, 1.0])
    failed = {"metadata": {"request_start_ns": 1}, "metrics": {"error_isl": {"value": 5}}, "error": {"code": 499}}
    later = RECORD | {"metadata": {"request_start_ns": RECORD["metadata"]["request_start_ns"] + 250_000_000}}
    found = read_requests(file(tmp_path, "profile_export.jsonl", lines([RECORD, failed, later])))
    assert found.arrival_s.tolist() == [0.0, 0.25]
    assert (found.prompt_tokens.tolist(), found.output_tokens.tolist()) == ([550, 550], [9, 9])


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("a.csv", AZURE.replace("396", "nan"), "line 3, ContextTokens", "nan"),
        ("a.csv", AZURE.replace("396", "-396"), "line 3, ContextTokens", -396),
        ("a.csv", AZURE.replace("109", "0"), "line 3, GeneratedTokens", 0),
        ("a.csv", AZURE.replace("109", "9" * 25), "line 3, GeneratedTokens", "9" * 25),
        ("a.csv", AZURE.replace("109", "1.5"), "line 3, GeneratedTokens", "1.5"),
        ("a.csv", AZURE.replace("109", str(10**12)), "line 3, GeneratedTokens", 10**12),
        ("a.csv", AZURE.replace("18:15:50", "18:15:45", 1), "line 3, TIMESTAMP", None),
        ("a.csv", AZURE.replace("2023-11-16 18:15:50.9951690", "yesterday", 1), "line 3, TIMESTAMP", "yesterday"),
        ("a.csv", AZURE.replace(",396,109", ",396"), "line 3", None),
        ("a.csv", AZURE.splitlines()[0] + "\n", None, None),
        ("a.csv", "", None, None),
        ("a.csv", AZURE.replace("ContextTokens", "Tokens"), None, None),
        ("l.csv", "prompt,output,prompt\n1,2,3\n", "prompt", None),
        ("l.csv", "arrival_s,prompt,output\n0,1,1\nnan,1,1\n", "line 3, arrival_s", None),
        ("l.csv", "arrival_s,prompt,output\n0,1,1\n-1,1,1\n", "line 3, arrival_s", -1.0),
        ("l.csv", "arrival_s,prompt,output\n0,1,1\n1e300,1,1\n", "line 3, arrival_s", 1e300),
        ("l.csv", "arrival_s,prompt,output,cancel_s\n3,1,1,2\n", "line 2, cancel_s", 2.0),
        ("m.jsonl", "", None, None),
        ("m.jsonl", "\n" + lines(MOONCAKE) + "{\n", "line 5", None),
        ("m.jsonl", "\n\n" + lines([MOONCAKE[0], {**MOONCAKE[1], "output_length": -1}]), "line 4, output_length", -1),
        ("m.jsonl", lines([{**MOONCAKE[0], "input_length": 3.5}]), "line 1, input_length", 3.5),
        ("m.jsonl", lines([{**MOONCAKE[0], "timestamp": None}]), "line 1, timestamp", None),
        ("m.jsonl", lines([{**MOONCAKE[0], "timestamp": float("nan")}]), "line 1, timestamp", None),
        ("m.jsonl", lines([{**MOONCAKE[0], "hash_ids": [1, 2, 3]}]), "line 1, hash_ids", 3),
        ("m.jsonl", lines([{**MOONCAKE[0], "hash_ids": ["a"]}]), "line 1, hash_ids", ["a"]),
        ("m.jsonl", "[1]\n", "line 1", [1]),
        ("m.jsonl", lines(list(reversed(MOONCAKE))), "line 2, timestamp", 0.0),
        ("o.json", '[{"prompt": 1, "max_tokens": true}]', "max_tokens.0", True),
        ("o.json", "[3]", "0", 3),
        ("o.json", "[]", None, None),
        ("o.json", "3", None, 3),
        ("o.json", "{", None, None),
        ("v.json", '{"input_lens": [1], "output_lens": [1, 2]}', None, None),
        ("v.json", '{"completed": 3}', "input_lens", None),
        ("r.txt", "1 2", None, None),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, name: str, text: str, field: str | None, value: object) -> None:
    path = file(tmp_path, name, text)
    with pytest.raises(BadInputError) as caught:
        read_requests(path)
    assert (caught.value.file, caught.value.field) == (path, field)
    assert value is None or caught.value.value == value
    assert caught.value.remedy and "\n" not in str(caught.value)


def test_no_file_is_no_requests(tmp_path: Path) -> None:
    for name in ("none.csv", "none.jsonl", "none.json"):
        with pytest.raises(BadInputError, match="cannot be read"):
            read_requests(str(tmp_path / name))


def test_rows_out_of_order_are_sorted_where_asked(tmp_path: Path) -> None:
    path = file(tmp_path, "m.jsonl", lines(list(reversed(MOONCAKE))))
    found = read_requests(path, sort=True)
    assert found.arrival_s.tolist() == [0.0, 0.0, 3.0]
    assert found.prompt_tokens.tolist() == [513, 1000, 1537]
    assert found.hashes.tolist() == [0, 2, 0, 1, 0, 1, 3, 4]


def test_an_early_first_row_is_no_negative_time(tmp_path: Path) -> None:
    rows = AZURE.splitlines()
    path = file(tmp_path, "a.csv", "\n".join([rows[0], rows[2], rows[1], ""]))
    assert read_requests(path, sort=True).prompt_tokens.tolist() == [374, 396]


def test_synthetic_lengths_are_what_was_asked_for() -> None:
    found = read_requests("synthetic:n=20000,input=1000,output=50,rate=4")
    assert (found.prompt_tokens.min(), found.prompt_tokens.max()) == (900, 1100)
    assert (found.output_tokens.min(), found.output_tokens.max()) == (45, 55)
    assert found.prompt_tokens.mean() == pytest.approx(1000, rel=2e-3)
    assert abs(np.corrcoef(found.prompt_tokens, found.output_tokens)[0, 1]) < 0.03
    gaps = np.diff(found.arrival_s)
    assert gaps.mean() == pytest.approx(0.25, rel=0.03) and gaps.std() == pytest.approx(0.25, rel=0.04)
    fixed = read_requests("synthetic:n=5,input=7,output=3,lengths=fixed,rate=2,arrivals=uniform")
    assert fixed.prompt_tokens.tolist() == [7] * 5 and fixed.arrival_s.tolist() == [0.5, 1.0, 1.5, 2.0, 2.5]
    long = read_requests("synthetic:n=20000,output=1000,lengths=exponential").output_tokens
    assert long.mean() == pytest.approx(1000, rel=0.03) and long.std() == pytest.approx(1000, rel=0.04)
    bursts = np.diff(read_requests("synthetic:n=20000,rate=1,arrivals=gamma:3").arrival_s)
    assert bursts.std() / bursts.mean() == pytest.approx(3.0, rel=0.1)


@together(
    "text",
    ["n=0", "n=-3", "n=1e3", "m=3", "n=3,n=4", "input=0", "rate=-1", "rate=nan", "rate=inf", "lengths=long",
     "n", "arrivals=often", "arrivals=gamma:0", "arrivals=gamma:x", "arrivals=poisson:2",
     f"n={10**9}", f"output={'9' * 30}"],
)  # fmt: skip
def test_a_line_that_describes_nothing_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_requests("synthetic:" + text)
    assert caught.value.remedy


def test_the_same_seed_gives_the_same_requests_in_every_process() -> None:
    source = "synthetic:n=50,rate=2,arrivals=gamma:2,lengths=exponential"
    program = (
        "from helmsman.simulator.serving.requests.read import read_requests as r\n"
        f"f = r({source!r}, 7)\nprint(f.arrival_s.tolist(), f.prompt_tokens.tolist(), f.output_tokens.tolist())"
    )
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    found = read_requests(source, 7)
    assert other.strip() == f"{found.arrival_s.tolist()} {found.prompt_tokens.tolist()} {found.output_tokens.tolist()}"
    assert read_requests(source, 8).arrival_s.tolist() != found.arrival_s.tolist()


def test_a_rate_stretches_what_has_times_and_draws_what_has_none() -> None:
    timed = make_requests(np.array([1.0, 2.0, 5.0]), np.full(3, 10), np.full(3, 10), cancel_s=np.array([1.5, 9.0, 9.0]))
    assert own_rate(timed) == 0.5
    twice = arrive(timed, 1.0, None, 0)
    assert (twice.arrival_s.tolist(), twice.cancel_s.tolist()) == ([0.0, 0.5, 2.0], [0.5, 7.5, 6.0])
    together = make_requests(np.zeros(4000), np.full(4000, 10), np.full(4000, 10))
    slow, fast = (arrive(together, rate, None, 3) for rate in (1.0, 4.0))
    assert own_rate(slow) == pytest.approx(1.0, rel=0.05)
    assert fast.arrival_s == pytest.approx(slow.arrival_s / 4.0)
    assert arrive(together, None, None, 0) is together
    assert arrive(timed, None, Arrivals("all-at-once"), 0).arrival_s.tolist() == [0.0, 0.0, 0.0]
    assert own_rate(arrive(timed, None, parse_arrivals("uniform"), 0)) == pytest.approx(0.5)
    with pytest.raises(UsageError, match="no rate of their own"):
        arrive(together, None, Arrivals("poisson"), 0)


def test_too_many_requests_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helmsman.schemas.requests.MAX_REQUESTS", 2)
    with pytest.raises(BadInputError, match="too many"):
        check_requests(make_requests(np.zeros(3), np.ones(3, np.int64), np.ones(3, np.int64)), Place("x"))
