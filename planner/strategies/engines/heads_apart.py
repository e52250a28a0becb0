"""Attention on processors as llama.cpp computes it in one operation: every query head walks the keys and values of its
head by itself.

Heads that share keys find them in a core's own cache only while they fit there. Beyond that, so many heads read as many
times the bytes: ggml's loop goes over the rows of queries, and for each of them over all keys. In steps (-fa off) it is
a product of matrices, whose loop goes over blocks of 16 keys, and for each of them over all heads, which share them."""

from functools import lru_cache

from helmsman.lowering.layer_cache import cache_of
from helmsman.planner.cost.curves import interpolate
from helmsman.planner.cost.device_rates import efficiency_curve
from helmsman.schemas.blocks.attention import Attention, LatentAttention
from helmsman.schemas.figures import Figure, scaled_figure
from helmsman.schemas.hardware import Device, Efficiency, Hardware
from helmsman.schemas.model import Model
from helmsman.schemas.same import Same

CORE_CACHE = 2**20
"""Bytes of a core's own cache: 0.5 to 2 MiB in processors of the last ten years."""

_GONE = 2.0
"""The times that size that keys take when nothing of them is left there for the next head."""


def with_heads_apart(hardware: Hardware, model: Model, context: int) -> Hardware:
    """Return the machine whose processors attend head by head; the same machine where no cache of `context` tokens is
    so large that it matters, or no heads share keys."""
    layers = map(model.pattern.index, dict.fromkeys(model.pattern))
    shared = max((_shared(model, layer, context) for layer in layers), default=(1, 0.0))
    return hardware if shared[0] <= 1 else _apart(Same(hardware), *shared)


def _shared(model: Model, layer: int, context: int) -> tuple[int, float]:
    """Return how many heads share keys in a layer, and bytes of its cache with which one head's keys and values are a
    core's cache; one head where the cache never takes more."""
    cache, ops = cache_of(model, layer), (body.op for body in model.blocks[layer].bodies)
    heads = next((op.heads for op in ops if isinstance(op, Attention | LatentAttention)), 1)
    if cache is None or heads == cache.heads:
        return 1, 0.0
    whole = CORE_CACHE * cache.values / (cache.key_dim + cache.value_dim)
    size = cache.size(cache.tokens(context) * cache.heads, "f16")
    return (heads // cache.heads, whole) if size > whole else (1, 0.0)


@lru_cache(maxsize=64)
def _apart(same: Same[Hardware], heads: int, whole: float) -> Hardware:
    hardware = same.document
    devices = tuple(
        _head_by_head(device, heads, whole) if device.kind == "cpu" else device for device in hardware.devices
    )
    return hardware.model_copy(update={"devices": devices})


def _head_by_head(device: Device, heads: int, whole: float) -> Device:
    """Return a processor whose share of its bandwidth falls as keys outgrow a core's cache."""
    curve = efficiency_curve(device, "memory", "attention", "f16")
    if curve is None:
        return device
    points = sorted({*curve.at, whole, _GONE * whole})

    def share(at: float) -> Figure:
        own = interpolate(curve, at)
        return own if at <= whole else scaled_figure(own, 1.0 / heads)

    kept = [at for at in points if at <= whole or at >= _GONE * whole]
    apart = Efficiency(bound="memory", op="attention", at=tuple(kept), share=tuple(map(share, kept)))
    others = tuple(known for known in device.efficiency if (known.bound, known.op) != ("memory", "attention"))
    return device.model_copy(update={"efficiency": (*others, apart)})
