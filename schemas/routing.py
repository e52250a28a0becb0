"""Routing: which experts tokens choose, as far as it decides what is read: how many distinct ones, and how often those
that are kept in slots."""

from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from helmsman.schemas.base import Count, Document, Frozen, Index, Name, NonNegative, Sha256, mistake, version

Eviction = Literal["least-recent", "popularity"]
"""Which expert leaves a slot for another: the one that was used longest ago; or none, as the most popular ones stay."""

Chance = Annotated[float, Field(ge=0.0, le=1.0)]
"""A probability, or a share."""

MAX_POINTS = 4096
"""Points of a curve at most: no layer has more experts."""

Points = Annotated[tuple[NonNegative, ...], Field(min_length=1, max_length=MAX_POINTS)]
"""The values of a curve at its points."""


class RoutingCurve(Frozen):
    """A function known at the whole numbers `at`, ascending: its median over traces, and the least and most of them
    where there were several."""

    at: Annotated[tuple[Count, ...], Field(min_length=1, max_length=MAX_POINTS)]
    mid: Points
    low: Points | None = None
    high: Points | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for before, after in pairwise(self.at):
            if after <= before:
                raise mistake("points are out of order", "write them ascending", "at", after)
        for name in ("mid", "low", "high"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.at):
                raise mistake("not one value for every point", f"write {len(self.at)}", name, len(values))
        low, high = self.low or self.mid, self.high or self.mid
        if any(not least <= mid <= most for least, mid, most in zip(low, self.mid, high, strict=True)):
            raise mistake("low, mid and high are out of order", "write them with low <= mid <= high", "mid")
        return self


class HitCurve(Frozen):
    """The share of the distinct experts of a pass of `tokens` tokens that are in slots when it begins, by the number of
    slots of the layer: `warm`, after many passes, and `cold`, the mean over the first ones (`Routing.cold_passes`) of a
    cache that begins empty."""

    eviction: Eviction
    tokens: Count = 1
    warm: RoutingCurve
    cold: RoutingCurve | None = None

    @model_validator(mode="after")
    def _shares(self) -> Self:
        for name in ("warm", "cold"):
            curve = getattr(self, name)
            if curve is not None and max(curve.high or curve.mid) > 1.0:
                raise mistake("more than all experts hit", "write shares of at most 1", name)
        return self


class LayerRouting(Frozen):
    """The routing of block `layer`.

    `popularity`: the probability with which a token chooses each expert, which sum to the experts that it chooses;
    `distinct`: experts that the tokens of a pass choose, by how many tokens it has. What is missing follows from
    `popularity`, and without that from a uniform choice."""

    layer: Index
    popularity: Annotated[tuple[Chance, ...], Field(min_length=1, max_length=MAX_POINTS)] | None = None
    distinct: RoutingCurve | None = None
    hits: Annotated[tuple[HitCurve, ...], Field(max_length=64)] = ()

    @model_validator(mode="after")
    def _once(self) -> Self:
        known = [(curve.eviction, curve.tokens) for curve in self.hits]
        for place, about in enumerate(known):
            if about in known[:place]:
                raise mistake("two curves of one cache and as many tokens", "leave one out", f"hits.{place}.tokens")
        return self


class Routing(Document):
    """The routing of a model's layers; those that are not listed choose uniformly.

    `model`, `model_sha256`: whose it is; `traces`: of how many recorded traces it is made, 0: of none; `cold_passes`:
    over how many first passes cold curves are means."""

    schema_id: Literal["helm.routing/1"] = version("helm.routing/1")
    model: Name
    model_sha256: Sha256
    layers: Annotated[tuple[LayerRouting, ...], Field(min_length=1, max_length=4096)]
    traces: Index = 0
    cold_passes: Count = 32

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        for place, (before, after) in enumerate(pairwise(self.layers), start=1):
            if after.layer <= before.layer:
                raise mistake("layers are out of order", "write them ascending", f"layers.{place}.layer", after.layer)
        return self

    def __hash__(self) -> int:
        """Return the hash of the content, as workloads are keys of caches."""
        return hash(self.content)

    def __eq__(self, other: object) -> bool:
        """Whether another routing has the same content."""
        return self is other or (isinstance(other, Routing) and self.content == other.content)

    def model_copy(self, *, update: Any = None, deep: bool = False) -> Self:
        """Return a copy with some fields changed, which computes for itself what is derived from them."""
        copied = super().model_copy(update=update, deep=deep)
        for name in set(copied.__dict__) - set(type(self).model_fields):
            del copied.__dict__[name]
        return copied

    @cached_property
    def content(self) -> str:
        """Return the canonical JSON, by which routings are compared."""
        return self.to_json(indent=None)

    @cached_property
    def of_layer(self) -> dict[int, LayerRouting]:
        """Return the routing of the layers that are listed."""
        return {one.layer: one for one in self.layers}

    @cached_property
    def groups(self) -> dict[int, int]:
        """Return by layer that is listed a number that layers of equal routing share."""
        numbers: dict[object, int] = {}
        kinds = ((one.layer, (one.popularity, one.distinct, one.hits)) for one in self.layers)
        return {layer: numbers.setdefault(kind, len(numbers)) for layer, kind in kinds}

    @property
    def assumed(self) -> Literal["popularity", "curves"]:
        """Return what it says most of: curves, or popularity alone."""
        curves = any(one.distinct is not None or one.hits for one in self.layers)
        return "curves" if curves else "popularity"
