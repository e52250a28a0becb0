"""Many connections of every kind at once: all are answered, and nothing is left behind."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.crowd import Crowd, Kinds
from benchmarks.held_load import Server, held, quantile
from benchmarks.virtual_engine import ROOM, VirtualEngine
from http_service import OPTIONS, Site, on_site

from helmsman.service.http.bodies import BodyLimits
from helmsman.service.inference.admission import Bounds

SOME = Kinds(streaming=60, whole=20, stalling=20, leaving=40, large=20, garbage=20, silent=20, patience_s=0.3)
QUICK = replace(
    OPTIONS, bounds=Bounds(requests=150, tokens=10**6), bodies=BodyLimits(seconds=0.5), stall_s=5.0, idle_s=0.5
)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_crowd_leaves_nothing_behind() -> None:
    async def test(site: Site) -> None:
        loop, port = asyncio.get_running_loop(), int(site.url.rpartition(":")[2])
        await site.get("/health")
        tasks, files = len(asyncio.all_tasks()), open_files()
        crowd = asyncio.create_task(Crowd(port, loop.time() + 0.3, 0, SOME).hold())
        while not crowd.done():
            assert (await site.get("/health"))[0] == 200
            await asyncio.sleep(0.01)
        met = (await crowd).met
        assert met["stream: 200"] and met["whole: 200"] and met["large: 413"] and met["garbage: 400"], met
        assert not [each for each in met if each.endswith(("500", "broken off"))], met
        await site.until(lambda: site.service.admission.requests == 0 and site.engine.load().running == 0)
        await site.until(lambda: len(asyncio.all_tasks()) <= tasks and open_files() <= files)

    on_site(test, VirtualEngine(replace(ROOM, sequences=100), step_s=0.002), options=QUICK)


@pytest.mark.nightly
def test_a_thousand_connections() -> None:
    server = Server(sequences=64, step_s=0.02)
    try:
        asyncio.run(held(server.port, 2.0, Kinds(), seed=0))
        before = server.footprint()
        tally, health = asyncio.run(held(server.port, 10.0, Kinds(), seed=1))
        after = server.footprint()
    finally:
        status = server.stop()
    assert status == 0 and tally.open_most > 950
    assert quantile(health, 0.5) < 0.2, "whatever else the machine does; what share of a quiet one is slow, is measured"
    assert (after.files, after.tasks) == (before.files, before.tasks)
    assert after.rss < before.rss + 2**24 and after.objects < before.objects + 1000
