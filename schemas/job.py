"""PlannerJob: work of the planner service that takes longer than an answer, and how far it is."""

from typing import Annotated, Literal

from pydantic import Field

from helmsman.schemas.base import Document, Frozen, Index, NonNegative, version
from helmsman.schemas.problem import Problem

JobKind = Literal["plan", "comparison", "simulation", "study"]
JobState = Literal["queued", "running", "done", "failed", "cancelled"]
JobId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class JobLinks(Frozen):
    """Where a job, its events and, once it is done, its result are."""

    self: str
    events: str
    result: str | None = None


class PlannerJob(Document):
    """A job, which is queued while it waits for a process, for the first time or again. `done` of `total` parts of it,
    where it has parts; `created`, `started`, `ended`: seconds since 1970; `attempts`: the number of the last attempt at
    it, one more than those during which the process at it was killed, alone or with its server; `error`: why it
    failed."""

    schema_id: Literal["helm.job/1"] = version("helm.job/1")
    id: JobId
    kind: JobKind
    state: JobState
    done: Index = 0
    total: Index | None = None
    attempts: Index = 0
    created: NonNegative
    started: NonNegative | None = None
    ended: NonNegative | None = None
    error: Problem | None = None
    links: JobLinks


class PlannerJobs(Document):
    """Jobs of one client, the newest first."""

    schema_id: Literal["helm.job-list/1"] = version("helm.job-list/1")
    jobs: tuple[PlannerJob, ...]
