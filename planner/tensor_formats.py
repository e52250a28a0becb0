"""Exceptions to the rules of a placement for tensors that are kept in formats of their own."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby

from helmsman.lowering.placement import Placed
from helmsman.lowering.rules import Slice, homes
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import tensors
from helmsman.schemas.formats import StoredFormat
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
