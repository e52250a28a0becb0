"""The attention, or the cache, that all layers of a model have alike: what caches of equal layers are made for."""

from functools import lru_cache

from helmsman.lowering.layer_cache import LayerCache, cache_of
from helmsman.schemas.blocks.attention import Attention, LatentAttention
from helmsman.schemas.blocks.block import Network
from helmsman.schemas.errors import BadInputError, UsageError
from helmsman.schemas.model import Model


@lru_cache(maxsize=64)
def latent_attention(model: Model) -> LatentAttention | None:
    """Return the attention to latent vectors that every layer has; None where some have another mixer."""
    first, *others = (body.op for layout in model.layouts for body in layout.bodies if not isinstance(body.op, Network))
    alike = isinstance(first, LatentAttention) and all(other == first for other in others)
    return first if isinstance(first, LatentAttention) and alike else None


def latent_of(model: Model, layer: int | None) -> LatentAttention | None:
    """Return the attention to latent vectors that a layer has; None where it has another mixer, or for no layer."""
    if layer is None:
        return None
    return next((body.op for body in model.blocks[layer].bodies if isinstance(body.op, LatentAttention)), None)


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


@lru_cache(maxsize=64)
def served_caches(model: Model) -> tuple[LayerCache, ...]:
    """Return what each layer with a cache of its own keeps of every token of a request, whatever part of a sequence it
    sees: layers may have different heads.

    Raises UsageError for a model whose layers keep nothing that grows, or something beside keys and values of one
    width."""
    caches = [cache_of(model, layer) for layer in attending_layers(model)]
    made = tuple(cache._replace(reach=None) for cache in caches if cache is not None)
    if not made or any(cache.pools or cache.value_dim not in (0, cache.key_dim) for cache in made):
        message = f"{model.name} has caches that are not served: entries beside keys and values, or none at all"
        remedy = "choose a model whose layers cache keys and values of one width"
        raise UsageError(message, field="model", value=model.pattern[:40], remedy=remedy)
    return made
