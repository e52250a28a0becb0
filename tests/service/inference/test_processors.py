"""What others took while a server was measured: from the text of its metrics before and after."""

import pytest

from helmsman.service.inference.generation import Load
from helmsman.service.inference.load.processors import on_this_machine, parse_use, use_notes
from helmsman.service.inference.metrics import Metrics

TEXT = """# HELP process_cpu_seconds_total Processor time of the server.
process_cpu_seconds_total {own}
helm:machine_busy_seconds_total {busy}
helm:machine_cpu_seconds_total {total}
helm:thread_wait_seconds_total {waited}
"""


def use(client: float, **values: float):
    return parse_use(TEXT.format(**values), client)


def test_server_and_client_are_no_others():
    before = use(1.0, own=10.0, busy=100.0, total=1000.0, waited=0.5)
    after = use(2.0, own=25.0, busy=119.0, total=1020.0, waited=1.5)
    notes = use_notes(before, after)
    assert notes == pytest.approx({"others_cpu_share": 3.0 / 20.0, "thread_wait_share": 0.05})


def test_a_server_that_does_not_tell_is_unknown():
    assert parse_use("vllm:num_requests_running 1.0\n", 0.0) is None
    assert use_notes(None, use(0.0, own=1.0, busy=1.0, total=9.0, waited=0.0)) == {}


def test_only_a_loopback_address_is_this_machine():
    assert all(map(on_this_machine, ("http://127.0.0.1:8000", "http://[::1]:1", "http://localhost:8000")))
    assert not any(map(on_this_machine, ("http://10.0.0.7:8000", "http://example.org")))


def test_helm_serve_tells():
    load = Load(running=0, waiting=0, kv_share=0.0, preemptions=0, looked_up=0, reused=0)
    found = parse_use(Metrics("m", lambda: load).text().decode(), 0.0)
    assert found is not None and found.times.total >= found.times.busy > found.times.own > 0.0
