"""A server whose memory runs out at any allocation of a request, or whose clocks misbehave: that request is refused or
fails, and the next is answered."""

import errno
import json
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from faults import Fault, Faulty, Forking, failing
from two_cpus import TWO_CPUS

pytestmark = TWO_CPUS

LEAST = 2**12
"""Bytes of an allocation that counts: what requests take is small."""
REFUSED = (0, 200, 503)
"""HTTP statuses that a request may get while memory runs out; 0: the server closed its connection unread."""
HANGS_S = 300.0
"""Seconds after which a server is taken to hang: the slowest and busiest machine needs a tenth of them."""


@pytest.fixture(scope="module")
def system(forking: Forking, inputs: Path) -> Faulty:
    return Faulty(forking, inputs, least=LEAST)


@pytest.fixture
def url(system: Faulty, inputs: Path) -> Iterator[str]:
    """Where a server answers, which afterwards ends as it is told to."""
    place = inputs / "outputs" / "ready.json"
    place.unlink(missing_ok=True)
    argv = [inputs / "served.json", "--checkpoint", inputs / "checkpoint", "--port", 0, "-q", "-o", place]
    process = system.start("serve", *argv)
    until(place.exists)
    yield json.loads(place.read_text())["url"]
    system.plant(None)  # a test that failed may have left one
    os.kill(process, signal.SIGTERM)
    ended = system.wait()
    assert (ended.code, ended.out) == (0, ""), ended.err[-2000:]


def until(holds: Callable[[], bool]) -> None:
    """Wait for a condition. How long it takes decides nothing, but that a server hangs."""
    end = time.monotonic() + HANGS_S
    while not holds():
        assert time.monotonic() < end, "the server hangs"
        time.sleep(0.01)


def status_of(url: str, **asked: object) -> int:
    """Of a GET, or of a POST where something is asked; 0 where the connection was reset before it was read, or sent."""
    data = json.dumps(asked).encode() if asked else None
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=HANGS_S) as answer:
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except ConnectionResetError:
        return 0
    except urllib.error.URLError as error:
        if isinstance(error.reason, ConnectionResetError):
            return 0
        raise


def complete(url: str) -> int:
    return status_of(f"{url}/v1/completions", prompt="abc " * 3, max_tokens=3, ignore_eos=True)


def check_requests(system: Faulty, url: str, faults: list[Fault], among: tuple[int, ...]) -> None:
    """One request with each fault, whose status is one `among` those, and one without afterwards."""
    met = 0
    for fault in faults:
        system.plant(fault)
        status = complete(url)
        met += system.seen()[1] > 0
        system.plant(None)
        assert status in among, f"{status} with {fault}"
        until(lambda: status_of(f"{url}/health") == 200)
        assert complete(url) == 200, f"after {fault}"
    assert met


def counted(system: Faulty, url: str, kind: str) -> int:
    """Return the number of calls of a kind (as in `faults.KINDS`) that a server makes for one request, after others."""
    for _ in range(3):
        system.plant(None)
        assert complete(url) == 200
    return system.seen()[0][kind]


def refusals(count: int, step: int) -> list[Fault]:
    numbers = range(0, max(count, 1), step)
    return [
        failing(("allocate",), number, errno.ENOMEM, for_good=for_good)
        for number in numbers
        for for_good in (False, True)
    ]


def test_memory_may_run_out_beneath_a_request(system: Faulty, url: str) -> None:
    count = counted(system, url, "allocate")
    check_requests(system, url, refusals(count, max(1, count // 4)), REFUSED)


@pytest.mark.nightly
def test_memory_may_run_out_anywhere_beneath_a_request(system: Faulty, url: str) -> None:
    check_requests(system, url, refusals(counted(system, url, "allocate"), 1), REFUSED)


def test_clocks_may_stand_still_and_be_set_beneath_requests(system: Faulty, url: str) -> None:
    count = counted(system, url, "clock")
    day = 86400.0
    check_requests(
        system,
        url,
        [
            Fault(("clock",), number, number, "stand", seconds=0.2, jump=jump)
            for number in range(0, count, max(1, count // 4))
            for jump in (-day, day)
        ],
        (200,),
    )
