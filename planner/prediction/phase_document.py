"""What a plan says of a phase: the terms that its seconds are the sum of, what binds it, and the gap to its bound."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from helmsman.hwdb.percentiles import ENDS
from helmsman.lowering.graph import RepeatingGraph, Task, TaskGraph
from helmsman.lowering.task_names import read_name
from helmsman.planner.cost.estimate import Estimate
from helmsman.planner.cost.model import CostModel
from helmsman.planner.prediction.between_terms import between_terms
from helmsman.planner.prediction.bound import lower_bound
from helmsman.schemas.hardware import Hardware, lane_owner
from helmsman.schemas.predicted import Interval, PhasePrediction, Term
from helmsman.timing.pools import Pools
from helmsman.timing.works import Works

_PERCENT = 100

_ROUNDING = 1e-9
"""Relative difference that is none."""


def phase_document(
    graph: TaskGraph | RepeatingGraph, works: Works, prices: Sequence[Estimate], seconds: Interval, costs: CostModel
) -> PhasePrediction:
    """Return the prediction of one pass of these works at these prices, that takes `seconds`."""
    terms = _terms(works, prices)
    mid, bound = seconds.mid, lower_bound(graph, costs.hardware, costs.options.l3_blend)
    if costs.table is not None:  # what was measured happened, whatever the record's rates allow
        bound = min(bound, mid)
    return PhasePrediction(
        context=graph.iteration.context,
        seconds=seconds,
        terms=(*terms, *between_terms(works, costs)),
        bottleneck=bottleneck(terms, costs.hardware, mid, _drawn(works, prices, costs.pools)),
        lower_bound=bound,
        gap=gap(mid, bound),
    )


def added_document(
    phase_predictions: Sequence[tuple[PhasePrediction, float]], seconds: Interval, context: int, hardware: Hardware
) -> PhasePrediction:
    """Return the prediction of passes one after the other, each so many times, that take `seconds` in all."""

    groups: dict[tuple[str, str], list[tuple[Term, float]]] = {}
    for one, weight in phase_predictions:
        for term in one.terms:
            groups.setdefault((term.op, term.resource), []).append((term, weight))
    terms = tuple(_added_term(members) for members in groups.values())
    bound = sum(weight * one.lower_bound for one, weight in phase_predictions)
    return PhasePrediction(
        context=context,
        seconds=seconds,
        terms=terms,
        bottleneck=bottleneck(terms, hardware, seconds.mid),
        lower_bound=bound,
        gap=gap(seconds.mid, bound),
    )


def _added_term(members: Sequence[tuple[Term, float]]) -> Term:
    main = max(members, key=lambda member: member[0].seconds.mid)[0]

    def total(name: str) -> float:
        return sum((weight * getattr(term, name) for term, weight in members), 0.0)

    ends = {end: sum(weight * getattr(term.seconds, end) for term, weight in members) for end in ENDS}
    return main.model_copy(
        update={
            "tasks": max(1, round(total("tasks"))),
            "seconds": Interval(**ends),
            "bytes": round(total("bytes")),
            "flops": total("flops"),
        }
    )


def gap(seconds: float, bound: float) -> float:
    """How far `seconds` lie above a lower bound; 0 where rounding puts them below."""
    assert seconds >= bound * (1 - 1e-9), f"{seconds} s lie below their lower bound {bound} s"
    return max(0.0, seconds / bound - 1) if bound > 0 else 0.0


def bottleneck(
    terms: Iterable[Term], hardware: Hardware, seconds: float, drawn: Mapping[str, float] | None = None
) -> str:
    """Return what binds the lane that is busy longest most, and the share of the `seconds` of the pass in which it is
    busy; or the memory, or link of several lanes, whose users together ask for more of it (`drawn`, seconds). Bandwidth
    is that of the memory or link whether one or several use it."""
    lanes: dict[str, dict[str, float]] = {}
    for term in terms:
        bounds = lanes.setdefault(term.resource, {})
        wording = _wording(term, hardware)
        bounds[wording] = bounds.get(wording, 0.0) + term.seconds.mid
    busy: dict[str, float] = {}
    for bounds in lanes.values():
        most = max(bounds, key=lambda name: bounds[name])
        busy[most] = max(busy.get(most, 0.0), sum(bounds.values()))
    longest = max(busy, key=lambda name: busy[name])
    shared = {name: needed for name, needed in (drawn or {}).items() if needed > busy[longest] * (1 + _ROUNDING)}
    binding = max(shared, key=lambda name: shared[name], default=longest)
    return f"{binding} ({min(1.0, shared.get(binding, busy[longest]) / seconds) * _PERCENT:.0f} %)"


def _wording(term: Term, hardware: Hardware) -> str:
    """Return what binds a term; expanding 4-bit groups is called alike on a stream of its own and beside operations."""
    owner = lane_owner(term.resource)
    if read_name(term.op).move == "decompress":
        return f"{owner}:decompress, {_bound(term, owner, hardware)}"
    return _bound(term, term.resource, hardware)


def _bound(term: Term, lane: str, hardware: Hardware) -> str:
    """`dram bandwidth`, `h2d bandwidth`, `cuda compute`."""
    if term.bound == "link":
        return f"{lane_owner(lane)} bandwidth"
    device = next((d for d in hardware.devices if d.name == lane_owner(lane)), None)
    if term.bound != "memory" or device is None:
        return f"{lane} {term.bound}"
    return f"{hardware.memory(device.memory).shares or device.memory} bandwidth"


def _drawn(works: Works, prices: Sequence[Estimate], pools: Pools) -> dict[str, float]:
    """Seconds that every memory and link must work for all of its users."""
    result: dict[str, float] = {}
    for task, count, price in zip(works.kinds, works.counts, prices, strict=True):
        for pool, seconds in pools.draws(task, price.mid).items():
            name = pools.called(pool)
            result[name] = result.get(name, 0.0) + count * seconds
    return result


class _Priced(NamedTuple):
    """A kind of work, the number of its tasks, and the price of one."""

    task: Task
    times: int
    price: Estimate


def _terms(works: Works, prices: Sequence[Estimate]) -> tuple[Term, ...]:
    groups: dict[tuple[str, str], list[_Priced]] = {}
    for task, count, price in zip(works.kinds, works.counts, prices, strict=True):
        groups.setdefault((task.op, task.resource), []).append(_Priced(task, count, price))
    return tuple(_term(op, resource, members) for (op, resource), members in groups.items())


def _term(op: str, resource: str, members: Sequence[_Priced]) -> Term:
    main = max(members, key=lambda member: member.price.mid).price
    return Term(
        op=op,
        resource=resource,
        tasks=sum([member.times for member in members]),
        seconds=Interval(**{end: sum([m.times * getattr(m.price, end) for m in members]) for end in ENDS}),
        bytes=sum([member.times * member.task.bytes for member in members]),
        flops=float(sum([member.times * member.task.flops for member in members])),
        bound=main.bound,
        source=main.source,
    )
