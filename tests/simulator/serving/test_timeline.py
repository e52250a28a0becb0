"""Timelines of serving runs: what the table says, request by request, and counters that agree with it."""

import json
from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from serving_oracle import INFO, simple_cost

from helmsman.scheduler.limits import Limits
from helmsman.schemas.served_table import FINISHED, STATUSES
from helmsman.simulator.serving.requests.request_source import Variation, open_source
from helmsman.simulator.serving.requests_in_system import present
from helmsman.simulator.serving.run import Outcome, Setup, serve
from helmsman.simulator.serving.timeline import serving_timeline


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    """Eighty requests on two replicas, some of which leave, and some of which are too long for the cache."""
    requests = open_source("synthetic:n=80,input=200,output=30,lengths=exponential").requests(0, Variation(8.0))
    leaving = np.where(np.arange(80) % 9 == 0, requests.arrival_s + 0.2, np.inf)
    cost = simple_cost(0.02, 1e-5)
    limits = Limits(gpu_tokens=600, cpu_tokens=0, batch_tokens=512, sequences=16)
    setup = Setup(cost, cost, limits, "gpu-only", {"preemption": "recompute"}, replicas=2)
    return serve(replace(requests, cancel_s=leaving), setup, INFO)


def events(outcome: Outcome, limit: int = 16 * 2**20) -> dict[str, Any]:
    text = serving_timeline(outcome.served, outcome.occupancy, "a run", limit).text
    assert text.isascii() and len(text) <= limit
    document: dict[str, Any] = json.loads(text)
    return document


def test_every_request_has_its_moments(outcome: Outcome) -> None:
    served = outcome.served
    assert {"finished", "cancelled", "rejected"} <= {STATUSES[status] for status in served.status.tolist()}
    parts = defaultdict(list)
    for event in events(outcome)["traceEvents"]:
        if event["ph"] in "be":
            parts[event["id"]].append((event["name"], event["ph"], event["ts"], event["pid"]))
    ended = ~np.isnan(served.finish_s)
    assert set(parts) == set(served.request[ended].tolist())
    for row in np.flatnonzero(served.status == FINISHED).tolist():
        moments = [served.arrival_s[row], served.started_s[row], served.first_token_s[row], served.finish_s[row]]
        first, *inner, last = parts[int(served.request[row])]
        assert {pid for _, _, _, pid in parts[int(served.request[row])]} == {int(served.replica[row]) + 1}
        assert (first[1], last[1]) == ("b", "e") and first[0] == last[0]
        assert [(name, kind) for name, kind, _, _ in inner] == [
            (name, kind) for name in ("waits", "prompt", "output") for kind in "be"
        ]
        told = [first[2], *(moment for _, kind, moment, _ in inner if kind == "e")]
        assert told == pytest.approx([1e6 * moment for moment in moments], abs=1e-3)


def test_counters_are_those_of_the_table(outcome: Outcome) -> None:
    counted: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for event in events(outcome)["traceEvents"]:
        if event["ph"] == "C":
            counted[event["name"]].append((event["ts"], event["args"]["value"]))
    steps = present(outcome.served)
    moments, values = zip(*counted["requests there"], strict=True)
    assert list(moments) == pytest.approx((1e6 * steps.at_s).tolist(), abs=1e-3) and list(values) == list(steps.count)
    shares = [value for _, value in counted["cache on the accelerator, %"]]
    assert outcome.occupancy.gpu_share is not None and "cache on the host, %" not in counted
    assert max(shares) == pytest.approx(100 * float(outcome.occupancy.gpu_share.max()), rel=1e-4)


def test_the_last_requests_are_dropped_where_there_is_no_room(outcome: Outcome) -> None:
    whole = events(outcome)["otherData"]
    size = len(serving_timeline(outcome.served, outcome.occupancy, "a run").text)
    part = events(outcome, size - 5000)
    kept = {event["id"] for event in part["traceEvents"] if event["ph"] == "b"}
    written, dropped = (part["otherData"][f"requests_{what}"] for what in ("written", "dropped"))
    assert whole["requests_dropped"] == 0 and written == len(kept) < whole["requests_written"] == written + dropped
    arrivals = dict(zip(outcome.served.request.tolist(), outcome.served.arrival_s.tolist(), strict=True))
    ended = outcome.served.request[~np.isnan(outcome.served.finish_s)].tolist()
    assert max(arrivals[number] for number in kept) <= min(arrivals[number] for number in set(ended) - kept)
