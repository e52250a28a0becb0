"""The part of the keys that chooses which tokens are brought: it lives where scores run (PARK-66)."""

from helmsman.lowering.placement import Placed
from helmsman.lowering.rules import kv_rule, places
from helmsman.lowering.variants import cached_elements
from helmsman.schemas.formats import size_of


def partial_keys(placed: Placed) -> dict[str, int]:
    """Return bytes by memory: the `select` share of every block's keys (half of what its cache holds, or all
    activations), for every sequence at full context, where decode steps score them away from the cache's home. At home
    none is copied."""
    use, total = placed.schedule.cache, dict[str, int]()
    if use.select == 0:
        return total
    memory_of = {device.name: device.memory for device in placed.hardware.devices}
    extent = placed.model.dense.kv_heads
    for layer in range(placed.model.layers):
        rule = kv_rule(placed, layer)
        for piece in places(placed, "scores", layer, "decode", extent, "heads"):
            memory = memory_of[piece.rule.device]
            if memory != rule.memory:
                heads = (piece.stop - piece.start) / extent
                size = size_of(round(use.select * heads * _key_elements(placed)), rule.used)
                total[memory] = total.get(memory, 0) + size
    return total


def _key_elements(placed: Placed) -> int:
    """Elements of one block's keys, or of the activations that stand for them."""
    workload, model, use = placed.workload, placed.model, placed.schedule.cache
    tokens = workload.batch * workload.batches * workload.context
    both = cached_elements(model, use, 2 * tokens * model.dense.kv_width)
    return both // 2 if use.holds == "kv" else both
