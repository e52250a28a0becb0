"""Says how the answer moves with the routing: the seconds of a plan under uniform routing, at both ends of the spread
of recorded traces, and with slots that begin empty."""

from collections.abc import Callable, Iterator, Sequence

from helmsman.lowering.placement import KnownPlan, Placed, Placement, known
from helmsman.lowering.routing import cold_hits, experts_of
from helmsman.lowering.rules import slots_of
from helmsman.scheduler.iteration import Phase
from helmsman.schemas.plan import ExpertSlots
from helmsman.schemas.predicted import AssumedRouting, CaseName, RoutingCase
from helmsman.schemas.routing import HitCurve, LayerRouting, Routing, RoutingCurve

_COLD_PASSES = 32
"""First passes over which the hits of slots that begin empty are averaged, where no routing says it."""


Seconds = Callable[[Placed, Phase], float]
"""Returns the seconds of a phase of a placement."""


def assumed_routing(placed: Placed, seconds: Seconds) -> AssumedRouting | None:
    """Return what a prediction assumes of routing and its `seconds` in other cases; None of a model without experts."""
    if not placed.model.routed:
        return None
    routing = placed.workload.routing
    cases = tuple(_case(name, placed, other, seconds) for name, other in _others(placed))
    return AssumedRouting(assumed="uniform" if routing is None else routing.assumed, cases=cases)


def _case(name: CaseName, placed: Placed, routing: Routing | None, seconds: Seconds) -> RoutingCase:
    other = known(with_routing(placed, routing))
    return RoutingCase(name=name, prefill=seconds(other, "prefill"), decode=seconds(other, "decode"))


def with_routing(placed: Placed, routing: Routing | None) -> Placement:
    """Return the same placement for tokens of another routing."""
    return Placement(
        placed.model,
        placed.hardware,
        placed.workload.model_copy(update={"routing": routing}),
        placed.residence,
        placed.kv,
        placed.compute,
        placed.activations,
        placed.schedule,
        placed.expert_slots,
    )


def _others(placed: Placed) -> Iterator[tuple[CaseName, Routing | None]]:
    routing = placed.workload.routing
    if routing is not None:
        yield "uniform", None
        if _spread(routing):
            yield "least", _at_end(routing, least=True)
            yield "most", _at_end(routing, least=False)
    if any(rule.eviction == "least-recent" for rule in placed.expert_slots):
        yield "cold", cold_routing(known(placed))


def _spread(routing: Routing) -> bool:
    curves = [curve for one in routing.layers for curve in (one.distinct, *(hit.warm for hit in one.hits))]
    return any(curve is not None and curve.low is not None for curve in curves)


def _at_end(routing: Routing, least: bool) -> Routing:
    """Return the routing of the trace that makes passes shortest, or longest: fewest experts and most hits, or the
    other way round, in every layer."""
    return routing.model_copy(update={"layers": tuple(_layer_at_end(one, least) for one in routing.layers)})


def _layer_at_end(one: LayerRouting, least: bool) -> LayerRouting:
    distinct = None if one.distinct is None else _flat(one.distinct, one.distinct.low if least else one.distinct.high)
    hits = tuple(
        curve.model_copy(update={"warm": _flat(curve.warm, curve.warm.high if least else curve.warm.low)})
        for curve in one.hits
    )
    return one.model_copy(update={"distinct": distinct, "hits": hits})


def _flat(curve: RoutingCurve, values: Sequence[float] | None) -> RoutingCurve:
    return curve if values is None else RoutingCurve(at=curve.at, mid=tuple(values))


def cold_routing(placed: KnownPlan) -> Routing:
    """Return the routing whose slots for the least recent hit as in the first passes after they were empty."""
    routing, layers = placed.workload.routing, list[LayerRouting]()
    known_cold: dict[int, LayerRouting] = {}
    for layer in range(placed.model.layers):
        own = None if routing is None else routing.of_layer.get(layer)
        rule = slots_of(placed.expert_slots, layer)
        if rule is not None and rule.eviction == "least-recent" and experts_of(placed.model, layer) is not None:
            key = placed.first_alike[layer]
            if key not in known_cold:
                known_cold[key] = _cold(placed, layer, rule, own)
            own = known_cold[key].model_copy(update={"layer": layer})
        if own is not None:
            layers.append(own)
    if routing is not None:
        return routing.model_copy(update={"layers": tuple(layers)})
    return Routing(model=placed.model.name, model_sha256="0" * 64, layers=tuple(layers))


def _cold(placed: KnownPlan, layer: int, rule: ExpertSlots, own: LayerRouting | None) -> LayerRouting:
    curves = () if own is None else tuple(hit for hit in own.hits if hit.eviction == rule.eviction and hit.cold)
    if own is not None and curves:
        cold = tuple(hit.model_copy(update={"warm": hit.cold}) for hit in curves)
        return own.model_copy(update={"hits": cold})
    experts = experts_of(placed.model, layer)
    assert experts is not None
    work = placed.workload
    passes = _COLD_PASSES if work.routing is None else work.routing.cold_passes
    passes_of_prompt = 1 if work.new_tokens > 1 else passes  # what is a step's size has a step's curve
    hits = tuple(
        HitCurve(
            eviction=rule.eviction,
            tokens=tokens,
            warm=RoutingCurve(at=(rule.slots,), mid=(cold_hits(experts, rule.slots, tokens, many, own),)),
        )
        for tokens, many in {work.batch: passes, work.batch * work.new_tokens: passes_of_prompt}.items()
    )
    return (own or LayerRouting(layer=layer)).model_copy(update={"hits": hits})
