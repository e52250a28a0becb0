"""Rules that say which tensors of a file hold which of ours, and how their rows lie."""

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

Layout = Literal["rows", "turns", "heads", "latent"]
"""How the rows of several of our tensors lie in one of the file: one tensor after the other, row by row in turns, or
head by head in turns; of `latent` attention so too, every head of the first tensor transposed."""

Form = Literal["matrix", "transposed", "taps", "column", "per-head"]
"""The shape in the file: as ours; columns first; (channels, 1, taps); (length, 1); (1, 1, length, 1)."""

EXPERT = "{expert}"
"""Stands in a name for the number of an expert, where a file has a tensor for each."""


class NameRule(NamedTuple):
    """Says that the rows of tensors `ours` are together those of the file's `files`, in order; one of them is single.

    Names without a part (`q`) stand for weight and bias alike; those with one (`q.weight`) for it alone, and the file's
    name is complete then."""

    ours: tuple[str, ...]
    files: tuple[str, ...]
    layout: Layout = "rows"
    form: Form = "matrix"

    def complete(self) -> Iterator["NameRule"]:
        """Yield this rule with complete names: for weights, and for biases."""
        if "." in self.ours[0]:
            yield self
            return
        for part in ("weight", "bias"):
            ours = tuple(f"{name}.{part}" for name in self.ours)
            yield NameRule(ours, tuple(f"{name}.{part}" for name in self.files), self.layout, self.form)


class Root(NamedTuple):
    """Says where the names of a file begin: of tensors outside of blocks, of blocks (`{layer}`), and of the head."""

    ends: str
    blocks: str
    head: str = ""


class NameTable(NamedTuple):
    """Holds the names of an architecture: of several rules for a tensor, or several roots, the first is that of
    released files, and others count where a file has their names. `head`: of the output, under its own root."""

    roots: tuple[Root, ...]
    ends: tuple[NameRule, ...]
    blocks: tuple[NameRule, ...]
    head: tuple[NameRule, ...]


def plain(names: Mapping[str, str]) -> tuple[NameRule, ...]:
    """Return the rules of tensors that a file has as they are, by our names."""
    return tuple(NameRule((ours,), (file,)) for ours, file in names.items())


def fused(file: str, *ours: str, layout: Layout = "rows", form: Form = "matrix") -> NameRule:
    """Return the rule of a tensor that holds several of ours."""
    return NameRule(ours, (file,), layout, form)


def split(ours: str, *files: str, form: Form = "matrix") -> NameRule:
    """Return the rule of one of ours whose rows are spread evenly over several tensors."""
    return NameRule((ours,), files, "rows", form)


def shaped(ours: str, file: str, form: Form) -> NameRule:
    """Return the rule of a tensor that has another shape in the file."""
    return NameRule((ours,), (file,), "rows", form)
