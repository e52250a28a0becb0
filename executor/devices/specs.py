"""The specifications of stages: their operations, and what these share. Keys as the native stage reads them
(csrc/bindings)."""

from typing import NotRequired, TypeAlias, TypedDict, final

from helmsman.executor.devices.operations import AnyOperation
from helmsman.schemas.formats import KvFormat
from helmsman.schemas.rounding import AttentionPrecision


class RowRoom(TypedDict):
    """Values of a row for which the workspace has room at least: the most of any layout of the model, so that rows have
    the same places in all of its stages.

    `wide`: a norm, or what attention gives; `inner`: all other values of a body; `columns`: the widest input of a
    linear layer; `heads`: of paged attention; `scores`: of divided attention."""

    wide: int
    inner: int
    columns: int
    heads: int
    scores: int


class StageSpec(TypedDict):
    """The parts of every stage."""

    hidden: int
    vocab: int
    batch: int
    capacity: int
    """Tokens each sequence's cache can hold."""
    max_tokens: int
    """Most tokens per sequence in one pass."""
    chunk_rows: NotRequired[int]
    """Rows (sequences x tokens) of prompts that pass through at a time; default 512."""
    kv_format: KvFormat
    """q8_0: not with divided attention."""
    paged: bool
    """Caches are rings: position p lies in row p % capacity, and attention can be done by `Queue.attend` in several
    calls; the operation `attention` itself only while past + tokens is at most the capacity."""
    context: NotRequired[int]
    """Positions there are: rows of cos, sin, positions and kept rows. Default, and unless paged: the capacity."""
    last: NotRequired[int]
    """Tokens at the end of each sequence for which the head chooses: default 1, more of passes in one piece that verify
    drafts."""
    attention_activations: AttentionPrecision
    """The format to which `attention` rounds queries, keys, values and its own weights where a sequence has several
    tokens."""
    room: RowRoom
    blocks: int
    """Layers of which it has operations."""
    operations: list[AnyOperation]


@final
class UniformSpec(StageSpec):
    """Of a stage whose sequences advance together, by as many tokens each."""


@final
class RaggedSpec(StageSpec):
    """Of a stage for `Ragged` passes: of up to max_tokens rows, of which up to `sequences` yield logits. batch is 1,
    capacity the rows of a KV head's caches, all sequences together, context the positions there are."""

    sequences: int
    passing: int
    """Rows of caches behind those: passing_keys and passing_values."""


AnySpec: TypeAlias = UniformSpec | RaggedSpec
"""Ragged ones have the key `sequences`."""
