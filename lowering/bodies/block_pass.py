"""Makes the operations of a block in a pass: norms, products, and the sizes that all kinds of bodies share."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from helmsman.lowering.operation import Formats, Half, Operation
from helmsman.lowering.tensor import Tensor
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.formats import size_of
from helmsman.schemas.model import Model


class BlockPass(NamedTuple):
    """A block in a pass: `tensors` by the operation that reads them; `divided`: attention as scores, softmax and
    weighted values; `half`: that of the residual whose operations are made."""

    model: Model
    layer: int
    iteration: Iteration
    formats: Formats
    tensors: Mapping[str, Sequence[Tensor]]
    divided: bool = False
    half: Half = 0

    @property
    def tokens(self) -> int:
        """Return tokens of all sequences."""
        return self.iteration.batch * self.iteration.tokens

    def activations(self, values: int) -> int:
        """Return bytes of so many values of activations."""
        return size_of(values, self.formats.activations)

    def weights(self, name: str) -> tuple[Tensor, ...]:
        """Return the tensors that an operation reads."""
        return tuple(self.tensors.get(name, ()))

    def bytes_of(self, weights: Sequence[Tensor]) -> int:
        """Return bytes of tensors as they are stored."""
        return sum(tensor.size(self.formats.weights) for tensor in weights)

    def norm(self, name: str, inputs: tuple[str, ...], width: int | None = None) -> Operation:
        """Return a norm of every token's `width` values, by default its hidden state."""
        weights, values = self.weights(name), self.tokens * (width or self.model.hidden)
        out = self.activations(values)
        return self.vectors(name, inputs, weights, 2 * out, out, 4 * values)

    def vectors(
        self, name: str, inputs: tuple[str, ...], weights: tuple[Tensor, ...], moved: int, out: int, flops: int
    ) -> Operation:
        """Return work on vectors that reads and writes `moved` bytes of activations."""
        size = self.bytes_of(weights)
        place = self.layer + 1, self.layer, weights, self.tokens, size, 0, 0
        return Operation(name, "norm", *place, moved, out, flops, inputs=inputs, half=self.half)

    def linear(self, name: str, inputs: tuple[str, ...], tokens: int | None = None) -> Operation:
        """Return the product of a matrix with every token's values, or with those of `tokens`."""
        weights, tokens = self.weights(name), self.tokens if tokens is None else tokens
        rows, columns = weights[0].shape
        moved, out = self.activations(tokens * (rows + columns)), self.activations(tokens * rows)
        flops = 2 * tokens * rows * columns + rows * tokens * (len(weights) - 1)
        place = self.layer + 1, self.layer, weights, tokens, self.bytes_of(weights), 0, 0
        return Operation(
            name, "linear", *place, moved, out, flops, rows, columns=columns, inputs=inputs, half=self.half
        )


class Seen(NamedTuple):
    """What the tokens of one sequence attend to: pairs of tokens, and past and new ones whose keys are read."""

    pairs: int
    cached: int


def seen_by(iteration: Iteration, window: int | None = None, chunk: int | None = None) -> Seen:
    """Return what the new tokens of a sequence see: all before them and themselves; with a `window` the last tokens of
    it; with a `chunk` those of their own."""
    past, new, context = iteration.past, iteration.tokens, iteration.context
    if window is not None:
        return Seen(_within(context, window) - _within(past, window), min(context, new + window - 1))
    if chunk is not None:
        return Seen(_chunked(context, chunk) - _chunked(past, chunk), context - past // chunk * chunk)
    return Seen(new * past + new * (new + 1) // 2, context)


def chosen_by(iteration: Iteration, most: int) -> Seen:
    """Return what the new tokens of a sequence see where each chooses `most` of those before it and itself: which ones
    others choose as well is not known, so that no key is taken to be read for two of them until all are."""
    return seen_by(iteration, most)._replace(cached=min(iteration.context, iteration.tokens * most))


def _within(tokens: int, window: int) -> int:
    """Return the sum of min(i, window) over 1 <= i <= tokens."""
    growing = min(tokens, window)
    return growing * (growing + 1) // 2 + (tokens - growing) * window


def _chunked(tokens: int, chunk: int) -> int:
    """Return the sum of (i mod chunk) + 1 over 0 <= i < tokens."""
    whole, rest = divmod(tokens, chunk)
    return whole * chunk * (chunk + 1) // 2 + rest * (rest + 1) // 2
