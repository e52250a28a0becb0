"""Facts of a model's layers that serving is priced and bounded by: what a pass holds of a token, what a token leaves in
caches, what a request keeps whatever its length."""

from functools import lru_cache
from math import isclose, sqrt

from helmsman.lowering.bodies.recurrent import STATE_BYTES
from helmsman.lowering.common_attention import served_caches
from helmsman.lowering.layer_cache import keeps_states, state_of
from helmsman.lowering.row_values import layer_input_values
from helmsman.schemas.blocks.attention import Attention, CompressedAttention, LatentAttention
from helmsman.schemas.blocks.block import Body
from helmsman.schemas.blocks.feed_forward import Experts, FeedForward
from helmsman.schemas.blocks.recurrent import DeltaRule, StateSpace
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.model import Model


def held_values(model: Model) -> int:
    """Return values of a token that a pass holds at a time: hidden states and normed ones, what layers read beside
    them, and what the widest body holds."""
    return 2 * model.hidden + layer_input_values(model) + widest_body(model)


@lru_cache(maxsize=64)
def widest_body(model: Model) -> int:
    """Return values of a token that the widest body holds at a time: of attention queries, keys, values and what it
    gives, of a network both sides and their product, of experts those of all that are chosen."""
    return max(_held(model, body) for layout in model.layouts for body in layout.bodies)


def _held(model: Model, body: Body) -> int:
    match body.op:
        case Attention() as op:
            return (2 + op.output_gate) * op.q_width + op.k_width + op.v_width
        case LatentAttention() as op:
            return op.heads * (op.compared + op.cached_width + op.value_dim) + op.cached_width
        case CompressedAttention() as op:
            return 2 * op.heads * op.head_dim + op.query_rank
        case DeltaRule() as op:
            return op.channels + 3 * op.value_heads * op.value_dim
        case StateSpace() as op:
            return op.channels + 2 * op.inner + op.heads
        case FeedForward() as op:
            return (2 + op.gated) * op.width
        case Experts() as op:
            shared = 0 if op.shared is None else (2 + op.shared.gated) * op.shared.width
            return op.chosen * ((2 + op.gated) * op.width + model.hidden) + shared
        case _:
            return 4 * model.hidden


def query_width(model: Model) -> int:
    """Return values of all query heads of a token, of the layer that has most."""
    kinds = [body.op for layout in model.layouts for body in layout.bodies]
    widths = [op.q_width for op in kinds if isinstance(op, Attention)]
    return max([*widths, *(op.heads * op.cached_width for op in kinds if isinstance(op, LatentAttention))], default=0)


def cached_values(model: Model) -> int:
    """Return values of a token's keys and values in the layer that caches most. Raises BadInputError for caches that
    are not served."""
    return max(cache.values for cache in served_caches(model))


def layer_bytes(model: Model, tokens: int, fmt: StoredFormat) -> int:
    """Return bytes of so many tokens in the cache of the layer that has most. Raises BadInputError as `cached_values`
    does."""
    return max(cache.size(tokens * cache.heads, fmt) for cache in served_caches(model))


def token_bytes(model: Model, fmt: StoredFormat) -> int:
    """Return bytes of a token in the caches of all layers that have one, as our own devices allocate them."""
    return sum(cache.size(cache.heads, fmt) for cache in served_caches(model))


def state_bytes(model: Model, requests: int) -> int:
    """Return bytes of what mixers keep of so many requests, all of it in f32 as our own devices allocate it."""
    states = (state_of(model, layer) for layer in range(model.layers))
    return requests * STATE_BYTES * sum(state.numbers + state.inputs for state in states)


def host_attends(model: Model) -> bool:
    """Whether a host may attend beside an accelerator: where all layers have the same plain attention, to all that is
    past; dense models as published systems serve them."""
    if model.is_dense:
        return True
    if model.per_layer_table is not None:
        return False
    first, *others = (layout.attention for layout in model.layouts)
    return first is not None and _plain(first) and all(other == first for other in others)


def host_keeps(model: Model) -> bool:
    """Whether a host that does not attend may keep what an accelerator has of a request: of models that keep states,
    where all layers that cache anything cache as much of a token."""
    return (
        keeps_states(model)
        and len({(cache.heads, cache.key_dim, cache.value_dim) for cache in served_caches(model)}) == 1
    )


def _plain(op: Attention) -> bool:
    whole = op.window is None and op.chunk is None and op.cache_of is None
    special = op.sinks or op.output_gate or op.softcap is not None or op.values != "own"
    return whole and not special and isclose(op.scale * sqrt(op.head_dim), 1.0, rel_tol=1e-6)
