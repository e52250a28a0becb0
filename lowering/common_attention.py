"""The attention that all layers of a model have alike: what caches of equal layers are made for."""

from functools import lru_cache

from helmsman.schemas.blocks.attention import Attention
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.model import Model


@lru_cache(maxsize=64)
def common_attention(model: Model) -> Attention:
    """Return the attention of every layer.

    Raises BadInputError for a model whose layers have none, or not the same heads."""
    first, *others = (layout.attention for layout in model.layouts)
    if first is None or any(other is None or other != first for other in others):
        kinds = f"{len(model.layouts)} kinds of blocks, of which some have no attention, or another"
        message = f"{model.name} has {kinds}"
        remedy = "choose a model whose layers all have the same"
        raise BadInputError(message, field="model", value=model.pattern[:40], remedy=remedy)
    return first
