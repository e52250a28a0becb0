"""The state that all requests share, and the way from a question to its answer or its job."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

from helmsman.schemas.errors import HelmError
from helmsman.schemas.job import JobKind, PlannerJob
from helmsman.schemas.listing import Kind
from helmsman.schemas.service_health import ServiceHealth
from helmsman.service.http.bodies import HeldBodies
from helmsman.service.http.refusals import RefusedError
from helmsman.service.planner.answers.answer_table import AnswerTable
from helmsman.service.planner.answers.cache import AnswerCache
from helmsman.service.planner.answers.keys import Keys
from helmsman.service.planner.answers.memory_cache import MemoryCache
from helmsman.service.planner.computing.answer import WorkerAnswer
from helmsman.service.planner.computing.computations import Computation, Computations
from helmsman.service.planner.computing.pool import PoolLimits, Work, WorkerPool
from helmsman.service.planner.computing.worker_main import WorkerLimits
from helmsman.service.planner.jobs.database import JobDatabase, requeue
from helmsman.service.planner.jobs.desk import JobDesk
from helmsman.service.planner.jobs.store import StorePlaces
from helmsman.service.planner.jobs.strays import remove_strays
from helmsman.service.planner.metrics import WebMetrics
from helmsman.service.planner.options import WebOptions
from helmsman.service.planner.page_files import PageFiles, page_folder
from helmsman.service.planner.problems import internal_problem
from helmsman.service.planner.questions.catalogue import FIRST, Catalogue
from helmsman.service.planner.quotas import Charge, Quotas

_EXPIRY_S = 60.0
"""Seconds between two looks for jobs that are not to be kept any more."""

_BUSY_S = 5
"""Seconds after which there may be room again."""
_SHARES = 4
"""One client may have this part of what may wait: others are served while it asks for all that it may."""

ResultT = TypeVar("ResultT")
_LISTED: tuple[Kind, ...] = ("models", "machines", "gpus", "cpus", "strategies")
Left = Callable[[], Awaitable[None]]
"""Returns when who asked has left."""
State = Literal["starting", "ok", "stopping", "damaged"]


class GoneError(Exception):
    """Raised where who asked has left before there was an answer."""


@dataclass(frozen=True, slots=True)
class ClientQuestion:
    """A question of a kind, known by its `key`, of a `client`; `points`: the number of plans that it takes."""

    kind: str
    key: str
    content: bytes
    client: str
    points: int = 1

    def work(self, seconds: float | None) -> Work:
        """Return what is to be computed, in at most so many seconds where it is not to be a job."""
        return Work(self.key, self.kind, self.content, self.client, seconds)


class PlannerService:
    """A planner over one store. Made, and used, in the loop that answers."""

    def __init__(self, options: WebOptions, places: StorePlaces, lock: int) -> None:
        """Raises BadInputError for a damaged store, HardwareUnavailableError on a full disk."""
        self.options, self.keys, self.catalogue = options, Keys.here(), Catalogue()
        self.page = PageFiles(page_folder())
        database = JobDatabase(places.jobs)
        remove_strays(places.results, places.work, database)
        self.cache = AnswerCache(MemoryCache(options.cache), AnswerTable(places.answers, options.kept))
        worker = WorkerLimits(
            options.memory, options.jobs.points, places.work, places.results, partial(requeue, places.jobs)
        )
        quick = options.patience_s + options.crowded_s
        self.pool = WorkerPool(PoolLimits(options.workers, options.job_s, worker, quick), lock)
        self.computations = Computations(self.pool, self.cache.keep)
        self.desk = JobDesk(database, places.results, self.computations, options.jobs, options.clients)
        self.bodies = HeldBodies(options.bodies)
        self.quotas = Quotas(options.clients, time.monotonic)
        self.metrics = WebMetrics(self._gauges)
        self.streams: Counter[str] = Counter()
        self.stopping = asyncio.Event()
        self.connections = 0
        self._started = False
        self._problem: str | None = None

    async def start(self) -> int:
        """Start workers, and queue again what another server has left; returns the number of jobs."""
        await self.pool.warm()
        recovered = await self.desk.recover()
        self._started = True
        return recovered

    async def prepare(self) -> None:
        """Read the page, and what there is by name, so that no client waits for it."""
        await asyncio.to_thread(self.page.prepare)
        for kind in _LISTED:
            await asyncio.to_thread(self.catalogue.listing, kind)
        model, machine = FIRST
        await asyncio.to_thread(self.catalogue.model, model)
        await asyncio.to_thread(self.catalogue.machine, machine)

    async def close(self) -> None:
        """End all that is under way: jobs that have not ended stay in the store."""
        await self.desk.close()
        await self.computations.close()
        await self.pool.close()
        await self.cache.close()

    async def keep_house(self) -> None:
        """Forget old jobs from time to time, whatever goes wrong with it. Runs until it is cancelled."""
        while True:
            try:
                await self.desk.expire()
                self._problem = None
            except HelmError as error:
                self._problem = error.message
            except Exception as error:
                internal_problem(error)
                self._problem = "the service has a mistake, which its log describes"
            await asyncio.sleep(_EXPIRY_S)

    def health(self) -> ServiceHealth:
        """Return whether the service is in a state to be asked."""
        if self.stopping.is_set():
            return ServiceHealth(status="stopping")
        if not self._started:
            return ServiceHealth(status="starting")
        return ServiceHealth(status="ok" if self._problem is None else "damaged", problem=self._problem)

    async def answer(self, question: ClientQuestion, left: Left) -> WorkerAnswer | PlannerJob:
        """Return the answer to a question, or the job that it became because it takes long. Raises RefusedError,
        GoneError, HelmError."""
        known = await self.cache.get(question.key)
        if known is not None:
            return known
        kind = _JOB_KINDS.get(question.kind)
        work = question.work(self.options.short_s if kind is None else None)
        size = len(question.content)
        with self.bodies.hold(work.client, size), self._under_way(work, size, question.points) as computation:
            gone = asyncio.ensure_future(left())
            try:
                if kind is None:
                    return await self._short_answer(computation, gone)
                answer = await _first(computation.answer, gone, self.options.patience_s)
                if answer is not None:
                    return answer
                job = await self.desk.adopt(kind, computation, question.content, question.client, question.points)
                self.computations.promote(computation)
                self.metrics.job(kind)
                return job
            finally:
                gone.cancel()

    async def _short_answer(self, computation: Computation, gone: asyncio.Future[None]) -> WorkerAnswer:
        """Return the answer to a question that cannot become a job. Raises RefusedError (503) where no process has time
        for it, GoneError."""
        begun = asyncio.ensure_future(computation.begun.wait())
        try:
            if await _first(begun, gone, self.options.queue_s) is None:
                raise RefusedError(503, "busy", "every process is busy; come again", retry_s=_BUSY_S)
        finally:
            begun.cancel()
        answer = await _first(computation.answer, gone, None)
        assert answer is not None, "it was waited for"
        return answer

    async def submit(self, kind: JobKind, question: ClientQuestion, left: Left) -> WorkerAnswer | PlannerJob:
        """Return the job that a question becomes, or the problem that it has; `question`: to check it. Raises
        RefusedError, GoneError, HelmError."""
        self.desk.check(question.client)
        checked = await self.answer(question, left)
        if isinstance(checked, PlannerJob) or checked.status >= 400:
            return checked
        key = self.keys.key(kind, checked.content)
        known = await self.desk.answered(key)
        charge = None if known else self.quotas.points(question.client, checked.points)
        with _given_back(charge):
            job = await self.desk.submit(kind, key, checked.content, question.client, checked.points)
        self.metrics.job(kind)
        return job

    @contextmanager
    def streaming(self, client: str) -> Iterator[None]:
        """While this lasts, a client has a stream of events. Raises RefusedError (429) beyond the most."""
        if self.streams[client] >= self.options.clients.streams or self.streams.total() >= self.options.streams:
            raise RefusedError(429, "streams", "too many streams of events at once", retry_s=5)
        self.streams[client] += 1
        try:
            yield
        finally:
            self.streams[client] -= 1
            if not self.streams[client]:
                del self.streams[client]

    @contextmanager
    def _under_way(self, work: Work, size: int, points: int) -> Iterator[Computation]:
        """Compute a question of so many bytes while somebody waits for it; its points are given back where this ends
        with a refusal of ours, or a mistake. Raises RefusedError where it may not be."""
        if self.stopping.is_set():
            raise RefusedError(503, "stopping", "the service is stopping", retry_s=5)
        charge = None
        if not self.computations.has(work.key):
            self._check_room(work.client, size)
            charge = self.quotas.points(work.client, points)
        with _given_back(charge), self.computations.waiting(work, "quick") as computation:
            yield computation
            if charge is not None and _is_ours(computation):
                charge.give_back()

    def _check_room(self, client: str, size: int) -> None:
        """Raise RefusedError where one more question, of so many bytes, is too much."""
        options = self.options
        waiting, mine = self.pool.waiting("quick"), self.pool.waiting("quick", client)
        if waiting >= options.waiting or mine >= options.waiting // _SHARES:
            raise RefusedError(429, "busy", "too many questions at once", retry_s=1)
        held, own = self.computations.held() + size, self.computations.held(client) + size
        if held > options.questions or own > options.questions // _SHARES:
            raise RefusedError(429, "bodies", "too many large questions wait; come again", retry_s=_BUSY_S)

    def _gauges(self) -> dict[str, float]:
        memory = self.cache.memory
        running = self.desk.running()
        return {
            "helm_web_workers_busy": self.pool.busy("quick"),
            "helm_web_job_workers_busy": self.pool.busy("long"),
            "helm_web_questions_waiting": self.pool.waiting("quick"),
            "helm_web_jobs_queued": self.desk.unfinished() - running,
            "helm_web_jobs_running": running,
            "helm_web_body_bytes": self.bodies.held,
            "helm_web_connections": self.connections,
            "helm_web_event_streams": self.streams.total(),
            "helm_web_cache_bytes": memory.size,
            "helm_web_cache_hits": memory.hits,
            "helm_web_cache_misses": memory.misses,
            "helm_web_workers_killed": self.pool.killed,
        }


@contextmanager
def _given_back(charge: Charge | None) -> Iterator[None]:
    """Give points back where what they are for is refused, by the service or its store."""
    try:
        yield
    except (RefusedError, HelmError):
        if charge is not None:
            charge.give_back()
        raise


def _is_ours(computation: Computation) -> bool:
    """Return whether a computation has ended without an answer for a reason that is not the question's."""
    answer = computation.answer
    return answer.done() and not answer.cancelled() and answer.result().status >= 500


async def _first(result: asyncio.Future[ResultT], gone: asyncio.Future[None], seconds: float | None) -> ResultT | None:
    """Return a result once it is there, None where it is not in time. Raises GoneError where who asked left before,
    RefusedError where the service ended what made it."""
    both: set[asyncio.Future[Any]] = {result, gone}
    await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    if result.cancelled():
        raise RefusedError(503, "stopping", "the service is stopping", retry_s=5)
    if result.done():
        return result.result()
    if gone.done():
        raise GoneError
    return None


_JOB_KINDS: dict[str, JobKind] = {"plan": "plan", "comparison": "comparison"}
"""The kinds of jobs that questions become, by kind of question; others are short."""


@asynccontextmanager
async def planner_service(options: WebOptions, places: StorePlaces, lock: int) -> AsyncIterator[PlannerService]:
    """Give a service over a store; when the block ends, all of its processes have."""
    service = PlannerService(options, places, lock)
    house = asyncio.create_task(service.keep_house())
    try:
        yield service
    finally:
        house.cancel()
        with suppress(asyncio.CancelledError):
            await house
        await service.close()
