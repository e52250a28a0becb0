"""Workers and computations: once for all who ask, in turns, ended at any moment, replaced."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from web_service import OPTIONS, QUESTION, web_site

from helmsman.schemas.errors import HelmError
from helmsman.service.planner.computing.answer import WorkerAnswer
from helmsman.service.planner.computing.computations import Computations
from helmsman.service.planner.computing.pool import LaneSeat, PoolLimits, TookTooLongError, Work, WorkerPool
from helmsman.service.planner.computing.worker import WorkerEndedError, WorkerProcess
from helmsman.service.planner.computing.worker_main import WorkerLimits
from helmsman.service.planner.jobs.database import requeue

MACHINE = b'{"cpu": "AMD Ryzen 9 5950X", "ram": 64000000000}'
LONG = b'{"question": {"model": "Qwen3-0.6B", "hardware": "rtx4060-laptop", "strategy": "layer-split"}, "serving": ' \
    b'{"requests": "synthetic:n=50000,rate=9", "slo": "ttft=1s"}, "capacity": true, "seeds": 50}'  # fmt: skip
"""Takes longer than any test."""


def pooled(
    test: Callable[[WorkerPool], Awaitable[None]], folder: Path, memory: int = 4 * 2**30, **changes: Any
) -> None:
    """Run a test with a pool of its own."""
    worker = WorkerLimits(memory, 1000, folder, folder, partial(requeue, folder / "jobs.sqlite"))
    limits = replace(PoolLimits(1, 60.0, worker, 60.0), **changes)

    async def run() -> None:
        pool = WorkerPool(limits)
        try:
            await test(pool)
        finally:
            await pool.close()

    asyncio.run(run())


def work(kind: str = "machine", question: bytes = MACHINE, key: str = "k", client: str = "me") -> Work:
    return Work(key, kind, question, client)


def seat(client: str = "me", lane: Any = "quick") -> LaneSeat:
    return LaneSeat(client, lane, asyncio.get_running_loop().create_future())


async def answered(pool: WorkerPool, task: Work, place: LaneSeat) -> WorkerAnswer:
    async with pool.taken(place):
        return await pool.run(place, task, lambda done, total: None)


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0.002)


def test_a_worker_answers_again_and_again(tmp_path: Path) -> None:
    async def test(pool: WorkerPool) -> None:
        first = await answered(pool, work(), seat())
        assert first.status == 200 and b"5950" in first.content
        assert (await answered(pool, work(), seat())).content == first.content
        wrong = await answered(pool, work(question=b"{"), seat())
        assert wrong.status == 400 and pool.killed == 0
        assert len(pool._idle["quick"]) == 1

    pooled(test, tmp_path)


def test_a_task_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    async def test(pool: WorkerPool) -> None:
        with pytest.raises(TookTooLongError, match=r"longer than the 0\.5 s"):
            await answered(pool, work("simulation", LONG), seat())
        assert pool.killed == 1 and pool.busy("quick") == 0

    pooled(test, tmp_path, seconds=0.5)


def test_a_worker_that_dies_is_said_and_replaced(tmp_path: Path) -> None:
    async def test(pool: WorkerPool) -> None:
        place = seat()
        running = asyncio.create_task(answered(pool, work("simulation", LONG), place))
        await until(lambda: place.worker and place.worker.begun)
        assert place.worker is not None
        place.worker.process.kill()
        with pytest.raises(WorkerEndedError):
            await running
        assert (await answered(pool, work(), seat())).status == 200

    pooled(test, tmp_path)


def test_a_task_has_so_much_memory(tmp_path: Path) -> None:
    async def test(pool: WorkerPool) -> None:
        answer = await answered(pool, work("simulation", LONG.replace(b"n=50000", b"n=9999999")), seat())
        assert answer.status == 422 and b"too-much-memory" in answer.content
        assert pool.killed == 1, "what is left of its memory is doubtful"

    pooled(test, tmp_path, memory=2**29)


def test_a_cancelled_task_ends_its_worker(tmp_path: Path) -> None:
    async def test(pool: WorkerPool) -> None:
        place = seat()
        running = asyncio.create_task(answered(pool, work("simulation", LONG), place))
        await until(lambda: place.worker)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert pool.killed == 1 and pool.busy("quick") == 0

    pooled(test, tmp_path)


def test_clients_take_turns(tmp_path: Path) -> None:
    """Who has most under way waits longest, whoever came first."""

    async def test(pool: WorkerPool) -> None:
        order: list[str] = []
        releases = [asyncio.Event() for _ in range(4)]

        async def hold(client: str, release: asyncio.Event) -> None:
            async with pool.taken(seat(client)):
                order.append(client)
                await release.wait()

        tasks = [asyncio.create_task(hold(*pair)) for pair in zip("aaab", releases, strict=True)]
        await until(lambda: len(order) == 2)
        releases[0].set()
        await until(lambda: len(order) == 3)
        assert order == ["a", "a", "b"], "there are two places"
        for release in releases:
            release.set()
        await asyncio.gather(*tasks)

    pooled(test, tmp_path, places=2)


def test_a_long_task_makes_room_for_quick_ones(tmp_path: Path) -> None:
    async def test(pool: WorkerPool) -> None:
        place = seat()
        long = asyncio.create_task(answered(pool, work("simulation", LONG), place))
        await until(lambda: place.worker)
        quick = asyncio.create_task(answered(pool, work(), seat()))
        await asyncio.sleep(0)
        assert pool.waiting("quick") == 1
        pool.promote(place)
        assert (await quick).status == 200 and not long.done()
        assert pool.busy("long") == 1
        long.cancel()
        await asyncio.gather(long, return_exceptions=True)

    pooled(test, tmp_path)


def test_a_long_task_loses_its_quick_place(tmp_path: Path) -> None:
    """Even where jobs have no room for it: it then waits with them."""

    async def test(pool: WorkerPool) -> None:
        computations = Computations(pool, lambda key, kind, answer: None)
        await pool.warm()  # however long a process takes to start
        jobs = [work("simulation", LONG, key) for key in "ab"]
        with computations.waiting(jobs[0], "long"), computations.waiting(jobs[1], "quick") as one:
            await until(lambda: one.seat.lane == "long")
            assert (await answered(pool, replace(work(), seconds=60.0), seat())).status == 200
            assert pool.killed == 1 and pool.waiting("long") == 1 and not one.answer.done()
        await computations.close()

    pooled(test, tmp_path, quick=0.3)


def test_a_long_task_that_has_room_goes_on(tmp_path: Path) -> None:
    async def test(pool: WorkerPool) -> None:
        place = seat()
        running = asyncio.create_task(answered(pool, work("simulation", LONG), place))
        await until(lambda: place.worker)
        pool.promote(place)
        await asyncio.sleep(0.4)
        assert not running.done() and pool.killed == 0
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    pooled(test, tmp_path, quick=0.3)


def test_a_task_has_a_time_of_its_own(tmp_path: Path) -> None:
    async def test(pool: WorkerPool) -> None:
        with pytest.raises(TookTooLongError, match=r"longer than the 0\.2 s"):
            await answered(pool, replace(work("simulation", LONG), seconds=0.2), seat())

    pooled(test, tmp_path, quick=0.1)


@pytest.mark.parametrize("seen", [True, False], ids=["seen", "unseen"])
def test_a_worker_that_died_with_nothing_to_do_costs_nobody_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: bool
) -> None:
    async def test(pool: WorkerPool) -> None:
        await pool.warm()
        idle = pool._idle["quick"][0]
        idle.process.kill()
        await until(lambda: idle.ended)
        if not seen:
            monkeypatch.setattr(WorkerProcess, "ended", False)
        assert (await answered(pool, work(), seat())).status == 200
        assert len(pool._idle["quick"]) == 1 and pool._idle["quick"][0] is not idle

    pooled(test, tmp_path)


def test_a_job_whose_worker_dies_is_tried_again_once(tmp_path: Path) -> None:
    async def test(pool: WorkerPool) -> None:
        computations = Computations(pool, lambda key, kind, answer: None)
        with computations.waiting(work("simulation", LONG), "long") as one:
            for kills in range(2):
                await until(lambda: one.seat.worker and one.seat.worker.begun)
                assert one.kills == kills and one.seat.worker is not None
                one.seat.worker.process.kill()
                await until(lambda: one.seat.worker is None)
            answer = await asyncio.shield(one.answer)
            assert answer.status == 503 and b"worker-ended" in answer.content
        await computations.close()

    pooled(test, tmp_path)


def test_a_computation_that_is_done_is_joined_not_begun_again(tmp_path: Path) -> None:
    async def test(pool: WorkerPool) -> None:
        computations = Computations(pool, lambda key, kind, answer: None)
        with computations.waiting(work(), "quick") as one:
            await asyncio.shield(one.answer)
            with computations.joined(one, work()):
                assert computations.under_way == 0 and len(one.waiting) == 2
        await computations.close()

    pooled(test, tmp_path)


def test_a_question_is_computed_once_for_all_who_ask(tmp_path: Path) -> None:
    async def test(pool: WorkerPool) -> None:
        kept: list[str] = []
        computations = Computations(pool, lambda key, kind, answer: kept.append(key))
        with computations.waiting(work(), "quick") as one, computations.waiting(work(), "long") as other:
            assert one is other and computations.under_way == 1
            answer = await asyncio.shield(one.answer)
        assert answer.status == 200 and kept == ["k"]
        with computations.waiting(work(), "quick") as again:
            assert again is not one
            await asyncio.shield(again.answer)
        await computations.close()

    pooled(test, tmp_path)


def test_what_nobody_waits_for_is_ended(tmp_path: Path) -> None:
    async def test(pool: WorkerPool) -> None:
        computations = Computations(pool, lambda key, kind, answer: None)
        with computations.waiting(work("simulation", LONG), "quick") as one:
            with computations.waiting(work("simulation", LONG), "quick"):
                await one.begun.wait()
                await until(lambda: one.seat.worker)
            assert pool.killed == 0, "one still waits"
        await until(lambda: pool.killed == 1 and computations.under_way == 0)

    pooled(test, tmp_path)


def test_processes_that_cannot_be_started_are_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(pool: WorkerPool) -> None:
        async def none(lane: str) -> Any:
            raise BlockingIOError(11, "Resource temporarily unavailable")

        monkeypatch.setattr(pool, "_new", none)
        with pytest.raises(HelmError, match="no process can be started"):
            await answered(pool, work(), seat())
        assert pool.busy("quick") == 0

    pooled(test, tmp_path)


def test_plans_are_planned_while_jobs_run(tmp_path: Path) -> None:
    """Not behind them."""
    with web_site(tmp_path, OPTIONS) as site:
        place = site.post("/v1/simulations", json.loads(LONG)).headers["location"]
        site.until(place, lambda job: job["state"] == "running")
        assert site.post("/v1/plans", {**QUESTION, "prompt_tokens": 99}).status == 200
        assert site.get(place).document["state"] == "running"
        site.ask("DELETE", place)
