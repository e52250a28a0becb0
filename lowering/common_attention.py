"""The attention, or the cache, that all layers of a model have alike: what caches of equal layers are made for."""

from functools import lru_cache

from helmsman.lowering.layer_cache import LayerCache, cache_of
from helmsman.schemas.blocks.attention import Attention, LatentAttention
from helmsman.schemas.blocks.block import Network
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.model import Model


@lru_cache(maxsize=64)
def latent_attention(model: Model) -> LatentAttention | None:
    """Return the attention to latent vectors that every layer has; None where some have another mixer."""
    first, *others = (body.op for layout in model.layouts for body in layout.bodies if not isinstance(body.op, Network))
    alike = isinstance(first, LatentAttention) and all(other == first for other in others)
    return first if isinstance(first, LatentAttention) and alike else None


def attends_to_latents(model: Model) -> bool:
    """Return whether every layer attends to latent vectors, and to nothing else."""
    return latent_attention(model) is not None


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


@lru_cache(maxsize=64)
def attending_layers(model: Model) -> tuple[int, ...]:
    """Return the layers that have a cache of their own."""
    return tuple(layer for layer in range(model.layers) if cache_of(model, layer) is not None)


def _attends(model: Model, layer: int) -> bool:
    return model.attention(layer) is not None


@lru_cache(maxsize=64)
def common_cache(model: Model) -> LayerCache:
    """Return the heads that layers cache, whatever part of a sequence they see: all that do not keep a state instead.

    Raises BadInputError for a model whose layers cache none, or not the same."""
    layers = [model.pattern.index(layout.letter) for layout in model.layouts]
    caches = [cache for layer in layers if (cache := cache_of(model, layer)) is not None or _attends(model, layer)]
    first, *others = (None if cache is None else cache._replace(reach=None) for cache in caches or [None])
    unequal = first is not None and first.value_dim not in (0, first.key_dim)
    if first is None or first.pools or unequal or any(other != first for other in others):
        message = f"{model.name} has {len(model.layouts)} kinds of blocks, whose caches differ"
        remedy = "choose a model whose layers all cache the same heads"
        raise BadInputError(message, field="model", value=model.pattern[:40], remedy=remedy)
    return first
