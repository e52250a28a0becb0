"""The time between the tasks of a pass as terms of its prediction: hand-overs by link, joins by device, submission.

Lanes overlap, so that these terms add to others of their lane and not to the pass; each is the sum of what was added
somewhere."""

from collections.abc import Iterator

from helmsman.hwdb.percentiles import ENDS, duration_at
from helmsman.lowering.graph import TaskGraph
from helmsman.planner.cost.model import CostModel
from helmsman.schemas.figures import Figure
from helmsman.schemas.hardware import lane_owner
from helmsman.schemas.plan import Interval, Term
from helmsman.timing.handovers import ends_on, submissions

HANDOVER = "hand-over"
JOIN = "join"
SUBMISSION = "submission"


def between_terms(graph: TaskGraph, costs: CostModel) -> Iterator[Term]:
    """A term for everything of the kind that the record knows and that happens in this pass."""
    hardware, tasks = costs.between().hardware, graph.tasks
    links = {link.name: link.handover for link in hardware.links if link.handover is not None}
    joins = {device.name: device.join for device in hardware.devices if device.join is not None}
    waits, joined = dict.fromkeys(links, 0), dict.fromkeys(joins, 0)
    for task in tasks:
        others = {lane_owner(tasks[dep].resource) for dep in task.deps if tasks[dep].resource != task.resource}
        if task.resource in joined and others:
            joined[task.resource] += 1
        if task.kind != "transfer":
            for lane in others & waits.keys():
                waits[lane] += 1
    yield from (_term(HANDOVER, lane, count, links[lane], costs) for lane, count in waits.items() if count)
    yield from (_term(JOIN, lane, count, joins[lane], costs) for lane, count in joined.items() if count)
    if hardware.between_passes is not None:
        pieces, between = submissions(graph), hardware.between_passes
        last = ends_on(graph)
        begin = between.after(last)
        submitting, once = _interval(pieces, between.submission), _interval(1, begin)
        ends = {end: getattr(submitting, end) + getattr(once, end) for end in ENDS}
        yield _made(SUBMISSION, last, pieces, Interval(**ends), costs.source(begin))


def _term(op: str, resource: str, count: int, figure: Figure, costs: CostModel) -> Term:
    return _made(op, resource, count, _interval(count, figure), costs.source(figure))


def _made(op: str, resource: str, count: int, seconds: Interval, source: str) -> Term:
    return Term(
        op=op,
        resource=resource,
        tasks=count,
        seconds=seconds,
        bytes=0,
        flops=0.0,
        bound="overhead",
        source=source,
    )


def _interval(count: int, figure: Figure) -> Interval:
    low, mid, high = (count * duration_at(figure, end) for end in ENDS)
    return Interval(low=low, mid=mid, high=high)
