"""Settings of engines that compute everything on accelerators: how much is offloaded, and in which numbers."""

from collections.abc import Iterator
from math import ceil

from helmsman.lowering.tensors import tensors
from helmsman.planner.settings.plan_places import HOST, PlanPlaces
from helmsman.schemas.engine_settings import Difference
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import KvFormat, is_plain

GIB = 2**30

DTYPES: dict[KvFormat, str] = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "q8_0": "float16"}
"""The numbers that are computed in where caches are in a format."""


def check_accelerator(places: PlanPlaces, engine: str) -> None:
    """Raise UsageError for a machine without an accelerator that has a memory of its own."""
    if not places.roles.separate:
        problem = f"{engine} keeps what it computes with in a GPU's memory, and this machine has none of its own"
        raise UsageError(problem, field="emit", remedy="use llama.cpp")


def host_bytes(places: PlanPlaces, stacked: bool | None = None) -> int:
    """Return bytes of weights in host memory: all, those of routed experts, or the others."""
    chosen = (tensor for tensor in tensors(places.plan.model) if stacked is None or tensor.stacked == stacked)
    return sum(
        places.size(tensor)
        for tensor in chosen
        if not tensor.tied_to and places.tensors[tensor.name, tensor.layer].side == HOST
    )


def offloaded_gib(places: PlanPlaces) -> float:
    """Return the least hundredth of a GiB that holds the weights of blocks in host memory."""
    in_blocks = (tensor for tensor in tensors(places.plan.model) if tensor.layer is not None)
    away = (t for t in in_blocks if places.tensors[t.name, t.layer].side == HOST)
    return ceil(100 * sum(map(places.size, away)) / GIB) / 100


def host_computes(places: PlanPlaces) -> Iterator[Difference]:
    """Yield that processors compute a part of every step, which such an engine has no way to say."""
    plan, host = places.plan, {places.roles.host.name, places.roles.solo.name}
    matrices = (t for t in tensors(plan.model) if t.layer is not None and len(t.shape) > 1 + t.stacked)
    working = [places.tensors[tensor.name, tensor.layer] for tensor in matrices]
    if any(place.side == HOST and not place.moves for place in working) and any(r.device in host for r in plan.compute):
        yield Difference(
            what="processors compute with the weights in host memory",
            instead="the accelerator does, and they come over the link in every pass",
        )
    if HOST in places.caches:
        count = places.caches.count(HOST)
        yield Difference(what=f"caches of {count} layers are in host memory", instead="all are on the accelerator")


def used_share(places: PlanPlaces, usual: float) -> float:
    """Return the share of the first accelerator's memory that the plan takes, at least the engine's own default."""
    memory = places.plan.hardware.memory(next(iter(places.roles.accelerators)).memory)
    used = next((use.used for use in places.plan.predicted.memory if use.memory == memory.name), 0)
    return min(0.99, max(usual, ceil(100 * used / memory.capacity) / 100))


def other_formats(places: PlanPlaces, engine: str) -> Iterator[Difference]:
    """Yield that a format of weights is not one of the engine's own."""
    fmt, _ = places.formats
    if not is_plain(fmt):
        instead = f"the checkpoint's own numbers; what has as many bits in {engine} is priced as {fmt}"
        yield Difference(what=f"weights are in {fmt}", instead=instead)


def plain_caches(places: PlanPlaces) -> Iterator[Difference]:
    """Yield that caches are quantised, which transformers does not do by such settings."""
    if not is_plain(places.nearest_kv_format):
        yield Difference(what=f"caches are in {places.nearest_kv_format}", instead="they are in 16 bits")
