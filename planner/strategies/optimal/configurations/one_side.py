"""One side that has everything."""

from collections.abc import Iterator
from dataclasses import replace

from helmsman.planner.machine import Roles
from helmsman.planner.strategies.optimal.configurations.block_ways import on_accelerator, on_host
from helmsman.planner.strategies.optimal.configurations.resident import resident
from helmsman.planner.strategies.optimal.configurations.rules import Assignment, Ends
from helmsman.planner.strategies.streaming.question import Question


def sides(question: Question) -> Iterator[tuple[Question, Assignment]]:
    """One side with everything, whether it fits or not: the processor with all of its cores, or accelerators."""
    frame = question.frame
    roles, layers, model = frame.roles, frame.model.layers, frame.model
    solo = replace(frame, roles=Roles(roles.hardware, roles.solo, roles.solo, roles.accelerator))
    yield replace(question, frame=solo), Assignment((on_host(model),) * layers, "host", "host", {})
    away = (on_accelerator(model),) * layers
    ends: tuple[Ends, ...] = (("accelerator", "accelerator"), ("host", "accelerator"), ("host", "host"))
    for end in ends if roles.accelerator is not None else ():
        yield question, Assignment(away, *end, {})
    if roles.others:
        yield from ((question, assignment) for assignment in resident(frame))
