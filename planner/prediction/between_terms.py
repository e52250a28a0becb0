"""The time between the tasks of a pass as terms of its prediction: hand-overs by link, joins by device, submission.

Lanes overlap, so that these terms add to others of their lane and not to the pass; each is the sum of what was added
somewhere."""

from collections import Counter
from collections.abc import Iterator

from helmsman.hwdb.percentiles import ENDS, duration_at
from helmsman.planner.cost.model import CostModel
from helmsman.schemas.figures import Figure
from helmsman.schemas.hardware import lane_owner
from helmsman.schemas.predicted import Interval, Term
from helmsman.timing.works import Works

HANDOVER = "hand-over"
JOIN = "join"
SUBMISSION = "submission"


def between_terms(works: Works, costs: CostModel) -> Iterator[Term]:
    """A term for everything of the kind that the record knows and that happens in this pass."""
    hardware = costs.between().hardware
    waits, joins = _waits(works), _joins(works)
    for link in hardware.links:
        if link.handover is not None and waits[link.name]:
            yield _term(HANDOVER, link.name, waits[link.name], link.handover, costs)
    for device in hardware.devices:
        if device.join is not None and joins[device.name]:
            yield _term(JOIN, device.name, joins[device.name], device.join, costs)
    if hardware.between_passes is not None:
        pieces, between = works.submissions, hardware.between_passes
        last = works.ends_on
        begin = between.after(last)
        submitting, once = _interval(pieces, between.submission), _interval(1, begin)
        ends = {end: getattr(submitting, end) + getattr(once, end) for end in ENDS}
        yield _made(SUBMISSION, last, pieces, Interval(**ends), costs.source(begin))


def _waits(works: Works) -> Counter[str]:
    """Return by link the number of operations that wait for a transfer of it."""
    order = works.order
    waited = Counter(lanes for task, lanes in order.awaited_lanes.items() if not order.moves[order.kind[task]])
    result = Counter[str]()
    for lanes, count in waited.items():
        result.update(dict.fromkeys(set(map(lane_owner, lanes)), count))
    return result


def _joins(works: Works) -> Counter[str]:
    """Return by device the number of its tasks that wait for other lanes."""
    return Counter(works.order.lanes[task] for task in works.order.awaited_lanes)


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
