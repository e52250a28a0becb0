"""Turn tiers into rules: weights where an allocator put them, everything computed on the accelerator, layer after layer
as FlexGen does (Listing 1: the next layer is loaded while this one computes, then both are waited for)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from helmsman.lowering.placement import Placement
from helmsman.lowering.tensor import Tensor
from helmsman.planner.strategies.offload.allocation import Tier
from helmsman.planner.strategies.offload.caches import CacheRule, cache_rules, delegated
from helmsman.planner.strategies.offload.sublayers import Kind, sublayers
from helmsman.planner.strategies.streaming.place import Frame, packed, schedule
from helmsman.planner.strategies.streaming.prefix_store import store_rules
from helmsman.schemas.errors import UsageError
from helmsman.schemas.plan import ComputeRule, LayerRange, Path, Residence, Schedule, Select
from helmsman.schemas.storage import STORAGE

Tiers = Mapping[Kind, tuple[Tier, ...]]
"""The tier of every tensor of each kind of layer."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """How tiers keep what they are given. `host`, `storage`: the memories that these tiers are; `compress`: matrices in
    4-bit groups wherever they live, but for vectors (E-GUPTA-01) and tables that are looked up; `cache`: how keys and
    values are divided, `away`: how many of the parts are in the host's tier; `delegate`: decode steps attend on the
    host where caches of whole blocks are there; `path`: how storage is read; `store`: where known tokens wait;
    `inclusive`: what is on the accelerator is a copy, its home is the host's tier (a cache, not a flat hierarchy);
    `managed`: pages of the host's tier migrate when operations touch them, none ahead (GUPTA-48)."""

    host: str
    storage: str | None = None
    compress: bool = False
    cache: CacheRule = "accelerator"
    away: int = 0
    delegate: bool = False
    path: Literal["direct", "bounce"] = "bounce"
    store: str | None = None
    inclusive: bool = False
    managed: bool = False

    def memory(self, frame: Frame, tier: Tier) -> str:
        """The memory that `tier` is. Raises UsageError where there is no storage."""
        if tier == "accelerator":
            return frame.accelerator.memory
        if tier == "host":
            return self.host
        if self.storage is None:
            remedy = "give storage 0 per cent, or use a machine whose record has a memory of kind nvme"
            raise UsageError("this machine's record has no storage", field="percent", remedy=remedy)
        return self.storage


def place(frame: Frame, tiers: Tiers, keeping: Keeping) -> Placement:
    """The rules that put weights where `tiers` says."""
    attention = delegated(frame, keeping.cache, keeping.away) if keeping.delegate else ()
    return Placement(
        model=frame.model,
        hardware=frame.roles.hardware,
        workload=frame.workload,
        residence=tuple(_residence(frame, tiers, keeping)),
        kv=(*store_rules(frame, keeping.store), *cache_rules(frame, keeping.cache, keeping.away, keeping.host)),
        compute=(*attention, ComputeRule(select=Select(), device=frame.accelerator.name)),
        activations=frame.roles.activations,
        schedule=_schedule(frame, keeping),
    )


def _schedule(frame: Frame, keeping: Keeping) -> Schedule:
    """FlexGen's; nothing comes ahead, hence nothing is waited for, where pages migrate on touch."""
    scheduled = replace(frame, overlap="none") if keeping.managed else frame
    return schedule(scheduled).model_copy(
        update={"barrier": not keeping.managed, "expand": "before-use", "stage": "half"},
    )


def _residence(frame: Frame, tiers: Tiers, keeping: Keeping) -> Iterator[Residence]:
    for layer in sublayers(frame.model):
        for tensor, tier in zip(layer.tensors, tiers[layer.kind], strict=True):
            yield _rule(frame, keeping, tensor, keeping.memory(frame, tier))


def _rule(frame: Frame, keeping: Keeping, tensor: Tensor, memory: str) -> Residence:
    quarter = keeping.compress and len(tensor.shape) > 1 and tensor.op != "embedding"
    layers = None if tensor.layer is None else LayerRange(start=0, stop=frame.model.layers)
    here = keeping.inclusive and memory == frame.accelerator.memory
    home = keeping.host if here else memory
    rule = packed(frame, quarter, Select(names=tensor.name, layers=layers), home, _path(frame, keeping, home))
    return rule.model_copy(update={"replicas": (memory,)}) if here else rule


def _path(frame: Frame, keeping: Keeping, memory: str) -> Path:
    if frame.roles.hardware.memory(memory).kind == STORAGE:
        return keeping.path
    return "managed" if keeping.managed else "pinned"
