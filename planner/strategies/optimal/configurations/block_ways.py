"""The ways to run one block: which operations run where, whose weights stay there, where its cache lives.

The union of what published methods choose from: a block of a layer split or of an engine (all on one side, resident or
streamed), a range of operations (Park & Egger), attention beside the cache on the host (FlexGen, NEO), matrices whose
rows both sides share at once (HeteGen), weights in storage or another memory, weights and caches in 4-bit groups
(FlexGen), and prompts computed elsewhere than decode steps, or shared otherwise."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Literal

from helmsman.lowering.operation import PANEL
from helmsman.lowering.ops import FFN_OPS, LINEAR_OPS, op_extent
from helmsman.planner.strategies.streaming.ends import End
from helmsman.planner.strategies.streaming.place import Quarter
from helmsman.scheduler.iteration import Phase
from helmsman.schemas.model import Model

Part = Literal["host", "both", "accelerator"]
"""Who computes an operation: `both` share its rows so that they end together."""

Source = Literal["host", "storage", "host q4", "storage q4", "resident q4"]
"""Where weights come from, in 4-bit groups or not; from where they are, if they need but be expanded."""

Packed = Literal["coming", "resident", "cache"]
"""What the accelerator gets in 4-bit groups: weights that come, weights that are there, keys and values that come."""

Prompt = Literal["alike", "accelerator", "divided"]
"""Where prompts are computed: where decode steps are; on the accelerator, to which everything comes unless it has the
host's memory; or `divided`, with attention on the accelerator and every matrix that does not live there shared by as
many rows as a prompt asks for."""

Paced = Literal["link", "accelerator"]
"""What is busy as long as the host where both share rows that come: the link, or, once they are there, the
accelerator."""

Division = Literal["resident", "link", "accelerator", "link q4", "accelerator q4", "prompt"]
"""How both share the rows of an operation: with the accelerator's living there, or coming at such a pace, in 4-bit
groups or not, or at that of a prompt."""

_PROJECTIONS = ("q", "k", "v")

_PACES: tuple[Paced, ...] = ("link", "accelerator")

_PACKED: Mapping[Paced, Division] = {"link": "link q4", "accelerator": "accelerator q4"}

ATTENTION = len(_PROJECTIONS)
"""Its place among the decided operations."""


@dataclass(frozen=True, slots=True)
class BlockWay:
    """A way to run a block: `parts`, `resident` in order of `decided(model)`.

    `resident`: whether the accelerator's rows of an operation's weights live there; otherwise they come every pass, of
    an operation of `both` as many as the `paced` one has time for: of the operations numbered in `stored` from the
    store, of others from host memory. `cache`: where keys and values live. `on`: which of the machine's accelerators,
    by number. `q4`: what is in 4-bit groups."""

    parts: tuple[Part, ...]
    resident: tuple[bool, ...]
    cache: End
    prompt: Prompt
    paced: Paced = "link"
    on: int = 0
    stored: tuple[int, ...] = ()
    q4: tuple[Packed, ...] = ()

    def parts_in(self, phase: Phase) -> tuple[Part, ...]:
        """Who computes every operation in a phase."""
        if phase == "decode" or self.prompt == "alike":
            return self.parts
        if self.prompt == "accelerator":
            return tuple("accelerator" for _ in self.parts)
        parts: list[Part] = [part if here else "both" for part, here in zip(self.parts, self.resident, strict=True)]
        parts[ATTENTION] = "accelerator"
        return tuple(parts)

    @property
    def in_prompts(self) -> object:
        """Return what is equal for ways whose prompts are computed in the same way; what the host has is not in
        groups."""
        if self.prompt == "alike":
            return self
        groups = ("cache" in self.q4, *map(self.packed, range(len(self.parts))))
        return self.prompt, self.parts_in("prefill"), self.resident, self.cache, self.on, self.stored, groups

    def division(self, op: int, phase: Phase) -> Division:
        """How the rows of an operation of `both` are divided in a phase, by its place."""
        if self.resident[op]:
            return "resident"
        return "prompt" if phase == "prefill" and self.prompt == "divided" else self.rows_paced

    @property
    def rows_paced(self) -> Division:
        """How rows are divided that both share and that come."""
        return _PACKED[self.paced] if "coming" in self.q4 else self.paced

    @property
    def alone(self) -> bool:
        """Whether the host has all of it in both phases."""
        return set(self.parts) == {"host"} and self.prompt == "alike"

    @property
    def whole(self) -> bool:
        """Whether one side has all of it."""
        return len(set(self.parts)) == 1 and "both" not in self.parts and self.prompt == "alike"

    @property
    def needs_vectors_away(self) -> bool:
        """Whether the accelerator reads norms and biases."""
        return not self.whole or self.parts[0] != "host"

    @property
    def half_comes(self) -> bool:
        """Whether prompts would need rows that come beside rows of the same matrix that are there: an operation's
        weights on one device all live there, or all elsewhere."""
        kept = any(part == "both" and here for part, here in zip(self.parts, self.resident, strict=True))
        return kept and self.prompt == "accelerator"

    @property
    def weights_come(self) -> bool:
        """Whether decode steps wait for weights."""
        return any(part != "host" and not here for _, part, here in self._matrices)

    @property
    def others_come(self) -> bool:
        """Whether they wait for weights from host memory."""
        return any(part != "host" and not here and k not in self.stored for k, part, here in self._matrices)

    @property
    def rows_come(self) -> bool:
        """Whether they wait for rows of matrices that both share."""
        return any(part == "both" and not here for _, part, here in self._matrices)

    @property
    def arriving(self) -> tuple[int, ...]:
        """The operations that are the accelerator's alone, and whose weights come."""
        return tuple(k for k, part, here in self._matrices if part == "accelerator" and not here)

    @property
    def _matrices(self) -> Iterator[tuple[int, Part, bool]]:
        """The numbers of the operations that have weights, who computes them, and whether they are there."""
        triples = zip(range(len(self.parts)), self.parts, self.resident, strict=True)
        return (triple for triple in triples if triple[0] != ATTENTION)

    @property
    def cache_comes(self) -> bool:
        """Whether decode steps wait for keys and values."""
        return self.parts[ATTENTION] == "accelerator" and self.cache == "host"

    def packed(self, k: int) -> bool:
        """Whether the accelerator's rows of an operation's weights are in 4-bit groups."""
        return self.parts[k] != "host" and ("resident" if self.resident[k] else "coming") in self.q4

    @property
    def streams(self) -> bool:
        """Whether anything comes to the accelerator, or is expanded there, in any phase."""
        return self.weights_come or self.cache_comes or self.prompt != "alike" or bool(self.q4)


def decided(model: Model) -> tuple[str, ...]:
    """The operations that are decided about, in order; norms go with what reads them, appending with attention."""
    linear = [op for op in LINEAR_OPS if op != "gate" or model.dense.gated]
    return (*linear[:ATTENTION], "attention", *linear[ATTENTION:])


def on_host(model: Model) -> BlockWay:
    """A block on the host."""
    parts: list[Part] = ["host" for _ in decided(model)]
    return BlockWay(tuple(parts), (False,) * len(parts), "host", "alike")


def on_accelerator(model: Model, resident: bool = True, cache: End = "accelerator") -> BlockWay:
    """A block on the accelerator, with its weights there or in host memory."""
    parts: list[Part] = ["accelerator" for _ in decided(model)]
    return BlockWay(tuple(parts), tuple(resident and k != ATTENTION for k in range(len(parts))), cache, "alike")


def from_storage(model: Model, cache: End = "host") -> BlockWay:
    """A block on the accelerator, with its weights in storage."""
    way = on_accelerator(model, False, cache)
    return replace(way, stored=way.arriving)


def in_groups(model: Model, quarters: tuple[Quarter, ...], resident: bool = False) -> BlockWay:
    """A block on the accelerator, with its weights there or in host memory and its cache there, of which `quarters` are
    in 4-bit groups."""
    weights: Packed = "resident" if resident else "coming"
    q4: dict[Quarter, Packed] = {"weights": weights, "kv": "cache"}
    return replace(on_accelerator(model, resident, "host"), q4=tuple(q4[quarter] for quarter in quarters))


def block_ways(
    model: Model,
    separate: bool = True,
    storage: bool = False,
    quarters: tuple[Quarter, ...] = (),
    prompts: bool = False,
) -> tuple[BlockWay, ...]:
    """Every way that is searched, each once; of a machine whose sides have `separate` memories, or share one, and where
    weights may come from `storage`; `quarters`: what may be in 4-bit groups, of sides with separate memories;
    `prompts`: whether they matter."""
    return _block_ways(decided(model), divisible(model), separate, storage, quarters, prompts)


@lru_cache(maxsize=16)
def _block_ways(
    ops: tuple[str, ...], shared: bool, separate: bool, storage: bool, quarters: tuple[Quarter, ...], prompts: bool
) -> tuple[BlockWay, ...]:
    """The same, by what it depends on; `shared`: whether both sides may share rows."""
    block_ways = dict[BlockWay, None]()
    for parts in dict.fromkeys((*_ranges(len(ops)), *_classes(ops))):
        if "both" not in parts or shared:
            block_ways |= dict.fromkeys(_variants(ops, parts) if separate else _settled(parts, prompts))
    if storage:
        block_ways |= dict.fromkeys(stored for way in _linked(block_ways) for stored in _stored(way))
    if "weights" in quarters and separate:
        block_ways |= dict.fromkeys(replace(way, q4=q4) for way in tuple(block_ways) for q4 in _packed(way))
    if "kv" in quarters and separate:
        block_ways |= {replace(way, q4=(*way.q4, "cache")): None for way in _linked(block_ways) if way.cache_comes}
    if prompts and separate and shared:
        block_ways |= dict.fromkeys(divided for way in tuple(block_ways) for divided in _divided(way))
    return tuple(block_ways)


def _linked(ways: Iterable[BlockWay]) -> tuple[BlockWay, ...]:
    """Those whose rows come at the link's pace, if any: what is faster still keeps the accelerator's."""
    return tuple(way for way in ways if way.paced == "link")


def _packed(way: BlockWay) -> Iterator[tuple[Packed, ...]]:
    """Yield what comes in 4-bit groups, what is there, or both. Rows of the host stay as they are, so that prompts do
    not move to the accelerator where rows beside them do; nor are rows that live there beside those in groups."""
    shared = "both" in way.parts
    comes = way.weights_come and not (shared and way.prompt == "accelerator")
    kept = any(way.resident) and not shared
    if comes:
        yield ("coming",)
    if kept and not way.weights_come:
        yield ("resident",)
    if kept and comes:
        yield ("coming", "resident")


def _stored(way: BlockWay) -> Iterator[BlockWay]:
    """All that comes for the accelerator's operations from storage; of a block that is the accelerator's alone, one
    matrix too. Rows beside rows of the host come from host memory."""
    arriving = way.arriving
    if arriving:
        yield replace(way, stored=arriving)
    if set(way.parts) == {"accelerator"}:
        yield from (replace(way, stored=(k,)) for k in arriving)


def _divided(way: BlockWay) -> Iterator[BlockWay]:
    """Its prompts by rows of their own, of what is not there: of weights in host memory, as they are used."""
    comes = any(not here for k, here in enumerate(way.resident) if k != ATTENTION)
    if comes and way.prompt == "alike" and not way.stored and not way.q4:
        yield replace(way, prompt="divided")


def divisible(model: Model) -> bool:
    """Whether every matrix has rows for both sides."""
    return all(op_extent(model, op)[1] >= 2 * PANEL for op in decided(model) if op != "attention")


def _settled(parts: tuple[Part, ...], prompts: bool) -> Iterator[BlockWay]:
    """Everything lives where it is used: in the memory that both sides share. Where `prompts` matter, those of matrices
    that are not shared by rows may also be the accelerator's, whichever side does the decode steps."""
    away = tuple(part != "host" and k != ATTENTION for k, part in enumerate(parts))
    cache: End = "accelerator" if parts[ATTENTION] == "accelerator" else "host"
    way = BlockWay(parts, away, cache, "alike")
    yield way
    moved = replace(way, prompt="accelerator")
    if prompts and "host" in parts and not moved.half_comes:
        yield moved


def _ranges(count: int) -> Iterator[tuple[Part, ...]]:
    """The accelerator computes operations i <= k < j, or all others."""
    for start in range(count):
        for stop in range(start, count + 1):
            inside: list[Part] = ["accelerator" if start <= k < stop else "host" for k in range(count)]
            yield tuple(inside)
            yield tuple("host" if part == "accelerator" else "accelerator" for part in inside)


def _classes(ops: tuple[str, ...]) -> Iterator[tuple[Part, ...]]:
    """Projections, attention, output and FFN each on one side or, but for attention, on both."""
    sides: tuple[Part, ...] = ("host", "both", "accelerator")
    whole: tuple[Part, ...] = ("host", "accelerator")
    ffn_ops = sum(op in FFN_OPS for op in ops)
    for projections, attention, output, ffn in product(sides, whole, sides, sides):
        yield (*(projections,) * ATTENTION, attention, output, *(ffn,) * ffn_ops)


def _variants(ops: tuple[str, ...], parts: tuple[Part, ...]) -> Iterator[BlockWay]:
    """With the accelerator's weights there, coming, or some of each; the cache on either side of attention."""
    away = [part != "host" for part in parts]
    caches: tuple[End, ...] = ("host", "accelerator") if parts[ATTENTION] == "accelerator" else ("host",)
    prompts: tuple[Prompt, ...] = (
        ("alike",) if all(part == "accelerator" for part in parts) else ("alike", "accelerator")
    )
    for resident, cache, prompt in product(_residents(ops, away), caches, prompts):
        shared = any(part == "both" and not here for part, here in zip(parts, resident, strict=True))
        for paced in _PACES if shared else _PACES[:1]:
            way = BlockWay(parts, resident, cache, prompt, paced)
            if not way.half_comes:
                yield way


def _residents(ops: tuple[str, ...], away: list[bool]) -> Iterator[tuple[bool, ...]]:
    """All, none, and for a whole block its first or last matrices."""
    matrices = [k != ATTENTION and here for k, here in enumerate(away)]
    yield tuple(matrices)
    yield (False,) * len(ops)
    if all(away):
        for cut in range(1, len(ops)):
            yield tuple(here and k < cut for k, here in enumerate(matrices))
            yield tuple(here and k >= cut for k, here in enumerate(matrices))
