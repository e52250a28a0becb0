"""The limits of a planner service, all in one value."""

from dataclasses import dataclass, field

from helmsman.service.http.access import Access
from helmsman.service.http.bodies import BodyLimits

OPEN_PATHS = ("/", "/health", "/ready")
"""Paths that need no key beside the page's files: monitoring reads them, and browsers before they have a key."""


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Limits one client, known by its key or its address. `rate`: requests a second, `burst` of them at once; `jobs`
    queued or running; `points`: plans a day that have to be made; `streams`: of events at a time."""

    rate: float = 1000.0
    burst: float = 2000.0
    jobs: int = 32
    points: int = 1_000_000
    streams: int = 8


@dataclass(frozen=True, slots=True)
class JobLimits:
    """Limits the jobs that a store holds. `queued`: jobs queued or running of all clients; `ended`: jobs kept after
    their end, for `seconds`, and `bytes` of their results; `points`: questions of one study."""

    queued: int = 256
    ended: int = 10_000
    seconds: float = 7 * 86400.0
    bytes: int = 4 * 2**30
    points: int = 20_000


@dataclass(frozen=True, slots=True)
class WebOptions:
    """Limits of a service, and who may ask (`access`).

    `workers`: processes that answer at once, and as many again for jobs; `memory`: bytes of address space of each;
    `job_s`: seconds that a task may take; `patience_s`: seconds after which a question becomes a job; `crowded_s`:
    seconds more for which it keeps its quick place where jobs have no room; `short_s`: seconds that a question may take
    that cannot become a job, and `queue_s` for which it waits for a worker; `waiting`: questions that may wait for a
    worker, a quarter of them of one client; `questions`: bytes in memory of questions that wait or are computed, a
    quarter of them of one client; `cache`: bytes of answers in memory, `kept`: on the disk; `connections` at a time,
    `streams` of events among them; `idle_s`: for a connection without a request; `stall_s`: for which a reader may take
    nothing; `grace_s`: for requests when the service is to end."""

    access: Access = field(default_factory=lambda: Access(open_paths=OPEN_PATHS))
    bodies: BodyLimits = field(default_factory=lambda: BodyLimits(body=2**22, client=2**25))
    clients: ClientLimits = field(default_factory=ClientLimits)
    jobs: JobLimits = field(default_factory=JobLimits)
    workers: int = 2
    memory: int = 4 * 2**30
    job_s: float = 3600.0
    patience_s: float = 1.0
    crowded_s: float = 5.0
    short_s: float = 10.0
    queue_s: float = 20.0
    waiting: int = 128
    questions: int = 2**28
    cache: int = 2**26
    kept: int = 2**29
    connections: int = 2000
    streams: int = 256
    idle_s: float = 30.0
    stall_s: float = 30.0
    grace_s: float = 10.0
