"""Who is let in: so many requests, so many tokens promised."""

import asyncio
from dataclasses import replace
from threading import Event
from typing import Any

import pytest
from benchmarks.virtual_engine import ROOM, VirtualEngine
from http_service import OPTIONS, Site, on_site

from helmsman.service.http.refusals import RefusedError
from helmsman.service.inference.admission import Admission, Bounds
from helmsman.service.inference.generation import Job

JOB = Job(prompt=(1,) * 20, max_tokens=20)


def test_what_is_promised_is_whole_blocks_and_given_back() -> None:
    admission = Admission(Bounds(requests=9, tokens=100), ROOM, lambda: 0.0)
    with admission.admitted(JOB):
        assert (admission.requests, admission.tokens) == (1, 48)
        with admission.admitted(JOB), pytest.raises(RefusedError) as refused, admission.admitted(Job((1,), 1)):
            pass
        assert (refused.value.status, refused.value.reason) == (429, "kv_promised")
    assert (admission.requests, admission.tokens) == (0, 0)


def test_one_alone_may_always_come_in() -> None:
    admission = Admission(Bounds(requests=1, tokens=10), ROOM, lambda: 0.0)
    with admission.admitted(JOB):
        with pytest.raises(RefusedError) as refused, admission.admitted(JOB):
            pass
        assert refused.value.reason == "queue_full"


@pytest.mark.parametrize(("ends", "retry"), [([], 1), ([0], 1), ([0, 5, 10], 5), ([0, 0.1], 1), ([0, 900], 60)])
def test_retries_are_asked_for_when_one_will_have_ended(ends: list[float], retry: int) -> None:
    clock = iter([*ends, *ends[-1:]])
    admission = Admission(Bounds(1, 10**6), ROOM, lambda: next(clock))
    for _ in ends:
        with admission.admitted(JOB):
            pass
    assert admission.retry_s == retry


def test_more_than_may_wait_are_told_when_to_come_again() -> None:
    """The engine makes no token until the three have been refused."""
    go_on = Event()

    async def test(site: Site) -> None:
        def ask() -> asyncio.Task[Any]:
            return asyncio.create_task(site.complete(prompt="a", max_tokens=20, ignore_eos=True))

        asked = [ask() for _ in range(5)]
        await site.until(lambda: sum(each.done() for each in asked) == 3)
        go_on.set()
        found = await asyncio.gather(*asked)
        assert sorted(status for status, _, _ in found) == [200, 200, 429, 429, 429]
        refused = next(each for each in found if each[0] == 429)
        assert refused[1]["error"]["type"] == "rate_limit_error" and int(refused[2]["Retry-After"]) >= 1
        assert (await site.complete(prompt="a", max_tokens=1))[0] == 200
        assert 'reason="queue_full"} 3.0' in (await site.get("/metrics"))[1]

    on_site(
        test,
        VirtualEngine(sleep=lambda _: go_on.wait(60)),
        options=replace(OPTIONS, bounds=Bounds(requests=2, tokens=10**6)),
    )
