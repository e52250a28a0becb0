"""Applying a plan's rule lists: the first rule that matches a tensor, cache or operation, or a part of it, decides."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from operator import itemgetter
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from helmsman.lowering.operation import Axis
from helmsman.lowering.tensor import Tensor
from helmsman.scheduler.iteration import Phase
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.plan import ComputeRule, ExpertSlots, KvRule, LayerRange, Part, Residence, Select

Cached = Literal["keys", "values"]

PREFIX = "prefix"
"""The name by which alone a rule selects keys and values of tokens that were known before the prompt pass."""

_MEMBERS = {"scores": "attention", "softmax": "attention", "wv": "attention", "keys": "kv", "values": "kv"}
"""The operation that a name is a part of: a rule for the whole covers it."""


_PATTERNS = "*"
"""Among names, those that are patterns."""

_number = itemgetter(0)


class Rules(Protocol):
    """The rule lists of a Plan, or of a placement that is not a Plan yet."""

    @property
    def residence(self) -> tuple[Residence, ...]:
        """Homes of weights."""

    @property
    def kv(self) -> tuple[KvRule, ...]:
        """Homes of caches."""

    @property
    def compute(self) -> tuple[ComputeRule, ...]:
        """Places of operations."""


class _Rule(Protocol):
    @property
    def select(self) -> Select: ...


RuleT = TypeVar("RuleT", bound=_Rule)


class Slice(NamedTuple, Generic[RuleT]):
    """Rows or heads start <= i < stop, and the rule that decides about them."""

    rule: RuleT
    start: int
    stop: int


def first_alike(rules: Rules, layouts: Sequence[Hashable], expert_slots: Sequence[ExpertSlots] = ()) -> tuple[int, ...]:
    """Return by block the first one of its layout that no rule tells from it, nor slots for experts; `layouts`: of the
    blocks (`placement.layouts_of`)."""
    selects = (rule.select for group in (rules.residence, rules.kv, rules.compute, expert_slots) for rule in group)
    told = dict.fromkeys(select.ranges for select in selects if select.layers is not None)
    first: dict[tuple[Hashable, tuple[bool, ...]], int] = {}
    return tuple(
        first.setdefault((layout, tuple(_among(ranges, layer) for ranges in told)), layer)
        for layer, layout in enumerate(layouts)
    )


def _among(ranges: tuple[LayerRange, ...], layer: int) -> bool:
    return any(span.start <= layer < span.stop for span in ranges)


class KnownRules:
    """Rules that remember what was found in them, once for all blocks that no rule tells apart.

    `first_alike`: by block, the first of those."""

    def __init__(self, rules: Rules, layouts: Sequence[Hashable], expert_slots: Sequence[ExpertSlots] = ()) -> None:
        self.residence, self.kv, self.compute = rules.residence, rules.kv, rules.compute
        self.first_alike = first_alike(rules, layouts, expert_slots)
        self.slices: dict[tuple[object, ...], tuple[Slice[Any], ...]] = {}
        self._reaching: dict[tuple[str, int | None], dict[str, list[tuple[int, Any]]]] = {}

    def share(self, other: "KnownRules") -> None:
        """Take the rules of `other`, and remember together what is found in them."""
        self.residence, self.kv, self.compute = other.residence, other.kv, other.compute
        self.first_alike, self.slices, self._reaching = other.first_alike, other.slices, other._reaching

    def reaching(self, among: Sequence[RuleT], where: str, layer: int | None, name: str) -> Iterable[tuple[int, RuleT]]:
        """Return the rules `among` those of a list that may select `name` in a block, numbered, in order."""
        if (where, layer) not in self._reaching:
            by_pattern = self._reaching[where, layer] = {_PATTERNS: []}
            for number, rule in _reaching(among, layer):
                pattern = rule.select.names
                by_pattern.setdefault(pattern if pattern.isalnum() else _PATTERNS, []).append((number, rule))
        by_pattern = self._reaching[where, layer]
        own = [*by_pattern.get(name, ()), *by_pattern.get(_MEMBERS.get(name, ""), ())]
        return sorted([*own, *by_pattern[_PATTERNS]], key=_number) if own else by_pattern[_PATTERNS]


@lru_cache(maxsize=4096)
def _named(pattern: str, name: str) -> bool:
    return fnmatchcase(name, pattern) or (name in _MEMBERS and fnmatchcase(_MEMBERS[name], pattern))


def matches(select: Select, name: str, layer: int | None) -> bool:
    """Whether `select` covers the thing called `name` in block `layer`, or a part of it."""
    return _named(select.names, name) and _reaches(select, layer)


def _reaches(select: Select, layer: int | None) -> bool:
    """Whether it covers anything in a block."""
    return select.layers is None or (layer is not None and _among(select.ranges, layer))


def _reaching(among: Sequence[RuleT], layer: int | None) -> Iterator[tuple[int, RuleT]]:
    """Return the rules that select anything in a block, numbered."""
    return ((number, rule) for number, rule in enumerate(among) if _reaches(rule.select, layer))


def homes(rules: Rules, tensor: Tensor) -> tuple[Slice[Residence], ...]:
    """Where the rows of a weight tensor live, in order of rows, under rules of the format in which it is kept."""
    if not isinstance(rules, KnownRules):
        return _homes(rules, tensor)
    key = "homes", tensor.name, None if tensor.layer is None else rules.first_alike[tensor.layer]
    if key not in rules.slices:
        rules.slices[key] = _homes(rules, tensor)
    return rules.slices[key]


def _homes(rules: Rules, tensor: Tensor) -> tuple[Slice[Residence], ...]:
    result = _covering(rules, rules.residence, "residence", tensor.name, tensor.layer, tensor.shape[0], tensor.axis)
    if tensor.quantised and tensor.op != "embedding":
        return result
    return tuple(_as_read(piece, tensor) for piece in result)


def _as_read(piece: Slice[Residence], tensor: Tensor) -> Slice[Residence]:
    """Return a piece as it is read: what is never quantised keeps its values, and rows of tables are looked up as they
    are stored."""
    fmt = tensor.kept_in(piece.rule.format)
    if fmt == piece.rule.format and not piece.rule.expands:
        return piece
    return Slice(_with_format(piece.rule, fmt), piece.start, piece.stop)


@lru_cache(maxsize=256)
def _with_format(rule: Residence, fmt: StoredFormat) -> Residence:
    """Return the rule for what is used as it is stored, in `fmt`."""
    return rule.model_copy(update={"format": fmt, "expanded": None})


def residence(rules: Rules, tensor: Tensor) -> Residence:
    """Return the rule of a tensor that is not divided: that of its first row."""
    return homes(rules, tensor)[0].rule


def kv_homes(rules: Rules, what: Cached, layer: int, kv_heads: int) -> tuple[Slice[KvRule], ...]:
    """Where the heads of a block's keys or values live, in order of heads."""
    return _covering(rules, rules.kv, "kv", what, layer, kv_heads, "heads")


def slots_of(expert_slots: Sequence[ExpertSlots], layer: int) -> ExpertSlots | None:
    """Return the rule of a block whose experts are cached in slots; None where they are not."""
    return next((rule for rule in expert_slots if _reaches(rule.select, layer)), None)


def prefix_rule(rules: Rules, layer: int) -> KvRule | None:
    """Where a block's keys and values of known tokens are before the prompt pass; None: where its cache is."""
    matching = (rule for rule in rules.kv if rule.select.names == PREFIX and matches(rule.select, PREFIX, layer))
    return next(matching, None)


def kv_rule(rules: Rules, layer: int) -> KvRule:
    """Return the rule of a cache that is not divided: that of its first key head."""
    return _first(rules.kv, "kv", "keys", layer)


def places(
    rules: Rules, op: str, layer: int | None, phase: Phase, extent: int, axis: Axis
) -> tuple[Slice[ComputeRule], ...]:
    """Return the devices that run operation `op` of block `layer`, by rows or heads; neighbours on one device are
    one."""
    result = _covering(rules, rules.compute, "compute", _leading(op), layer, extent, axis, phase)
    if len(result) == 1:
        return result
    merged: list[Slice[ComputeRule]] = []
    for piece in result:
        if merged and merged[-1].rule.device == piece.rule.device:
            piece = Slice(piece.rule, merged.pop().start, piece.stop)
        merged.append(piece)
    return tuple(merged)


def device_of(rules: Rules, op: str, layer: int | None, phase: Phase) -> str:
    """Return the device of an operation that is not divided: that of its first row."""
    return _first(rules.compute, "compute", _leading(op), layer, phase).device


def _leading(op: str) -> str:
    """Undivided attention runs where its scores do; a rule for `attention` covers them."""
    return "scores" if op == "attention" else op


def _in_phase(rule: _Rule, phase: Phase | None) -> bool:
    return phase is None or getattr(rule, "phase", None) in (None, phase)


def _first(among: Sequence[RuleT], where: str, name: str, layer: int | None, phase: Phase | None = None) -> RuleT:
    """Return the rule that decides about the first row or head."""
    for rule in among:
        part = rule.select.part
        if matches(rule.select, name, layer) and _in_phase(rule, phase) and (part is None or part.start == 0):
            return rule
    raise _uncovered(where, name, layer)


def _covering(
    rules: Rules,
    among: Sequence[RuleT],
    where: str,
    name: str,
    layer: int | None,
    extent: int,
    axis: Axis,
    phase: Phase | None = None,
) -> tuple[Slice[RuleT], ...]:
    """Return what `_searched` finds `among` some rules, or found before in a block that is alike."""
    if not isinstance(rules, KnownRules):
        return _searched(_reaching(among, layer), where, name, layer, extent, axis, phase)
    first = layer if layer is None else rules.first_alike[layer]
    key = (where, name, first, extent, axis, phase)
    if key not in rules.slices:
        candidates = rules.reaching(among, where, first, name)
        rules.slices[key] = _searched(candidates, where, name, first, extent, axis, phase)
    return rules.slices[key]


def _searched(
    among: Iterable[tuple[int, RuleT]],
    where: str,
    name: str,
    layer: int | None,
    extent: int,
    axis: Axis,
    phase: Phase | None,
) -> tuple[Slice[RuleT], ...]:
    """Return the pieces of 0 <= i < extent with the first rule that covers each, of those that reach into the block.
    Raises BadInputError for a gap."""
    left = [(0, extent)]
    pieces: list[Slice[RuleT]] = []
    for index, rule in among:
        if not left:
            break
        if _named(rule.select.names, name) and _in_phase(rule, phase):
            part = rule.select.part
            if part is None and not pieces:
                return (Slice(rule, 0, extent),)
            if part is not None:
                _check_part(part, axis, extent, f"{where}.{index}.select.part", name)
            taken = [(0, extent)] if part is None else [(part.start, part.stop)]
            pieces += [Slice(rule, *piece) for piece in _common(left, taken)]
            left = list(_without(left, taken[0]))
    if left:
        raise _uncovered(where, name, layer)
    return tuple(sorted(pieces, key=lambda piece: piece.start))


def _uncovered(where: str, name: str, layer: int | None) -> BadInputError:
    place = name if layer is None else f"{name} of block {layer}"
    return BadInputError(f"no rule covers {place}", field=where, remedy="add a last rule that selects *")


def _check_part(part: Part, axis: Axis, extent: int, field: str, name: str) -> None:
    if part.axis != axis:
        message, remedy = f"{name} is divided by {axis}", f"select {axis}"
        raise BadInputError(message, field=f"{field}.axis", value=part.axis, remedy=remedy)
    if part.stop > extent:
        remedy = f"end the part at {extent} or before"
        raise BadInputError(f"{name} has {extent} {axis}", field=f"{field}.stop", value=part.stop, remedy=remedy)


def _common(left: list[tuple[int, int]], taken: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    for start, stop in left:
        for first, last in taken:
            if max(start, first) < min(stop, last):
                yield max(start, first), min(stop, last)


def _without(left: list[tuple[int, int]], taken: tuple[int, int]) -> Iterator[tuple[int, int]]:
    first, last = taken
    for start, stop in left:
        yield from ((a, b) for a, b in ((start, min(stop, first)), (max(start, last), stop)) if a < b)
