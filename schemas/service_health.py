"""ServiceHealth: whether a service answers, and whether it should be asked."""

from typing import Literal

from helmsman.schemas.base import Document, version


class ServiceHealth(Document):
    """`ok`: it answers; `starting`, `stopping`, `damaged`: it should not be asked now; `problem`: why."""

    schema_id: Literal["helm.service-health/1"] = version("helm.service-health/1")
    status: Literal["ok", "starting", "stopping", "damaged"]
    problem: str | None = None
