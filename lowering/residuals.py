"""Names the norms of a block and tells what they read: around residuals, and around bodies of their own norms."""

from collections.abc import Iterator
from typing import NamedTuple

from helmsman.lowering.tensor import Tensor
from helmsman.schemas.blocks.block import Block, Body, Residual
from helmsman.schemas.blocks.norms import Norm

PRE, POST, AFTER = "norm", "post_norm", "after_norm"
"""What norms are called before their number in the block: before bodies, after them, and after the sum."""


class NamedNorm(NamedTuple):
    """A norm of a block, by the operation that does it."""

    name: str
    norm: Norm


class NormedBody(NamedTuple):
    """A body with its own norms, where it has any."""

    body: Body
    pre: NamedNorm | None
    post: NamedNorm | None


class NormedResidual(NamedTuple):
    """A residual with its norms and bodies."""

    residual: Residual
    pre: NamedNorm | None
    bodies: tuple[NormedBody, ...]
    post: NamedNorm | None
    after: NamedNorm | None

    @property
    def norms(self) -> Iterator[NamedNorm]:
        """Yield all norms, in order of use."""
        own = (norm for body in self.bodies for norm in (body.pre, body.post))
        return (norm for norm in (self.pre, *own, self.post, self.after) if norm is not None)


def normed_residuals(block: Block) -> tuple[NormedResidual, ...]:
    """Return the residuals of a block, their norms numbered in order, every kind from 1."""
    numbers = {PRE: 0, POST: 0, AFTER: 0}

    def named(kind: str, norm: Norm | None) -> NamedNorm | None:
        if norm is None:
            return None
        numbers[kind] += 1
        return NamedNorm(f"{kind}{numbers[kind]}", norm)

    result = []
    for residual in block.residuals:
        pre = named(PRE, residual.pre)
        bodies = tuple([NormedBody(body, named(PRE, body.pre), named(POST, body.post)) for body in residual.bodies])
        post, after = named(POST, residual.post), named(AFTER, residual.after)
        result.append(NormedResidual(residual, pre, bodies, post, after))
    return tuple(result)


def norm_tensors(named: NamedNorm, layer: int | None, width: int) -> Iterator[Tensor]:
    """Yield what a norm stores of `width` values."""
    if named.norm.weight:
        yield Tensor(f"{named.name}.weight", named.name, layer, (width,))
    if named.norm.bias:
        yield Tensor(f"{named.name}.bias", named.name, layer, (width,))
