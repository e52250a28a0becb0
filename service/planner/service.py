"""The state that all requests share, and the way from a question to its answer or its job."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal

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
from helmsman.service.planner.computing.computations import Computations
from helmsman.service.planner.computing.pool import PoolLimits, Work, WorkerPool
from helmsman.service.planner.computing.worker_main import WorkerLimits
from helmsman.service.planner.jobs.database import JobDatabase
from helmsman.service.planner.jobs.desk import JobDesk
from helmsman.service.planner.jobs.store import StorePlaces
from helmsman.service.planner.jobs.strays import remove_strays
from helmsman.service.planner.metrics import WebMetrics
from helmsman.service.planner.options import WebOptions
from helmsman.service.planner.page_files import PageFiles, page_folder
from helmsman.service.planner.questions.catalogue import Catalogue
from helmsman.service.planner.quotas import Quotas

_EXPIRY_S = 60.0
"""Seconds between two looks for jobs that are not to be kept any more."""

_LISTED: tuple[Kind, ...] = ("models", "machines", "gpus", "cpus")
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

    @property
    def work(self) -> Work:
        """Return what is to be computed."""
        return Work(self.key, self.kind, self.content, self.client)


class PlannerService:
    """A planner over one store. Made, and used, in the loop that answers."""

    def __init__(self, options: WebOptions, places: StorePlaces, lock: int) -> None:
        """Raises BadInputError for a damaged store, HardwareUnavailableError on a full disk."""
        self.options, self.keys, self.catalogue = options, Keys.here(), Catalogue()
        self.page = PageFiles(page_folder())
        database = JobDatabase(places.jobs)
        remove_strays(places.results, places.work, database)
        self.cache = AnswerCache(MemoryCache(options.cache), AnswerTable(places.answers, options.kept))
        worker = WorkerLimits(options.memory, options.jobs.points, places.work, places.results)
        self.pool = WorkerPool(PoolLimits(options.workers, options.job_s, worker), lock)
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

    async def list_names(self) -> None:
        """Read what there is by name, so that no client waits for it."""
        for kind in _LISTED:
            await asyncio.to_thread(self.catalogue.listing, kind)

    async def close(self) -> None:
        """End all that is under way: jobs that have not ended stay in the store."""
        await self.desk.close()
        await self.computations.close()
        await self.pool.close()
        await self.cache.close()

    async def keep_house(self) -> None:
        """Forget old jobs from time to time. Runs until it is cancelled."""
        while True:
            try:
                await self.desk.expire()
                self._problem = None
            except HelmError as error:
                self._problem = error.message
            await asyncio.sleep(_EXPIRY_S)

    def health(self) -> ServiceHealth:
        """Return whether the service should be question."""
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
        self._check_new(question)
        with self.computations.waiting(question.work, "quick") as computation:
            gone = asyncio.ensure_future(left())
            try:
                both: set[asyncio.Future[Any]] = {gone, computation.answer}
                await asyncio.wait(both, timeout=self.options.patience_s, return_when=asyncio.FIRST_COMPLETED)
                if computation.answer.cancelled():
                    raise RefusedError(503, "stopping", "the service is stopping", retry_s=5)
                if computation.answer.done():
                    return computation.answer.result()
                if gone.done():
                    raise GoneError
                kind = _JOB_KINDS.get(question.kind)
                if kind is None:
                    return await asyncio.shield(computation.answer)
                job = await self.desk.adopt(kind, computation, question.points)
                self.computations.promote(computation)
                self.metrics.job(kind)
                return job
            finally:
                gone.cancel()

    async def submit(self, kind: JobKind, question: ClientQuestion, left: Left) -> WorkerAnswer | PlannerJob:
        """Return the job that a question becomes, or the problem that it has; `question`: to check it. Raises
        RefusedError, GoneError, HelmError."""
        self.desk.check(question.client)
        checked = await self.answer(question, left)
        if isinstance(checked, PlannerJob) or checked.status >= 400:
            return checked
        self.quotas.points(question.client, checked.points)
        key = self.keys.key(kind, checked.content)
        job = await self.desk.submit(kind, Work(key, kind, checked.content, question.client), checked.points)
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

    def _check_new(self, question: ClientQuestion) -> None:
        if self.stopping.is_set():
            raise RefusedError(503, "stopping", "the service is stopping", retry_s=5)
        if self.pool.waiting("quick") >= self.options.waiting:
            raise RefusedError(429, "busy", "too many questions at once", retry_s=1)
        self.quotas.points(question.client, question.points)

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
