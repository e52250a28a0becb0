import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from helmsman.lowering.graph import Task
from helmsman.lowering.placement import Placement
from helmsman.schemas.trace import Span
from helmsman.schemas.workload import Workload
from helmsman.simulator.export import timeline_json
from helmsman.simulator.stream import timeline
from helmsman.timing.handovers import Handovers

LANES = ["cpu", "acc", "h2d", "h2d:activations", "d2h", "d2h:activations"]


def price(task: Task) -> float:
    return 0.0 if task.op == "norm2" else 1e-6 / 3 + task.bytes / 20e9


@pytest.fixture(params=["split", "streamed"])
def rows(request: pytest.FixtureRequest, placement: Callable[..., Placement]) -> list[Span]:
    plan = placement(Workload(prompt_tokens=16, output_tokens=9, context=25), request.param)
    return list(timeline(plan, price, Handovers(plan.hardware), 8))


def spans_of(document: dict[str, Any]) -> dict[tuple[int, int], list[tuple[int, int, str]]]:
    """(process, lane) -> events as (start, end, name) in whole nanoseconds, in file order."""
    lanes: dict[tuple[int, int], list[tuple[int, int, str]]] = {}
    for event in document["traceEvents"]:
        if event["ph"] == "X":
            start, length = round(event["ts"] * 1000), round(event["dur"] * 1000)
            lanes.setdefault((event["pid"], event["tid"]), []).append((start, start + length, event["name"]))
    return lanes


def depth(name: str) -> int:
    return 0 if name.startswith(("prefill", "decode")) else 1 if name.startswith("block") else 2


def check_nesting(events: list[tuple[int, int, str]]) -> None:
    """Each event lies within its open parents, and starts no earlier than its elder sibling ended."""
    open_until: list[int] = []
    done_until = [0, 0, 0]
    for start, end, name in events:
        while open_until and open_until[-1] <= start:
            open_until.pop()
        assert all(end <= limit for limit in open_until)
        assert start >= done_until[depth(name)], "two spans of one lane overlap"
        open_until.append(end)
        done_until[depth(name)] = end


def test_spans_nest_and_never_overlap(rows: list[Span]) -> None:
    document = json.loads(timeline_json(rows, LANES, "test"))
    lanes = spans_of(document)
    assert len(lanes) == len({row.resource for row in rows}) >= 4
    for events in lanes.values():
        check_nesting(events)
    operations = [e for events in lanes.values() for e in events if depth(e[2]) == 2]
    assert len(operations) == len(rows)


def test_counters_say_how_much_a_second_moves(rows: list[Span]) -> None:
    """Bytes over seconds while a lane moves or reads something, else 0: their integral is all bytes."""
    document = json.loads(timeline_json(rows, LANES, "test"))
    for lane in {row.resource for row in rows}:
        told = [(e["ts"], e["args"]["GB/s"]) for e in document["traceEvents"] if e["name"] == f"{lane} GB/s"]
        moments = [moment for moment, _ in told]
        assert moments == sorted(moments)
        total = sum(row.bytes for row in rows if row.resource == lane and row.end_s > row.start_s)
        area = sum(rate * (later - now) * 1e3 for (now, rate), (later, _) in pairwise(told))
        assert area == pytest.approx(total, rel=1e-2) and (not told or told[-1][1] == 0.0)


def test_lanes_are_named_and_ordered(rows: list[Span]) -> None:
    events = json.loads(timeline_json(rows, LANES, "test"))["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    order = {e["tid"]: e["args"]["sort_index"] for e in events if e["name"] == "thread_sort_index"}
    assert [names[tid] for tid in sorted(order, key=lambda tid: order[tid])] == LANES
    assert {row.resource for row in rows} <= set(LANES)


def test_an_unlisted_lane_is_shown_too(rows: list[Span]) -> None:
    events = json.loads(timeline_json(rows, ["cpu"], "test"))["traceEvents"]
    names = [e["args"]["name"] for e in events if e["name"] == "thread_name"]
    assert names == ["cpu", *sorted({row.resource for row in rows} - {"cpu"})]


def test_the_cap_drops_whole_iterations_from_the_end(rows: list[Span]) -> None:
    full = timeline_json(rows, LANES, "test")
    assert json.loads(full)["otherData"]["iterations_dropped"] == 0
    previous = -1
    for limit in range(2_000, len(full) + 20_000, 15_000):
        text = timeline_json(rows, LANES, "test", limit)
        assert len(text) <= limit
        document = json.loads(text)
        kept = document["otherData"]["iterations_written"]
        assert kept + document["otherData"]["iterations_dropped"] == 9
        found = [e for events in spans_of(document).values() for e in events if depth(e[2]) == 2]
        assert len(found) == sum(row.iteration < kept for row in rows)
        assert kept >= previous
        previous = kept
    assert previous == 9


def test_the_same_spans_give_the_same_bytes_in_any_order(rows: list[Span]) -> None:
    assert timeline_json(rows, LANES, "t") == timeline_json(rows[::-1], LANES, "t")


def test_no_spans_make_an_empty_timeline() -> None:
    assert json.loads(timeline_json([], LANES, "t"))["traceEvents"] == []


def test_a_lane_may_rest_for_an_iteration(rows: list[Span]) -> None:
    kept = [row for row in rows if row.iteration != 1 or row.resource != "cpu"]
    document = json.loads(timeline_json(kept, LANES, "t"))
    names = [event["name"] for event in document["traceEvents"] if event.get("tid") == 1 and event["ph"] == "X"]
    assert "prefill" in names and "decode 2" in names and "decode 1" not in names
