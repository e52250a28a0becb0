"""The contract of the native module. Sizes in bytes, times in seconds (CLOCK_MONOTONIC), shapes row-major.

Weights of a linear layer are *packed*: 16 rows interleaved, `[ceil(rows/16)][columns][16]`, rows padded with
zeros, so that one thread reads one strictly ascending stream. Activations and accumulation are f32.
Every call releases the GIL. All buffers are 64-byte aligned."""

from collections.abc import Sequence
from typing import Literal, TypedDict

from typing_extensions import Buffer as SupportsBuffer

Format = Literal["f32", "f16", "bf16"]

def isa() -> str:
    """The instruction set in use: avx512, avx2 or portable."""

def supported_isas() -> list[str]:
    """What this processor can run, best first; always ends with portable."""

def select_isa(name: str) -> None:
    """Force an instruction set for all kernels from now on. Raises ValueError when unsupported."""

class Pool:
    """Persistent threads, one pinned to each CPU of `cpus`; they spin shortly between calls, then sleep."""

    def __init__(self, cpus: Sequence[int]) -> None: ...
    @property
    def threads(self) -> int: ...

class Buffer:
    """A piece of an Arena; supports the buffer protocol (writable bytes)."""

    @property
    def size(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Arena:
    """A device's bounded memory. Pages are reserved at once, touched when used, huge pages advised."""

    def __init__(self, capacity: int) -> None: ...
    @property
    def capacity(self) -> int: ...
    @property
    def used(self) -> int: ...
    def alloc(self, size: int, what: str) -> Buffer:
        """A zeroed buffer. Raises MemoryError naming what, size, used and capacity when it does not fit."""

def packed_size(fmt: Format, rows: int, columns: int) -> int:
    """Bytes of a packed matrix."""

def pack(source: SupportsBuffer, source_format: Format, target: Buffer, fmt: Format, rows: int, columns: int) -> None:
    """Convert (round to nearest even) and pack a row-major (rows, columns) matrix."""

def linear(
    pool: Pool,
    fmt: Format,
    weights: Buffer,
    rows: int,
    columns: int,
    x: SupportsBuffer,
    y: SupportsBuffer,
    tokens: int,
) -> None:
    """y[tokens][rows] = x[tokens][columns] W^T, f32 in and out."""

def time_linear(
    pool: Pool, fmt: Format, weights: Sequence[Buffer], rows: int, columns: int, tokens: int, repeats: int
) -> list[float]:
    """Seconds of each of `repeats` products, walking through `weights` in turn, inside one parallel region."""

def time_attention(
    pool: Pool,
    fmt: Format,
    kv: Sequence[tuple[Buffer, Buffer]],
    heads: int,
    kv_heads: int,
    head_dim: int,
    capacity: int,
    context: int,
    repeats: int,
) -> list[float]:
    """Seconds of decode attention of one sequence at `context`, walking through `kv` (K, V) in turn."""

def time_read(pool: Pool, buffer: Buffer, repeats: int, piece: int = 0) -> list[float]:
    """Seconds of a plain read of the whole buffer by all threads.

    `piece` 0: each thread reads one contiguous share; otherwise the buffer is cut into pieces of that many
    bytes, which are visited in the order that inference visits matrices, each shared by all threads."""

class Norm(TypedDict):
    weight: SupportsBuffer
    """f32 (hidden,), or (head_dim,) for QK norms."""
    bias: SupportsBuffer | None

class Linear(TypedDict):
    weight: Buffer
    format: Format
    rows: int
    columns: int
    bias: SupportsBuffer | None
    """f32 (rows,)."""

class Block(TypedDict):
    norm1: Norm
    q: Linear
    k: Linear
    v: Linear
    q_norm: Norm | None
    k_norm: Norm | None
    o: Linear
    norm2: Norm
    gate: Linear | None
    up: Linear
    down: Linear
    keys: Buffer
    """(batch, kv_heads, capacity, head_dim) in the KV format."""
    values: Buffer

class StageSpec(TypedDict):
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    norm: Literal["rms", "layer"]
    norm_eps: float
    activation: Literal["silu", "relu", "gelu", "gelu_tanh"]
    batch: int
    capacity: int
    """Tokens each sequence's cache can hold."""
    max_tokens: int
    """Most tokens per sequence in one pass."""
    kv_format: Format
    rotary_dim: int
    """0: no rotation."""
    cos: SupportsBuffer | None
    """f32 (capacity, rotary_dim / 2)."""
    sin: SupportsBuffer | None
    embedding: Linear | None
    """The token table, packed like a linear layer of `vocab` rows (a tied head shares it)."""
    positions: SupportsBuffer | None
    """f32 (capacity, hidden): learned positions of tokens 0, 1, ..."""
    blocks: list[Block]
    final_norm: Norm | None
    head: Linear | None

class Stage:
    """All consecutive operations of one device as one native call per pass.

    `ops` are named as lowering names them (`embedding`, `3.q`), `first_layer` numbering the first block."""

    @staticmethod
    def workspace_size(spec: StageSpec) -> int:
        """Bytes of scratch that a stage with this spec needs."""

    def __init__(self, pool: Pool, spec: StageSpec, workspace: Buffer, first_layer: int) -> None: ...
    @property
    def ops(self) -> list[str]: ...
    def run(self, source: Buffer, target: Buffer, tokens: int, past: int, stamps: SupportsBuffer) -> None:
        """One pass: every sequence advances by `tokens` on top of `past` cached ones.

        source: int32 (batch, tokens) ids with an embedding, else f32 (batch, tokens, hidden).
        target: with a head int32 (batch,) greedy ids, else f32 (batch, tokens, hidden).
        stamps: f64 (len(ops) + 1): start, then the end of every operation."""

    def logits(self) -> memoryview:
        """f32 (batch, vocab) of the last pass; the stage must have a head."""

class CopyEngine:
    """A DMA engine on a thread of its own: moves bytes at `rate` after `latency`, one copy at a time."""

    def __init__(self, rate: float, latency: float, cpu: int) -> None: ...
    def submit(self, target: Buffer, target_offset: int, source: Buffer, source_offset: int, size: int) -> int:
        """Queue a copy; returns its ticket. Copies finish in the order they were submitted."""

    def wait(self, ticket: int) -> tuple[float, float]:
        """Block until the copy is done; its start and end."""
