"""Tells what a layer keeps of the tokens it has seen: keys and values that grow, and states that do not."""

from functools import lru_cache
from typing import NamedTuple

from helmsman.lowering.bodies.recurrent import STATE_BYTES, TAP_BYTES
from helmsman.schemas.blocks.attention import Attention, CompressedAttention, LatentAttention
from helmsman.schemas.blocks.recurrent import DeltaRule, ShortConvolution, StateSpace
from helmsman.schemas.formats import StoredFormat, rows_size
from helmsman.schemas.model import Model


class Pool(NamedTuple):
    """Entries that each stand for `ratio` tokens, of `width` values in all."""

    ratio: int
    width: int


class LayerCache(NamedTuple):
    """The cache of a layer: of every token, `heads` keys of `key_dim` values and as many of `value_dim` (0: none).

    Of latent attention the heads are copies of one. `reach`: tokens of a sequence that it holds at most, None: all;
    `pools`: entries that it holds beside."""

    heads: int
    key_dim: int
    value_dim: int
    reach: int | None = None
    pools: tuple[Pool, ...] = ()

    @property
    def values(self) -> int:
        """Return values of a token, keys and values together, entries apart."""
        return self.heads * (self.key_dim + self.value_dim)

    def width(self, what: str) -> int:
        """Return values of one head's `keys` or `values`."""
        return self.key_dim if what == "keys" else self.value_dim

    def tokens(self, context: int) -> int:
        """Return tokens of a sequence of `context` that are held, entries counted as tokens of as many values."""
        held = context if self.reach is None else min(context, self.reach)
        return held + -(-self.pooled(context) // self.key_dim)

    def pooled(self, context: int) -> int:
        """Return values of the entries that stand for `context` tokens of a sequence."""
        return sum(context // pool.ratio * pool.width for pool in self.pools)

    def entered(self, tokens: int) -> int:
        """Return values that so many new tokens add to entries, on average over a sequence."""
        return round(sum(tokens * pool.width / pool.ratio for pool in self.pools))

    def size(self, rows: int, fmt: StoredFormat) -> int:
        """Return bytes of keys and values of so many heads of tokens."""
        return sum(rows_size(rows, width, fmt) for width in (self.key_dim, self.value_dim) if width)


@lru_cache(maxsize=4096)
def cache_of(model: Model, layer: int) -> LayerCache | None:
    """Return the cache that a layer has; None where it has none of its own."""
    for body in model.blocks[layer].bodies:
        match body.op:
            case Attention() as op:
                return None if op.cache_of is not None else LayerCache(
                    op.kv_heads, op.head_dim, op.value_dim, op.reach
                )  # fmt: skip
            case LatentAttention() as op:
                own = op.indexer is not None and op.indexer.selects == "own"
                indexed = op.indexer.head_dim if op.indexer is not None and own else 0
                return LayerCache(op.cache_copies, op.cached_width + indexed, 0)
            case CompressedAttention() as op:
                return LayerCache(1, op.head_dim, 0, op.window, _pools(op))
    return None


def _pools(op: CompressedAttention) -> tuple[Pool, ...]:
    if op.ratio is None:
        return ()
    return (Pool(op.ratio, op.head_dim + (op.indexer.head_dim if op.indexer is not None else 0)),)


def owner(model: Model, layer: int) -> int:
    """Return the layer whose cache a layer reads: itself, or an earlier one."""
    attention = model.attention(layer)
    return layer if attention is None or attention.cache_of is None else attention.cache_of


@lru_cache(maxsize=64)
def shared_caches(model: Model) -> frozenset[int]:
    """Return the layers whose caches others read as well."""
    return frozenset(owner(model, layer) for layer in range(model.layers) if owner(model, layer) != layer)


@lru_cache(maxsize=1024)
def parts_caches(model: Model, blocks: int) -> bool:
    """Return whether some layer after the first `blocks` reads the cache of one of these."""
    return any(owner(model, layer) < blocks for layer in range(max(blocks, 0), model.layers))


def read_cache(model: Model, layer: int) -> LayerCache | None:
    """Return the cache that a layer reads, its own or an earlier layer's."""
    return cache_of(model, owner(model, layer))


class LayerState(NamedTuple):
    """The state of a layer: numbers of a recurrence, and inputs that a convolution over time sees again."""

    numbers: int
    inputs: int

    @property
    def size(self) -> int:
        """Return bytes of one sequence."""
        return STATE_BYTES * self.numbers + TAP_BYTES * self.inputs


@lru_cache(maxsize=4096)
def state_of(model: Model, layer: int) -> LayerState:
    """Return what a layer keeps of a sequence whatever its length."""
    numbers = inputs = 0
    for body in model.blocks[layer].bodies:
        match body.op:
            case DeltaRule() | StateSpace() as op:
                numbers, inputs = numbers + op.state_elements, inputs + (op.taps - 1) * op.channels
            case ShortConvolution() as op:
                inputs += (op.taps - 1) * model.hidden
    return LayerState(numbers, inputs)


@lru_cache(maxsize=64)
def keeps_states(model: Model) -> bool:
    """Whether any layer keeps a state, of the last token that it has seen."""
    return any(state_of(model, layer).size for layer in range(model.layers))


STATE_OPS = {"delta-rule": "delta", "state-space": "scan", "short-convolution": "conv"}
"""The operation that has the state, by kind of mixer."""


def state_op(model: Model, layer: int) -> str:
    """Return the operation on whose device a layer's state lives. Raises KeyError where it has none."""
    kinds = [body.op.kind for body in model.blocks[layer].bodies if body.op.kind in STATE_OPS]
    if not kinds:
        raise KeyError(layer)
    return STATE_OPS[kinds[0]]
