"""Exceptions to the rules of a placement for tensors that are kept in formats of their own."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import groupby

from helmsman.lowering.placement import Placed, Placement, known
from helmsman.lowering.rules import Slice, homes
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import block_tensors, parameters, tensors
from helmsman.schemas.formats import StoredFormat, size_of
from helmsman.schemas.model import Model
from helmsman.schemas.plan import LayerRange, Part, Residence, Select

Formats = Mapping[tuple[str, int | None], StoredFormat]
"""By name and block of a tensor, the format that it is kept in."""


def exceptions(placed: Placed, formats: Formats) -> Iterator[Residence]:
    """The rules that keep every tensor in its own format where those of `placed` say another, before which they go: one
    for each name, home and format."""
    groups: dict[tuple[str, bool, Part | None, str], list[tuple[int | None, Residence]]] = {}
    for tensor in tensors(placed.model):
        fmt = formats.get((tensor.tied_to or tensor.name, tensor.layer))
        for piece in homes(placed, tensor) if fmt is not None else ():
            if piece.rule.format != fmt:
                rule, written = _kept_in(piece.rule, fmt)
                key = tensor.name, tensor.layer is None, _part(tensor, piece), written
                groups.setdefault(key, []).append((tensor.layer, rule))
    for (name, _, part, _), members in groups.items():
        layers = [layer for layer, _ in members if layer is not None]
        select = Select(names=name, layers=tuple(_ranges(layers)) or None, part=part)
        yield members[0][1].model_copy(update={"select": select})


def with_own_formats(placement: Placement, formats: Formats) -> Placement:
    """Return the placement with every tensor in its own format."""
    own = tuple(exceptions(known(placement), formats)) if formats else ()
    return replace(placement, residence=(*own, *placement.residence)) if own else placement


@lru_cache(maxsize=256)
def _kept_in(rule: Residence, fmt: StoredFormat) -> tuple[Residence, str]:
    """Return the rule for a tensor that is kept in `fmt` where `rule` says another, and its JSON."""
    own = rule.model_copy(update={"format": fmt, "expanded": None, "select": Select()})
    return own, own.model_dump_json()


def _part(tensor: Tensor, piece: Slice[Residence]) -> Part | None:
    whole = (piece.start, piece.stop) == (0, tensor.shape[0])
    return None if whole else Part(axis=tensor.axis, start=piece.start, stop=piece.stop)


def _ranges(layers: Sequence[int]) -> Iterator[LayerRange]:
    """Runs of neighbours."""
    for _, run in groupby(enumerate(layers), lambda pair: pair[1] - pair[0]):
        blocks = [layer for _, layer in run]
        yield LayerRange(start=blocks[0], stop=blocks[-1] + 1)


def format_size(fmt: StoredFormat) -> int:
    """Return bytes of 65,536 values in a format, whole blocks of every one: they tell which of two formats is
    smaller."""
    return size_of(1 << 16, fmt)


def size_in(tensor: Tensor, formats: Formats, otherwise: StoredFormat) -> int:
    """Return bytes of a tensor in its own format, or in that of those that have none."""
    return tensor.size(formats.get((tensor.tied_to or tensor.name, tensor.layer), otherwise))


def weights_size(model: Model, formats: Formats, otherwise: StoredFormat) -> int:
    """Return bytes of all weights, each in its own format, or in that of those that have none."""
    if not formats:
        return size_of(parameters(model), otherwise)
    return sum(size_in(tensor, formats, otherwise) for tensor in tensors(model) if tensor.tied_to is None)


def told_apart(model: Model, formats: Formats, most: int | None = None, experts_alone: bool = False) -> Model:
    """Return the model with a letter of its own for every kind of block whose tensors (`experts_alone`: whose experts)
    are kept in other formats; the same model where there are more than `most`."""
    kinds = [(letter, _kept(model, layer, formats, experts_alone)) for layer, letter in enumerate(model.pattern)]
    firsts: dict[tuple[str, tuple[StoredFormat | None, ...]], int] = {}
    for layer, kind in enumerate(kinds):
        firsts.setdefault(kind, layer)
    if len(firsts) == len(model.layouts) or (most is not None and len(firsts) > most):
        return model
    letters = {kind: chr(ord("a") + number) for number, kind in enumerate(firsts)}
    layouts = tuple(model.blocks[layer].model_copy(update={"letter": letters[kind]}) for kind, layer in firsts.items())
    return model.model_copy(update={"layouts": layouts, "pattern": "".join(letters[kind] for kind in kinds)})


def _kept(model: Model, layer: int, formats: Formats, experts_alone: bool) -> tuple[StoredFormat | None, ...]:
    kept = (tensor for tensor in block_tensors(model, layer) if tensor.stacked or not experts_alone)
    return tuple(formats.get((tensor.name, layer)) for tensor in kept)


def formats_from(formats: Formats, first: int) -> Formats:
    """Return the formats of a model that begins with the `first` block, and has the same tensors beside blocks."""
    if not first:
        return formats
    kept = ((name, layer, fmt) for (name, layer), fmt in formats.items() if layer is None or layer >= first)
    return {(name, layer if layer is None else layer - first): fmt for name, layer, fmt in kept}


def of_pattern(model: Model, formats: Formats, pattern: str) -> Formats:
    """Return the formats of the model whose blocks have these letters, each as the first of `model` with its letter."""
    if not formats:
        return formats
    of_letter: dict[str, list[tuple[str, StoredFormat]]] = {letter: [] for letter in pattern}
    firsts = {model.pattern.index(letter): letter for letter in of_letter}
    ends = {key: fmt for key, fmt in formats.items() if key[1] is None}
    for (name, layer), fmt in formats.items():
        if layer in firsts:
            of_letter[firsts[layer]].append((name, fmt))
    return {**ends, **{(name, at): fmt for at, letter in enumerate(pattern) for name, fmt in of_letter[letter]}}
