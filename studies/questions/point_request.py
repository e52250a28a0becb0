"""A point of a study as a question to the planner."""

from dataclasses import replace
from typing import Any

from helmsman.hwdb.interval_ends import kernels_end
from helmsman.planner.read_request import request_from
from helmsman.planner.request import PlanRequest
from helmsman.studies.questions.named_parts import Machines
from helmsman.studies.questions.points import StudyPoint


def point_request(point: StudyPoint, machines: Machines) -> PlanRequest[Any]:
    """Return the question to the strategy of a point. Raises UsageError where a change makes no sense of the machine,
    and what reading a question raises."""
    given = {
        "model": point.model,
        "hardware": machines.machine(point),
        "format": point.format,
        "kv_format": point.kv_format,
        "engine": point.method.engine,
        "strategy": point.method.strategy,
        "options": dict(point.method.options),
        "objective": point.objective,
        "prompt_tokens": point.prompt_tokens,
        "output_tokens": point.output_tokens,
        "context": point.context,
        "batch": point.batch,
    }
    stated = {name: value for name, value in given.items() if value is not None}
    return replace(request_from(stated, models=machines.model), kernels=kernels_end(point.change))
