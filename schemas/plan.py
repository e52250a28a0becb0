"""Plan: where things live and where work happens. Everything else is derived by `lowering`."""

from itertools import pairwise
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from helmsman.schemas.base import (
    Count,
    Derived,
    Document,
    Frozen,
    Index,
    Name,
    NonNegative,
    Sha256,
    Total,
    absent,
    empty,
    mistake,
    version,
    zero,
)
from helmsman.schemas.cache_use import PLAIN, CacheUse
from helmsman.schemas.figures import Disturbed
from helmsman.schemas.formats import Format, KeptFormat, KvFormat, StoredFormat
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.model import Model
from helmsman.schemas.page_cache import PageCache
from helmsman.schemas.predicted import Interval, Predicted
from helmsman.schemas.routing import Eviction
from helmsman.schemas.workload import Workload


class LayerRange(Frozen):
    """Blocks start <= layer < stop."""

    start: Index
    stop: Index


def _form(layers: object) -> str | None:
    """Which of the forms of `Layers` a value has."""
    if isinstance(layers, list | tuple):
        return "(several)"
    return "(one)" if isinstance(layers, dict | LayerRange) else None


Layers = Annotated[
    Annotated[LayerRange, Tag("(one)")]
    | Annotated[tuple[LayerRange, ...], Field(min_length=1, max_length=4096), Tag("(several)")],
    Discriminator(_form, "ranges_type", "neither a range of blocks nor a list of them"),
]
"""One range of blocks, or several in order."""


class Part(Frozen):
    """Rows (of a linear layer's output), heads (KV heads of attention and caches) or experts start <= i < stop."""

    axis: Literal["rows", "heads", "experts"]
    start: Index
    stop: Index

    @model_validator(mode="after")
    def _not_empty(self) -> Self:
        if self.start >= self.stop:
            raise mistake("an empty part", "use start < stop", "stop", self.stop)
        return self


class Select(Frozen):
    """Which tensors (or operations): a glob over their names, optionally some blocks and a part of each.

    Names without a layer: `embedding`, `positions`, `final_norm`, `head`; in a block: `q`, `attention`, ...
    A selector with `layers`, one range or several in order, matches only what belongs to a block. `attention` also
    means `scores`, `softmax` and `wv`, the operations it is divided into. With `part` the rule covers that part, and
    later rules the rest."""

    names: Name = "*"
    layers: Layers | None = None
    part: Part | None = None

    @property
    def ranges(self) -> tuple[LayerRange, ...]:
        """Return the ranges of blocks; none where blocks do not matter."""
        if self.layers is None:
            return ()
        return (self.layers,) if isinstance(self.layers, LayerRange) else self.layers

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        for place, (before, after) in enumerate(pairwise(self.ranges), start=1):
            if after.start < before.stop:
                message, remedy = "ranges of blocks overlap or are out of order", f"start at {before.stop} or later"
                raise mistake(message, remedy, f"layers.{place}.start", after.start)
        return self


Path = Literal["mapped", "managed", "pageable", "pinned", "pin-on-transfer", "bounce", "direct"]
"""How bytes leave their home. pinned: page-locked before the run (PARK-13); pin-on-transfer: copied to a
page-locked buffer each time (PARK-07); pageable: the driver does that; managed: pages migrate when they are touched
(CUDA's managed memory, GUPTA-48); bounce: storage through host memory; direct:
storage straight to the device (PARK-37)."""


class Residence(Frozen):
    """Weights matching `select` live in `memory`, stored as `format`, and leave it by `path`.

    `replicas`: memories with a full copy; `stripes`: shares of a transfer that home and replicas serve (default:
    a replica serves its own device, and home serves the rest). Weights are multiplied as they are stored; 4-bit groups
    (`q4`) with `expanded` become that before they are used, as FlexGen's do (PARK-35). What is quantised is matrices:
    norms, biases and positions stay f32."""

    select: Select
    memory: Name
    format: StoredFormat
    path: Path = "pinned"
    replicas: Annotated[tuple[Name, ...], Field(max_length=16)] = ()
    stripes: Annotated[tuple[NonNegative, ...], Field(max_length=17)] = ()
    expanded: Format | None = Field(default=None, description="what `q4` becomes before it is used; of others nothing")

    @property
    def used(self) -> StoredFormat:
        """Return the format in which operations read them."""
        return self.expanded if self.format == "q4" and self.expanded is not None else self.format

    @property
    def expands(self) -> bool:
        """Whether they become something else before they are used."""
        return self.used != self.format

    @model_validator(mode="after")
    def _striped(self) -> Self:
        if self.stripes and (len(self.stripes) != 1 + len(self.replicas) or abs(sum(self.stripes) - 1.0) > 1e-6):
            remedy = "write one share for the home and one for each replica, adding up to 1"
            raise mistake("stripes do not match the copies", remedy, "stripes", list(self.stripes))
        return self


class KvRule(Frozen):
    """The KV cache (`kv`), or only its `keys` or `values`, lives in `memory`, stored as `format`; `q4` becomes
    `expanded` before attention reads it.

    `prefix`: what is known of prompts (`workload.prefix_tokens`) waits in `memory` and comes to the cache in the prompt
    pass (LMCache, HELM-90); without such a rule it is in the cache already. `cache`: a window of it on the device that
    attends to it; without one all of it is allocated where it lives (HELM-91)."""

    select: Select
    memory: Name
    format: KeptFormat
    path: Path = "pinned"
    expanded: Format = "f16"
    cache: PageCache | None = None

    @property
    def used(self) -> KvFormat:
        """Return the format in which attention reads them."""
        return self.expanded if self.format == "q4" else self.format


class ExpertSlots(Frozen):
    """Experts of layers matching `select`, whose home is elsewhere, are cached in `memory`, that of an accelerator:
    `slots` whole experts (all their matrices) of every layer.

    `eviction` least-recent: slots hold the experts that were used last (`scheduler.expert_cache`), none when a run
    begins; popularity: those of the workload's routing that tokens choose most, ties by lower number, for good.
    `misses` host: experts that are not in slots are computed where rules put the operation, while the accelerator
    computes those that are; where slots are for the least recent, they enter them behind the pass. fetched: rules put
    the operation on the accelerator, and experts that are not in slots come over the link first, through slots.
    divided: the share `fetched` of them comes so, and the others are computed where rules put the operation, as on the
    host, without entering slots."""

    select: Select
    memory: Name
    slots: Count
    eviction: Eviction = "least-recent"
    misses: Literal["host", "fetched", "divided"] = "host"
    fetched: Annotated[float, Field(gt=0.0, lt=1.0)] | None = None

    @model_validator(mode="after")
    def _shared(self) -> Self:
        if (self.misses == "divided") != (self.fetched is not None):
            raise mistake("the share that is fetched is of divided misses", "write both or neither", "fetched")
        if self.misses != "host" and self.eviction == "popularity":
            raise mistake("fetched experts need slots that others leave", "write least-recent", "eviction")
        return self


class ComputeRule(Frozen):
    """Operations matching `select` run on `device`; `phase` narrows the rule to one phase."""

    select: Select
    device: Name
    phase: Literal["prefill", "decode"] | None = None


class Schedule(Frozen):
    """How a pass is ordered.

    `order`: token-major finishes a batch's pass before the next batch's; layer-major finishes a layer for every
    batch before the next layer and brings its weights once (zig-zag, PARK-05). `overlap` next-layer: what a layer
    needs may come while the `prefetch` layers before it compute. `attention`: whole, or divided into scores, softmax
    and weighted values even where they run together. `reshape`: caches are kept (batch, tokens, hidden) and turned
    for every step, instead of being kept as attention reads them (PARK-14, 15). `barrier`: a layer starts when all of
    the one before and all that it needs is done, stores included, as FlexGen does. `expand`: 4-bit groups are expanded
    as soon as they arrive, on a lane of their own where the device has one (PARK-35), or just before their use.
    `stage`: what comes ahead together and what barriers stand between, a block or its halves: attention and FFN
    (FlexGen's layers, GUPTA-13). `cache`: what decode steps read of past tokens (PARK-66, 70). `threads` of the host,
    where fewer than its cores were measured to be faster (PARK-48). `pass_tokens`: the tokens of each sequence that one
    pass over a prompt takes at most; a longer prompt takes several, each on top of those before (llama.cpp's
    micro-batches). `buffered_tokens`: the tokens of each sequence that buffers have room for, however short the prompt
    is: llama.cpp reserves them for a whole micro-batch when it starts. `experts_apart`: matrices of experts that stream
    come one after the other, each ahead of its product, as llama.cpp copies them, instead of all of a layer at once."""

    order: Literal["token-major", "layer-major"] = "token-major"
    overlap: Literal["none", "next-layer"] = "none"
    prefetch: Index = 0
    attention: Literal["whole", "divided"] = "whole"
    reshape: bool = False
    barrier: bool = False
    expand: Literal["on-arrival", "before-use"] = "on-arrival"
    stage: Literal["block", "half"] = "block"
    cache: CacheUse = PLAIN
    threads: Count | None = None
    pass_tokens: Count | None = None
    buffered_tokens: Count | None = None
    experts_apart: bool = False

    @model_validator(mode="after")
    def _undivided(self) -> Self:
        if self.cache.holds == "activations" and self.attention == "divided":
            raise mistake("cached activations are read by undivided attention", "write whole", "attention", "divided")
        return self


class Strategy(Frozen):
    """The method that made the plan and its options."""

    name: Name
    options: dict[Name, str | int | float | bool] = Field(default_factory=dict)


class Certificate(Frozen):
    """The proof of a search: no plan that it could have made takes fewer seconds than `lower_bound`, equally priced.

    `objective`: what the seconds are of; `seconds`: the plan's; `ways`: ways to run a block that were composed."""

    objective: Name
    seconds: Derived
    lower_bound: Derived
    gap: Derived = Field(description="seconds / lower_bound - 1")
    ways: Count

    @model_validator(mode="after")
    def _proven(self) -> Self:
        if self.lower_bound > self.seconds:
            remedy = "write a bound of at most the plan's seconds"
            raise mistake("the plan is faster than its bound", remedy, "lower_bound", self.lower_bound)
        if self.lower_bound > 0 and abs(self.seconds / self.lower_bound - 1 - self.gap) > 1e-6 * (1 + self.gap):
            raise mistake("not how far the plan is above its bound", "write seconds / lower_bound - 1", "gap", self.gap)
        return self


class Considered(Frozen):
    """A division into batches that a search for the most tokens/s looked at.

    `rate`: output tokens/s over the whole request: of its plan or, left out, at most; none without a plan."""

    batches: Count
    batch: Count
    verdict: Literal["planned", "left-out", "no-plan"]
    rate: Derived | None = None


class PassedOver(Frozen):
    """A plan that is faster by prediction than the one recommended, which is simpler: what it would save may be less
    than what is uncertain about it.

    `seconds`: of the objective; `gain`: seconds that it saves, which may be none."""

    strategy: Name
    label: Name
    seconds: Derived
    gain: Interval


class Drafting(Frozen):
    """Drafts of every decode step: `tokens` that a drafter proposes on `device`, one pass after the other, and one pass
    of the plan verifies. `model`: the drafter; left out of the plan's own draft head.

    `acceptance`: the assumed probability that a draft is accepted where all before it were; `size`: bytes of the
    drafter's weights, caches and buffers in `memory`; `draft`, `verify`: seconds of one pass of the drafter and of the
    verification, with the snapshots of states that it leaves; `back`: seconds in which states are put back where a
    draft was rejected; `expected`: tokens of a sequence that a step makes; `tokens_per_second`: of all sequences."""

    model: Annotated[Model | None, Field(exclude_if=absent)] = None
    device: Name
    memory: Name
    tokens: Count
    acceptance: Annotated[float, Field(ge=0.0, le=1.0)]
    size: Total
    draft: Derived
    verify: Derived
    back: Annotated[Derived, Field(exclude_if=zero)] = 0.0
    expected: Derived
    tokens_per_second: Derived


class Evidence(Frozen):
    """A hardware number that the prediction used; `disturbed`: the share of the time that others took while it was
    measured, where its spread is wider for it."""

    what: Name
    value: NonNegative
    source: Name
    disturbed: Disturbed | None = None


class Plan(Document):
    """A self-contained placement: model, hardware, workload, rules (first match wins), prediction. `machine`: the
    record that was asked about, where a strategy prices another one: as an engine finds and drives it."""

    byte_limit: ClassVar[int] = 16 * 2**20
    schema_id: Literal["helm.plan/1"] = version("helm.plan/1")
    label: Name
    model: Model
    model_sha256: Sha256
    hardware: Hardware
    hardware_sha256: Sha256
    workload: Workload
    workload_sha256: Sha256
    strategy: Strategy
    residence: Annotated[tuple[Residence, ...], Field(min_length=1, max_length=4096)]
    kv: Annotated[tuple[KvRule, ...], Field(min_length=1, max_length=4096)]
    compute: Annotated[tuple[ComputeRule, ...], Field(min_length=1, max_length=4096)]
    activations: Format = Field(default="f16", description="format of hidden states that cross a link")
    schedule: Schedule = Schedule()
    expert_slots: Annotated[tuple[ExpertSlots, ...], Field(max_length=4096, exclude_if=empty)] = ()
    predicted: Predicted
    certificate: Certificate | None = None
    considered: tuple[Considered, ...] = ()
    passed_over: tuple[PassedOver, ...] = ()
    drafting: Annotated[Drafting | None, Field(exclude_if=absent)] = None
    machine: Annotated[Hardware | None, Field(exclude_if=absent)] = None
    evidence: tuple[Evidence, ...] = ()
