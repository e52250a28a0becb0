"""Placement of each tensor and cache of a plan, for engines that place a tensor as a whole."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from helmsman.lowering.layer_cache import cache_of
from helmsman.lowering.ops import op_extent
from helmsman.lowering.placement import KnownPlan
from helmsman.lowering.rules import homes, kv_rule, places, slots_of
from helmsman.lowering.stored_names import TensorKey
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import tensors
from helmsman.planner.machine import Roles, roles
from helmsman.planner.serving.engine_reserve import card_count
from helmsman.planner.tensor_formats import Formats
from helmsman.schemas.engine_settings import Difference
from helmsman.schemas.formats import KV_FORMATS, KvFormat, StoredFormat
from helmsman.schemas.plan import KvRule, Plan

HOST = "host"
"""The side of the processors; other sides are accelerators, by name."""


class TensorSide(NamedTuple):
    """The side that most of a tensor lives on, whether all of it does, and whether it is a matrix that decode
    steps multiply elsewhere."""

    side: str
    whole: bool
    moves: bool


@dataclass(frozen=True)
class PlanPlaces:
    """The places of a plan, each looked up once for blocks that are alike."""

    plan: Plan

    @cached_property
    def roles(self) -> Roles:
        """Return the parts that devices play."""
        return roles(self.plan.hardware)

    @cached_property
    def known(self) -> KnownPlan:
        """Return the plan, to be asked about its rules."""
        return KnownPlan(self.plan)

    @cached_property
    def tensors(self) -> dict[TensorKey, TensorSide]:
        """Return the place of every tensor."""
        first: dict[tuple[str, int | None], TensorSide] = {}
        result: dict[TensorKey, TensorSide] = {}
        for tensor in tensors(self.plan.model):
            alike = None if tensor.layer is None else self.known.first_alike[tensor.layer]
            key = tensor.name, alike
            if key not in first:
                first[key] = self._place(tensor._replace(layer=alike))
            result[tensor.name, tensor.layer] = first[key]
        return result

    @cached_property
    def caches(self) -> tuple[str, ...]:
        """Return by block the side that its cache, or its state, is on."""
        of_first = {first: self._cache_side(first) for first in set(self.known.first_alike)}
        return tuple(of_first[first] for first in self.known.first_alike)

    def size(self, tensor: Tensor) -> int:
        """Return bytes of a tensor as the plan keeps it."""
        return tensor.size(homes(self.known, tensor)[0].rule.format)

    @property
    def kv_format(self) -> KvFormat | None:
        """Return the format of all caches; None where attention reads several, or one that has to be expanded."""
        formats = {rule.format for rule in self._cache_rules}
        name = next(iter(formats)) if len(formats) == 1 else None
        return next((fmt for fmt in KV_FORMATS if fmt == name), None)

    @property
    def nearest_kv_format(self) -> KvFormat:
        """Return the same, or the widest of what attention reads."""
        if self.kv_format is not None:
            return self.kv_format
        used: set[KvFormat] = {"q8_0" if rule.format == "q4" else rule.used for rule in self._cache_rules}
        return next(fmt for fmt in KV_FORMATS if fmt in used)

    @property
    def formats(self) -> tuple[StoredFormat, Formats]:
        """Return the format of most weights, and those of all matrices where they differ."""
        counted = Counter[StoredFormat]()
        for tensor, fmt in self._kept():
            counted[fmt] += 0 if tensor.name == "embedding.weight" else tensor.elements
        most = counted.most_common(1)[0][0]
        mixed = sum(1 for count in counted.values() if count) > 1
        return most, self.matrix_formats if mixed else {}

    @property
    def matrix_formats(self) -> Formats:
        """Return the format of every matrix, tied ones apart."""
        return {(tensor.name, tensor.layer): fmt for tensor, fmt in self._kept()}

    def _kept(self) -> Iterator[tuple[Tensor, StoredFormat]]:
        """Yield the matrices of the model, tied ones apart, each with its format."""
        for tensor in tensors(self.plan.model):
            if tensor.quantised and tensor.tied_to is None:
                yield tensor, homes(self.known, tensor)[0].rule.format

    @property
    def threads(self) -> int | None:
        """Return cores of the processor that works; those of the host where none does, None where that is unknown."""
        if self.plan.schedule.threads is not None:
            return self.plan.schedule.threads
        used = {rule.device for rule in self.plan.compute}
        working = (device for device in self.plan.hardware.devices if device.kind == "cpu" and device.name in used)
        return next(working, self.roles.host).cores

    @property
    def cards(self) -> int:
        """Return how many equal cards divide every layer, as one accelerator."""
        return max(map(card_count, self.roles.accelerators), default=1)

    def undivided(self, instead: str) -> Iterator[Difference]:
        """Yield what an engine whose settings divide no layer among cards does `instead`."""
        if self.cards > 1:
            yield Difference(what=f"{self.cards} cards divide every layer", instead=instead)

    def differences(self) -> Iterator[Difference]:
        """Yield what is of no engine that takes tensors as a whole: parts, slots, windows, drafts."""
        plan = self.plan
        divided = {key[0].partition(".")[0] for key, place in self.tensors.items() if not place.whole}
        if divided:
            named = ", ".join(sorted(divided)[:4]) + (", ..." if len(divided) > 4 else "")
            yield Difference(what=f"divided between memories: {named}", instead="each is whole where most of it is")
        if plan.expert_slots:
            slots = max(rule.slots for rule in plan.expert_slots)
            yield Difference(what=f"caches {slots} experts of a layer beside their home", instead="nothing is cached")
        if any(rule.cache is not None for rule in plan.kv):
            yield Difference(what="keys and values pass through a window of pages", instead="a cache is in one memory")
        if any(rule.select.part is not None for rule in plan.kv):
            yield Difference(what="heads of a layer's cache are in two memories", instead="a cache is in one memory")
        if plan.drafting is not None:
            yield Difference(
                what="tokens are drafted", instead="no drafts; the engine's own flags for them are not set"
            )
        if not plan.schedule.cache.plain:
            yield Difference(
                what=f"attention reads {plan.schedule.cache.label}", instead="it reads all keys and values"
            )

    @property
    def _cache_rules(self) -> list[KvRule]:
        return [rule for rule in self.plan.kv if rule.select.names != "prefix"]

    def _place(self, tensor: Tensor) -> TensorSide:
        pieces = homes(self.known, tensor)
        axis, extent = op_extent(self.plan.model, tensor.op, tensor.layer)
        users = Counter[str]()
        for use in places(self.known, tensor.op, tensor.layer, "decode", extent, axis):
            users[use.rule.device] += use.stop - use.start
        device = users.most_common(1)[0][0]
        rows = Counter[str]()
        for piece in pieces:
            rows[self._side(piece.rule.memory, device)] += piece.stop - piece.start
        side = rows.most_common(1)[0][0]
        near = {self.plan.hardware.device(name).memory for name in users}
        apart = any(near.isdisjoint((piece.rule.memory, *piece.rule.replicas)) for piece in pieces)
        moves = apart and len(tensor.shape) > 1 + tensor.stacked
        slots = tensor.layer is not None and tensor.stacked and slots_of(self.plan.expert_slots, tensor.layer)
        return TensorSide(side, len(rows) == 1 and len(users) == 1, moves and not slots)

    def _side(self, memory: str, device: str) -> str:
        """Return the side of a memory; of one that host and accelerator share, that of the device that reads it."""
        if self.roles.separate:
            owners = (other.name for other in self.roles.accelerators if other.memory == memory)
            return next(owners, HOST)
        return HOST if self.plan.hardware.device(device).kind == "cpu" else device

    def _cache_side(self, layer: int) -> str:
        cache = cache_of(self.plan.model, layer)
        where = places(self.known, "attention", layer, "decode", 1 if cache is None else cache.heads, "heads")
        return self._side(kv_rule(self.known, layer).memory, where[0].rule.device)
