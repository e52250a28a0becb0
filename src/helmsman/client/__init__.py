"""A client of the planner service (`helm-web`): documents in, documents out, errors as the library raises them.

    from helmsman.client import PlannerClient

    with PlannerClient("http://127.0.0.1:8080") as planner:
        planner.plan({"model": "Qwen3-8B", "hardware": "rtx4060-laptop"}).in_short

Needs the extra `client`."""

from helmsman.client.errors import ServiceError as ServiceError
from helmsman.client.jobs import JobHandle as JobHandle
from helmsman.client.planner_client import PlannerClient as PlannerClient
