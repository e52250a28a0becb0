"""A routing that cannot be a model's: of another one, of layers without experts, or with numbers that do not add up."""

from helmsman.lowering.routing import experts_of
from helmsman.schemas.blocks.feed_forward import Experts
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.model import Model
from helmsman.schemas.read import is_digest
from helmsman.schemas.routing import LayerRouting, Routing

_SUM_TOLERANCE = 1e-3
"""By which share the probabilities of a layer's experts may miss the number that a token chooses: files round them."""


def check_routing(routing: Routing, model: Model) -> None:
    """Raise BadInputError where a routing is not of `model`, or says what its layers cannot do."""
    if routing.model != model.name and not is_digest(routing.model_sha256, model):
        remedy = f"use a routing that was recorded with {model.name}"
        raise BadInputError("a routing of another model", field="routing.model", value=routing.model, remedy=remedy)
    for place, one in enumerate(routing.layers):
        experts = experts_of(model, one.layer) if one.layer < model.layers else None
        if experts is None:
            message, remedy = f"{model.name} has no routed experts there", "leave the layer out"
            raise BadInputError(message, field=f"routing.layers.{place}.layer", value=one.layer, remedy=remedy)
        _check_layer(f"routing.layers.{place}", one, experts)


def _check_layer(field: str, one: LayerRouting, experts: Experts) -> None:
    popularity = one.popularity
    if popularity is not None and len(popularity) != experts.experts:
        message, remedy = f"block {one.layer} has {experts.experts} experts", "write one probability for each"
        raise BadInputError(message, field=f"{field}.popularity", value=len(popularity), remedy=remedy)
    if popularity is not None and abs(sum(popularity) / experts.chosen - 1.0) > _SUM_TOLERANCE:
        message, remedy = f"a token chooses {experts.chosen} experts", "write probabilities that add up to that"
        raise BadInputError(message, field=f"{field}.popularity", value=sum(popularity), remedy=remedy)
    curve = one.distinct
    for tokens, many in () if curve is None else zip(curve.at, curve.high or curve.mid, strict=True):
        most = min(experts.experts, tokens * experts.chosen)
        if not experts.chosen * (1.0 - _SUM_TOLERANCE) <= many <= most * (1.0 + _SUM_TOLERANCE):
            message, remedy = f"{tokens} tokens choose {experts.chosen} to {most} experts", "correct the curve"
            raise BadInputError(message, field=f"{field}.distinct", value=many, remedy=remedy)
