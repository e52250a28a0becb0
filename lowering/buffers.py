"""Buffers of a device: what an executor needs beside weights and KV."""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache

from helmsman.lowering.layer_cache import cache_of
from helmsman.lowering.operation import PANEL
from helmsman.lowering.placement import Placed
from helmsman.lowering.row_values import layer_input_values, row_values
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import block_tensors, tensors
from helmsman.schemas.blocks.attention import Attention, CompressedAttention, LatentAttention
from helmsman.schemas.model import Model
from helmsman.schemas.workload import Workload

CHUNK_ROWS = 512
"""A stage computes a prompt in chunks of at most so many rows (sequences x tokens)."""

DIVIDED_ROWS = 128
"""A stage with divided attention computes chunks of at most so many rows: it holds the attention scores of every row of
a chunk over all positions of the cache, heads x capacity values a row."""

EXPANDED_VALUES = 1 << 22
"""Values of a quantised matrix, or of keys, that are in f32 at a time, for a product that reads nothing else: caches of
GPUs hold them."""

GATHERED_VALUES = 1 << 24
"""Keys that are gathered from blocks at a time, or scores of them, where attention reads no blocks by itself."""

_ATTENDING = Attention, LatentAttention, CompressedAttention
"""Mixers that have heads of queries, and may rotate them."""

_SMALL_BUFFERS = 1 << 20
"""Token ids, and the padding of every buffer to 64 bytes."""


def chunk_rows(divided: bool = False) -> int:
    """Return the most rows (sequences x tokens) of a chunk of a prompt; `divided`: where attention is divided."""
    return min(CHUNK_ROWS, DIVIDED_ROWS) if divided else CHUNK_ROWS


def chunk_tokens(batch: int, divided: bool = False) -> int:
    """Return the most tokens of a chunk of a prompt, of each of `batch` sequences; `divided`: where attention is
    divided."""
    return max(1, chunk_rows(divided) // batch)


def chunk_of(plan: Placed) -> int:
    """Return the most tokens of a chunk of a prompt under a plan, of each sequence of its batch."""
    return chunk_tokens(plan.workload.batch, plan.schedule.attention == "divided")


def expanded_values(rows: int, columns: int) -> int:
    """Return values of a quantised matrix that are expanded at a time, where they are before they are read: whole
    panels."""
    panels = min(-(-rows // PANEL), max(1, EXPANDED_VALUES // (PANEL * columns)))
    return panels * PANEL * columns


def expansion_bytes(matrices: Iterable[Tensor]) -> int:
    """Return bytes where the f32 values of quantised weights are before they are read, as one operation's take the
    place of another's."""
    return 4 * max((expanded_values(*tensor.shape[-2:]) for tensor in matrices if tensor.quantised), default=0)


@lru_cache(maxsize=64)
def model_expansion_bytes(model: Model) -> int:
    """Return the same where all weights of a model are quantised."""
    return expansion_bytes(tensors(model))


def expanded_positions(values: int) -> int:
    """Return positions of a cache in 8 bits that are expanded at a time, where the keys of one are so many `values`."""
    return max(1, EXPANDED_VALUES // values)


def cache_expansion_bytes(model: Model, workload: Workload) -> int:
    """Return bytes where the f32 keys and values of a part of a cache in 8 bits are while it is attended to."""
    values = workload.batch * max(_key_widths(model), default=1)
    return 2 * 4 * values * min(workload.context, expanded_positions(values))


def gathered_positions(sequences: int, rows: int, values: int) -> int:
    """Return positions of each of `sequences` that are gathered at a time, where the keys of one are so many `values`
    and so many `rows` of queries see it."""
    return max(1, GATHERED_VALUES // (sequences * max(rows, values)))


def gathering_bytes(model: Model, context: int, sequences: int) -> int:
    """Return bytes where gathered keys and values are while they are attended to, and scores with what is made of
    them."""
    heads, width = _query_heads(model), max(_key_widths(model), default=1)
    most = context * max(sequences * max(heads, width), CHUNK_ROWS * heads)
    return 5 * 4 * min(GATHERED_VALUES, most)


def held_together(ahead: bool, batches: int, prompt_tokens: int, chunk: int) -> bool:
    """Whether a stage's streamed weights are all there at once: where they come `ahead` or are waited for, serve
    several `batches`, or several chunks of a prompt, of `chunk` tokens of a sequence each."""
    return ahead or batches > 1 or prompt_tokens > chunk


def buffer_bytes(
    model: Model, workload: Workload, *, divided: bool = False, batches: int = 1, paged: bool = False
) -> int:
    """Return bytes beside weights and KV on one device, an upper bound over all stages: for each of the `batches` that
    go through a pass together the workspace, the hidden states of a whole prompt and what layers read beside them, and
    what is kept in f32."""
    hidden = 4 * workload.batch * workload.new_tokens * (model.hidden + layer_input_values(model))
    capacity = workload.context
    shape = model, workload.batch, workload.new_tokens
    workspace = workspace_bytes(*shape, divided=divided, capacity=capacity, paged=paged)
    return batches * (workspace + hidden) + _kept(model, workload)


def kept_bytes(model: Model, workload: Workload) -> int:
    """Return bytes beside weights in a memory whose devices compute nothing, an upper bound: what is kept in f32."""
    return _kept(model, workload) + _SMALL_BUFFERS


def _kept(model: Model, workload: Workload) -> int:
    """Return the bytes of what is kept in f32 whatever the format of the weights: tables of rotations or positions,
    norms and biases."""
    return 4 * (workload.context * _position_values(model) + _vector_values(model))


@lru_cache(maxsize=64)
def _position_values(model: Model) -> int:
    """Return values of a position in tables of rotations and positions."""
    learned = model.hidden if model.embedding.positions is not None else 0
    bodies = (body.op for layout in model.layouts for body in layout.bodies)
    ropes = dict.fromkeys(op.rope for op in bodies if isinstance(op, _ATTENDING))
    return learned + sum(rope.rotary_dim for rope in ropes if rope is not None)


@lru_cache(maxsize=64)
def _vector_values(model: Model) -> int:
    total = 0
    for letter, count in Counter(model.pattern).items():
        of_block = block_tensors(model, model.pattern.index(letter))
        total += count * sum(tensor.elements for tensor in of_block if len(tensor.shape) == 1)
    return total


def workspace_bytes(
    model: Model, batch: int, tokens: int, *, divided: bool = False, capacity: int | None = None, paged: bool = False
) -> int:
    """Return bytes of scratch for a pass of `batch` sequences by `tokens`, an upper bound over all stages.

    The closed form of `Stage.workspace_size` (f32): the hidden states, normed states or attention outputs,
    q, k, v or the two sides of the FFN, and a packed copy of a layer's input, for one chunk of rows; logits.
    `divided` attention adds every head's scores over the cache's `capacity` positions (default: the most that the
    model can have); attention to pages keeps two values of every head, `paged`."""
    rows = batch * min(tokens, chunk_tokens(batch, divided))
    positions = model.max_context if capacity is None else capacity
    heads = _query_heads(model)
    scores = heads * -(-positions // 16) * 16 if divided else 0
    running = 2 * heads if paged else 0
    return 4 * (rows * (row_values(model, rows) + scores + running) + batch * model.vocab) + _SMALL_BUFFERS


def score_bytes(model: Model, rows: int, positions: int) -> int:
    """Return bytes of the f32 scores of all heads of a layer, of so many rows over so many positions, which are there
    at once where attention is several operations."""
    return 4 * rows * positions * _query_heads(model)


def ragged_workspace_bytes(model: Model, rows: int, outputs: int) -> int:
    """Return the same for a pass of `rows` of several requests, which go through in one piece, `outputs` of which yield
    logits."""
    values = row_values(model, rows) + layer_input_values(model)
    return 4 * (rows * values + outputs * model.vocab) + _SMALL_BUFFERS


@lru_cache(maxsize=64)
def _query_heads(model: Model) -> int:
    """Return query heads of the layer that has most."""
    bodies = (body.op for layout in model.layouts for body in layout.bodies)
    return max((op.heads for op in bodies if isinstance(op, _ATTENDING)), default=1)


def _key_widths(model: Model) -> Iterator[int]:
    """Yield values of a token's keys in every layer that keeps any."""
    for letter in dict.fromkeys(model.pattern):
        cache = cache_of(model, model.pattern.index(letter))
        if cache is not None:
            yield cache.heads * cache.key_dim
