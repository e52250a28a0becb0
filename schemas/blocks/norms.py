"""Describes norms: of hidden states, of heads, of whole projections."""

from typing import Literal

from helmsman.schemas.base import Fraction, Frozen


class Norm(Frozen):
    """A root-mean-square or layer norm, y = x / rms(x) * w.

    `offset`: weights are stored around zero, y = x / rms(x) * (1 + w); `weight`: whether there are any; `bias`: whether
    something is added."""

    kind: Literal["rms", "layer"] = "rms"
    eps: Fraction
    weight: bool = True
    bias: bool = False
    offset: bool = False

    def elements(self, width: int) -> int:
        """Return how many values it stores for vectors of `width`."""
        return width * (self.weight + self.bias)


class QueryKeyNorm(Frozen):
    """The norm of queries and keys: of every head, or of all heads of a token together, before or after rotation."""

    norm: Norm
    over: Literal["head", "projection"] = "head"
    place: Literal["before-rotation", "after-rotation"] = "before-rotation"
