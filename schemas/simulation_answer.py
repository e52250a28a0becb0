"""The planner service's answer to a simulation."""

from typing import Any, ClassVar, Literal

from helmsman.schemas.base import Document, Sha256, version
from helmsman.schemas.replay_report import ReplayReport
from helmsman.schemas.serving import ServingCapacity, ServingCount, ServingReport


class SimulationAnswer(Document):
    """Says what a plan did in virtual time: its `replay`, or the `serving` of requests, and what was to be found of
    it; `timeline`: Trace Events as an object (`traceEvents`, `otherData`)."""

    byte_limit: ClassVar[int] = 64 * 2**20
    schema_id: Literal["helm.simulation-answer/1"] = version("helm.simulation-answer/1")
    plan_sha256: Sha256
    replay: ReplayReport | None = None
    serving: ServingReport | None = None
    capacity: ServingCapacity | None = None
    users: ServingCount | None = None
    replicas: ServingCount | None = None
    timeline: dict[str, Any] | None = None
