"""Where a Hugging Face checkpoint, or a GGUF file, keeps each of our tensors."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import prod

from helmsman.hwdb.file_names.checkpoints import checkpoint_table
from helmsman.hwdb.file_names.gguf import gguf_table
from helmsman.hwdb.file_names.rule import EXPERT, Form, Layout, NameRule, NameTable, Root
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import tensors
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.model import Model


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor of the file: its `name` and the tensors of ours whose rows it holds, in order.

    `layout`, `form`: how rows of several lie, and its shape. `expert`: which expert's part of ours it holds alone;
    `pieces`: over how many tensors of the file the rows of ours are spread evenly, of which it is number `piece`."""

    name: str
    parts: tuple[Tensor, ...]
    layout: Layout = "rows"
    form: Form = "matrix"
    expert: int | None = None
    piece: int = 0
    pieces: int = 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Return rows of all parts together, then the columns they share, as the file has them."""
        if self.layout == "latent":
            latent = self.parts[-1].shape[-1]
            return sum(part.elements for part in self.parts) // latent, latent
        stacked = self.parts[0].stacked
        lead = self.parts[0].shape[:1] if stacked and self.expert is None else ()
        rows = sum(part.shape[stacked] for part in self.parts) // self.pieces
        columns = self.parts[0].shape[stacked + 1 :]
        match self.form:
            case "transposed":
                return (*lead, *columns, rows)
            case "taps":
                return (rows, 1, *columns)
            case "column":
                return (rows, 1)
            case "per-head":
                return (1, 1, rows, 1)
        return (*lead, rows, *columns)

    @property
    def elements(self) -> int:
        """Return the number of its values."""
        return prod(self.shape)

    def first_row(self, tensor: Tensor) -> int:
        """Return the row of the file's tensor at which `tensor` begins."""
        before = self.parts[: self.parts.index(tensor)]
        return sum(part.shape[0] for part in before)

    def share(self, tensor: Tensor) -> float:
        """Return which part of its values are those of `tensor`."""
        return tensor.elements / sum(part.elements for part in self.parts)


def part_with(stored: Sequence[StoredTensor], row: int) -> StoredTensor:
    """Return which of the tensors of a file that hold one of ours, in order, has its row `row`."""
    if len(stored) == 1:
        return stored[0]
    ends = accumulate(part.shape[0] for part in stored)
    return next(part for part, end in zip(stored, ends, strict=True) if row < end)


def file_name(family: str, tensor: Tensor) -> str:
    """Return the name under which a checkpoint of `family` stores `tensor`: for phi3 the fused tensor it is part of;
    for one of several, the first."""
    return _single_name(checkpoint_table(family, tensor.stacked), tensor)


def gguf_name(family: str, tensor: Tensor) -> str:
    """Return the name under which a GGUF file stores `tensor`; such files have no family with learned positions.

    Raises BadInputError for a family that GGUF does not have."""
    return _single_name(_gguf_table(family, tensor.stacked), tensor)


def _gguf_table(family: str, routed: bool) -> NameTable:
    table = gguf_table(family, routed)
    if table is None:
        remedy = "choose a model of another family"
        raise BadInputError("GGUF has no names for this family", field="model.family", value=family, remedy=remedy)
    return table


def _single_name(table: NameTable, tensor: Tensor) -> str:
    layer = "" if tensor.layer is None else str(tensor.layer)
    for prefix, rules in _placed_rules(table, table.roots[0], tensor):
        for rule in rules:
            for complete in rule.complete():
                if tensor.name in complete.ours:
                    return prefix.replace("{layer}", layer) + complete.files[0].replace(EXPERT, "0")
    raise KeyError(tensor.name)


def _placed_rules(table: NameTable, root: Root, tensor: Tensor) -> Iterator[tuple[str, Sequence[NameRule]]]:
    if tensor.layer is not None:
        yield root.blocks, table.blocks
    else:
        yield root.ends, table.ends
        yield root.head, table.head


TensorKey = tuple[str, int | None]
"""The name of a tensor of ours, and its block."""

Names = Callable[[str, Tensor], str]
"""Either `file_name` or `gguf_name`: which kind of files is meant."""


@lru_cache(maxsize=8)
def stored_tensors(
    model: Model, name_of: Names = file_name, present: frozenset[str] | None = None
) -> tuple[StoredTensor, ...]:
    """Return all tensors of the model's files in order of use, called as `name_of` says; a tied head is not stored.

    `present`: the names that a file has, where there is one: of several ways to store a tensor the first that it has
    counts, or else the first of all. Raises BadInputError for a family without names."""
    naming = _Naming(_table_of(model, name_of), present)
    order = {tensor: number for number, tensor in enumerate(tensors(model))}
    result = [stored for members in _by_block(model) for stored in naming.stored(members)]
    return tuple(sorted(result, key=lambda stored: order[stored.parts[0]]))


def possible_names(model: Model, name_of: Names = file_name) -> frozenset[str]:
    """Return all names under which files may have tensors of the model, whichever way they store them; of experts that
    lie apart the first's. Raises BadInputError for a family without names."""
    naming = _Naming(_table_of(model, name_of), None)
    rules = (rule for members in _by_block(model) for rule in naming.applicable(members))
    return frozenset(name.replace(EXPERT, "0") for rule in rules for name in rule.files)


@lru_cache(maxsize=16)
def names_by_tensor(model: Model, name_of: Names = file_name) -> Mapping[TensorKey, tuple[frozenset[str], ...]]:
    """Return by name and block of a tensor of ours the names that hold it together, first as released files have it,
    then as others may. Raises BadInputError for a family without names."""
    naming = _Naming(_table_of(model, name_of), None)
    result: dict[TensorKey, tuple[frozenset[str], ...]] = {}
    for members in _by_block(model):
        for rule in naming.applicable(members):
            for name in rule.ours:
                key = name, members[name].layer
                result[key] = (*result.get(key, ()), frozenset(rule.files))
    return result


def _table_of(model: Model, name_of: Names) -> NameTable:
    if name_of is gguf_name:
        return _gguf_table(model.family, model.routed)
    return checkpoint_table(model.family, model.routed)


def _by_block(model: Model) -> Iterable[Mapping[str, Tensor]]:
    """Return the stored tensors of every block, and of the ends, by name."""
    places: dict[int | None, dict[str, Tensor]] = {}
    for tensor in tensors(model):
        if tensor.tied_to is None:
            places.setdefault(tensor.layer, {})[tensor.name] = tensor
    return places.values()


class _Naming:
    """Chooses among the names of one table by what a file has."""

    def __init__(self, table: NameTable, present: Collection[str] | None) -> None:
        self._table, self._present = table, present
        self._root = self._chosen_root()

    def _chosen_root(self) -> Root:
        for root in self._table.roots if self._present else ():
            start = root.blocks.partition("{layer}")[0]
            if any(name.startswith(start) for name in self._present or ()):
                return root
        return self._table.roots[0]

    def stored(self, members: Mapping[str, Tensor]) -> Iterator[StoredTensor]:
        """Yield the file's tensors for those of one block, or of the ends."""
        left = dict(members)
        rules = list(self.applicable(members))
        if self._present is not None:
            rules.sort(key=lambda rule: not self._has(rule))
        for rule in rules:
            if all(name in left for name in rule.ours):
                yield from _expanded(rule, tuple(left.pop(name) for name in rule.ours))
        if left:
            tensor = next(iter(left.values()))
            raise AssertionError(f"no name for {tensor.name} of block {tensor.layer}")

    def applicable(self, members: Mapping[str, Tensor]) -> Iterator[NameRule]:
        """Yield the rules with the file's whole names that are about some members."""
        first = next(iter(members.values()))
        for prefix, rules in _placed_rules(self._table, self._root, first):
            start = prefix.replace("{layer}", str(first.layer))
            for rule in rules:
                for complete in rule.complete():
                    if all(name in members for name in complete.ours):
                        yield complete._replace(files=tuple(start + name for name in complete.files))

    def _has(self, rule: NameRule) -> bool:
        return self._present is not None and rule.files[0].replace(EXPERT, "0") in self._present


def _expanded(rule: NameRule, parts: tuple[Tensor, ...]) -> Iterator[StoredTensor]:
    """Yield the tensors of a rule: one, or one for each expert, or for each piece."""
    pieces = len(rule.files)
    for piece, name in enumerate(rule.files):
        if EXPERT not in name:
            yield StoredTensor(name, parts, rule.layout, rule.form, None, piece, pieces)
            continue
        for expert in range(parts[0].shape[0]):
            whole = name.replace(EXPERT, str(expert))
            yield StoredTensor(whole, parts, rule.layout, rule.form, expert, piece, pieces)
