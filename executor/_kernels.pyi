"""The contract of the native module. Sizes in bytes, times in seconds (CLOCK_MONOTONIC), shapes row-major.

Weights of a linear layer are *packed*: 16 rows interleaved, `[ceil(rows/16)][columns][16]`, rows padded with
zeros, so that one thread reads one strictly ascending stream. Activations and accumulation are f32.
Weights in quantised formats are multiplied as they are stored (csrc/formats/format.h, panels.h): GGUF's blocks, and q8
and q4, groups of 64 columns with a scale and a minimum in f16. What activations are rounded to is told to each
product: a precision is for many tokens; a few (up to 16; of quantised weights on AVX2 up to 4), which meet weights as
these are read, take f32 where weights are bf16, and 16 bits where they are quantised, unless f32 was asked for.
A row of a cache in q8_0 is the codes (int8) of all its values, then the scales (f16) of 32 each, rounded as GGUF's
Q8_0: head_dim is a multiple of 32.
Where a method takes the parts of any device (`devices.parts`), it does what is said there, and raises TypeError for
parts that are not native.
Every call releases the GIL. All buffers are 64-byte aligned."""

from collections.abc import Callable, Sequence
from typing import Literal

from typing_extensions import Buffer as SupportsBuffer

from helmsman.executor.devices import parts
from helmsman.executor.devices.iterations import (
    ExpertLookup,
    Joining,
    Lanes,
    LayerCopies,
    Seconds,
    SubBatch,
    WeightMove,
)
from helmsman.executor.devices.move_calls import Move
from helmsman.executor.devices.parts import KvSpan, Region
from helmsman.executor.devices.specs import StageSpec
from helmsman.schemas.formats import Format, KeptFormat, KvFormat, Precision, StoredFormat
from helmsman.schemas.rounding import AttentionPrecision

def isa() -> str:
    """The instruction set in use: amx, avx512bf16, avx512vnni, avx512, avx2, neondot, neon or portable."""

def supported_isas() -> list[str]:
    """What this processor can run, its default first; always ends with portable."""

def emulated_isas() -> list[str]:
    """What select_isa takes besides, for tests and accuracy: units this processor lacks, imitated and slower."""

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
    def part(self, offset: int, size: int) -> Buffer:
        """Bytes of it as a buffer of their own; kernels want `offset` to be a multiple of 64."""

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

def packed_size(fmt: StoredFormat, rows: int, columns: int) -> int:
    """Bytes of a packed matrix. Rows [a, b), both multiples of 16, of any format are the bytes from
    packed_size(fmt, a, columns) to packed_size(fmt, b, columns). A sixteenth of 16 rows is a row as it is looked up.
    Raises ValueError where GGUF's blocks do not divide `columns`."""

def pack(
    source: SupportsBuffer, source_format: StoredFormat, target: Buffer, fmt: StoredFormat, rows: int, columns: int
) -> None:
    """Convert and pack a row-major (rows, columns) matrix; a quantised source is rows of blocks, as GGUF files have.

    Between plain formats values are rounded to nearest even. The same quantised format is moved bit for bit. q8_0 and
    q4_0 are rounded as GGUF's reference does, q4_k and q6_k with scales searched for least squares; q8 and q4 (groups
    of 64 columns, the last may be shorter) with the minimum rounded down, so that quantising what was dequantised
    changes nothing. When quantising, values beyond f16 count as its largest.
    Raises FloatingPointError where a value is not finite, or becomes infinite in a plain `fmt`."""

def finite(source: SupportsBuffer, fmt: StoredFormat, rows: int, columns: int) -> bool:
    """Whether all values of row-major rows are numbers; of quantised ones the scales of all blocks."""

def unpack(source: Buffer, fmt: StoredFormat, target: SupportsBuffer, rows: int, columns: int) -> None:
    """A packed matrix to row-major f32 (rows, columns)."""

def quantise(source: SupportsBuffer, target: SupportsBuffer, fmt: StoredFormat, rows: int, columns: int) -> None:
    """Row-major f32 (rows, columns) to rows of blocks of bytes, as GGUF files have them, rounded as `pack` does."""

def decompress(pool: Pool, source: Buffer, target: Buffer, fmt: Format, rows: int, columns: int) -> None:
    """Packed q4 to a packed matrix in `fmt`, by all threads of the pool."""

def q4_row_size(width: int) -> int:
    """Bytes of a row of a cache in 4-bit groups."""

def compress_rows(source: SupportsBuffer, target: Buffer, rows: int, width: int) -> None:
    """f32 (rows, width) to rows in 4-bit groups, as `append` keeps them: per group of 64 values of a row (the last may
    be shorter) a scale and a minimum (f16), then per 16 values 8 bytes, byte i holding the codes of values i (low) and
    i + 8. The minimum is rounded down; NaN and what is below f16 count as its lowest value."""

def turn_rows(
    pool: Pool,
    source: Buffer,
    source_offset: int,
    source_strides: tuple[int, int, int],
    target: Buffer,
    target_offset: int,
    target_strides: tuple[int, int, int],
    counts: tuple[int, int, int, int],
    stored: KeptFormat,
    fmt: Format,
    transposed: bool,
) -> None:
    """Rows of a cache to what attention reads, by all threads of the pool.

    counts: sequences, heads, tokens, head_dim. source_strides: bytes from sequence to sequence, head to head, token to
    token. Transposed, the target has a line of tokens per dimension, its last stride from line to line; else a row per
    token. `stored` is q4 or `fmt`. Nothing beyond `tokens` is written."""

def linear(
    pool: Pool,
    fmt: StoredFormat,
    weights: Buffer,
    rows: int,
    columns: int,
    x: SupportsBuffer,
    y: SupportsBuffer,
    tokens: int,
    activations: Precision = "int16",
) -> None:
    """y[tokens][rows] = x[tokens][columns] W^T, f32 in and out.

    `activations`: how precise x is at least where many tokens meet the weights. Quantised weights: x has an error of
    half a 32767th (int16) or half a 127th (int8) of the largest magnitude of its 32 columns; a NaN or infinity in
    x gives NaN in all of its rows of y; 32 columns below 1e-30 count as zero. bf16: x, and the values of quantised
    weights, are rounded to bf16."""

ActivationName = Literal["silu", "relu", "gelu", "gelu_tanh", "relu2", "swiglu_oai"]
"""What is between the matrices of a network; swiglu_oai: gate * sigmoid(1.702 gate) * (up + 1)."""

GateName = Literal["none", "sigmoid", "silu"]
"""By what a gate multiplies: nothing, 1 / (1 + exp(-z)), or z / (1 + exp(-z))."""

def route(
    pool: Pool,
    logits: SupportsBuffer,
    ids: SupportsBuffer,
    weights: SupportsBuffer,
    rows: int,
    experts: int,
    chosen: int,
    score: Literal["softmax", "sigmoid", "sqrt-softplus", "none"] = "softmax",
    weighted: Literal["scores", "softmax-of-chosen"] = "scores",
    correction: SupportsBuffer | None = None,
    groups: int = 0,
    kept: int = 0,
    best_two: bool = True,
    normalised: bool = True,
    eps: float = 0.0,
    scaling: float = 1.0,
    expert_scale: SupportsBuffer | None = None,
) -> None:
    """Choose of every row of f32 logits (rows, experts) `chosen` experts: ids (int32), ascending, and f32 weights.

    Scores + `correction` (experts,) are compared, of which the lower index wins between equals; with `groups`, only
    experts of the `kept` best groups. Weights are scores, or the softmax of the chosen logits, divided by their sum +
    `eps` where `normalised`, times `scaling`, times `expert_scale` (experts,). A row with NaN or infinity has weights
    of NaN. Raises ValueError where so many cannot be chosen."""

def experts(
    pool: Pool,
    gate: Sequence[Buffer | None],
    up: Sequence[Buffer | None],
    down: Sequence[Buffer | None],
    fmt: StoredFormat,
    down_fmt: StoredFormat,
    hidden: int,
    width: int,
    ids: SupportsBuffer,
    weights: SupportsBuffer,
    x: SupportsBuffer,
    y: SupportsBuffer,
    tokens: int,
    chosen: int,
    activation: ActivationName = "silu",
    limit: float = ...,
    biases: Sequence[SupportsBuffer | None] = ...,
    input_scaled: bool = False,
    activations: Precision = "int16",
    accumulate: bool = False,
    passes: int = 1,
) -> list[float]:
    """Compute f32 y[tokens][hidden] = (or +=) the sum of every token's experts, down(activation(gate x, up x)).

    `gate` (empty: not gated), `up` (width, hidden) and `down` (hidden, width): packed matrices of every expert, None
    where no row chooses it. `ids` (int32) and `weights`: [passes][tokens][chosen]; ids of a row ascend, a negative one
    is left out. `limit`: to what gate (above only) and up are cut. `biases`: of gate, up and down, (experts, rows)
    each. `input_scaled`: weights multiply inputs instead of outcomes. Returns the seconds of each pass."""

def activate_within(
    activation: ActivationName, limit: float, gate: SupportsBuffer | None, up: SupportsBuffer, n: int
) -> None:
    """up[n] = activation(gate[n]) * up[n], or activation(up[n]), of gate cut to at most `limit` and up to +-limit."""

def gate(kind: GateName, x: SupportsBuffer, z: SupportsBuffer, rows: int, width: int, by_row: bool = False) -> None:
    """Multiply f32 x (rows, width) by the gate of z: of the same shape, or one number per row."""

def multiply(x: SupportsBuffer, factors: SupportsBuffer, n: int) -> None:
    """Multiply f32 x by as many factors."""

def rope_pairs(x: SupportsBuffer, cos: SupportsBuffer, sin: SupportsBuffer, out: SupportsBuffer, half: int) -> None:
    """Turn pairs 2i and 2i + 1 of f32 x (2 * half,) by angles whose f32 cosines and sines are (half,); out may be x."""

def gated_norm(
    x: SupportsBuffer,
    z: SupportsBuffer | None,
    weight: SupportsBuffer | None,
    out: SupportsBuffer,
    groups: int,
    width: int,
    eps: float,
    kind: GateName = "none",
    gate_first: bool = False,
    own_weights: bool = False,
) -> None:
    """Write rows (groups, width) over the root of their mean square + eps, times `weight` and the gate of z.

    `gate_first`: what is gated is normed. `weight`: (width,) of every row, or (groups, width) where `own_weights`;
    None: ones. out may be x."""

def convolve(
    pool: Pool,
    x: SupportsBuffer,
    weight: SupportsBuffer,
    bias: SupportsBuffer | None,
    state: SupportsBuffer,
    tokens: int,
    channels: int,
    taps: int,
    silu: bool,
) -> None:
    """Convolve f32 x (tokens, channels) of one sequence over time in place, each channel for itself.

    `weight`: (taps, channels), the token itself last; 2 to 4 taps. `state`: (taps - 1, channels), the inputs before,
    replaced by the last ones."""

def decays(
    raw: SupportsBuffer,
    bias: SupportsBuffer,
    a_log: SupportsBuffer,
    dt: SupportsBuffer | None,
    decay: SupportsBuffer,
    heads: int,
    per: int = 1,
    longest: float = ...,
) -> None:
    """dt (heads, per) = softplus(raw + bias), at most `longest`, and decay = -exp(a_log[head]) * dt."""

def recur(
    pool: Pool,
    q: SupportsBuffer,
    k: SupportsBuffer,
    v: SupportsBuffer,
    decay: SupportsBuffer,
    rate: SupportsBuffer,
    skip: SupportsBuffer | None,
    state: SupportsBuffer,
    out: SupportsBuffer,
    shape: Sequence[int],
    sequences: int,
    tokens: int,
    per_dimension: bool = False,
    corrects: bool = True,
    normalised: bool = True,
    query_scale: float = 1.0,
    tiled: bool = False,
) -> None:
    """Run linear recurrences of value heads: a gated delta rule, or, where it does not correct, a state space.

    S = exp(decay) S; S += k (rate (v - S^T k))^T, without the product where it does not correct; then out =
    S^T (query_scale q) + skip v. `shape`: key heads, value heads, key dimensions, value dimensions; every key head
    serves as many value heads, which follow each other, or are as far apart as there are key heads (`tiled`). All f32:
    q and k (sequences, tokens, key heads, key dimensions), v and out (.., value heads, value dimensions), decay (..,
    value heads), `per_dimension` (.., value heads, key dimensions), rate (.., value heads), skip (value heads,), state
    (sequences, value heads, key dimensions, value dimensions). `normalised`: q and k are divided by the root of the sum
    of their squares + 1e-6. More than 8 tokens pass in chunks of 64."""

InputKind = Literal["floats", "tiled", "rounded", "words", "small_words", "bytes", "pairs"]
"""What a product multiplies: f32 numbers, the same in blocks as tiles take them, these rounded to bf16, 16-bit numbers,
those of no more than 8 bits, 8-bit numbers four by four, or bf16 numbers two by two."""

def product_kind(fmt: StoredFormat, tokens: int, activations: Precision = "int16") -> InputKind:
    """What products of `tokens` rows with weights in `fmt` multiply, with the instruction set in use."""

def times_taken(pool: Pool, jobs: Sequence[int], least: int, most: int) -> list[int]:
    """How often each item of each job is taken when threads divide jobs of so many items one after the other, without
    waiting between them: once. Items of all jobs are side by side."""

def peak_products(kind: InputKind) -> int:
    """Products of numbers that a thread does in a round of `time_peak`; 0 where the instruction set has no such
    units."""

def time_peak(pool: Pool, kind: InputKind, rounds: int, repeats: int) -> list[float]:
    """Seconds of each of `repeats` times `rounds` rounds of products by every thread, in registers alone.

    Raises ValueError where the instruction set has no such units."""

def time_linear(
    pool: Pool,
    fmt: StoredFormat,
    weights: Sequence[Buffer],
    rows: int,
    columns: int,
    tokens: int,
    repeats: int,
    activations: Precision = "int16",
) -> list[float]:
    """Seconds of each of `repeats` products, walking through `weights` in turn, inside one parallel region."""

def time_attention(
    pool: Pool,
    fmt: KvFormat,
    kv: Sequence[tuple[Buffer, Buffer]],
    heads: int,
    kv_heads: int,
    head_dim: int,
    capacity: int,
    context: int,
    repeats: int,
    tokens: int = 1,
    activations: AttentionPrecision = "f32",
    window: int = 0,
    softcap: float = 0.0,
) -> list[float]:
    """Seconds of attention of the last `tokens` of one sequence of `context` tokens, causal, walking through `kv`
    (K, V) in turn. `activations`: what factors are rounded to where there are several tokens; `window`: positions that
    each of them sees, `softcap`: what caps scores; 0: all, nothing."""

def time_spans(
    pool: Pool,
    fmt: KvFormat,
    layers: Sequence[Sequence[KvSpan]],
    heads: int,
    kv_heads: int,
    head_dim: int,
    batch: int,
    repeats: int,
    tokens: int = 1,
    activations: AttentionPrecision = "f32",
    window: int = 0,
    softcap: float = 0.0,
) -> list[float]:
    """Seconds of attention of the last `tokens` of `batch` sequences, causal, to all positions of spans, walking
    through `layers` in turn; the rest as in `time_attention`. One token sees what spans hold, whatever its window."""

def time_scores(
    pool: Pool,
    fmt: Format,
    kv: Sequence[tuple[Buffer, Buffer]],
    heads: int,
    kv_heads: int,
    head_dim: int,
    capacity: int,
    context: int,
    batch: int,
    repeats: int,
) -> list[float]:
    """Seconds of divided attention's scores for `batch` rows at `context`, walking through `kv`; only K is used,
    (batch, kv_heads, head_dim, capacity) each."""

def time_wv(
    pool: Pool,
    fmt: Format,
    kv: Sequence[tuple[Buffer, Buffer]],
    heads: int,
    kv_heads: int,
    head_dim: int,
    capacity: int,
    context: int,
    batch: int,
    repeats: int,
) -> list[float]:
    """The same of the weighted sum of values; only V is used, (batch, kv_heads, capacity, head_dim) each."""

def time_read(pool: Pool, buffer: Buffer, repeats: int, piece: int = 0) -> list[float]:
    """Seconds of a plain read of the whole buffer by all threads.

    `piece` 0: each thread reads one contiguous share; otherwise the buffer is cut into pieces of that many
    bytes, which are visited in the order that inference visits matrices, each shared by all threads."""

class Stage:
    """The operations of one device: all, or any consecutive range of them, as one native call.

    `ops` are named as lowering names them (`embedding`, `3.q`), `first_layer` numbering the first block."""

    @staticmethod
    def workspace_size(spec: StageSpec) -> int:
        """Bytes of scratch that a stage with this spec needs: lowering's `workspace_bytes`."""

    def __init__(self, pool: Pool, spec: StageSpec, workspace: parts.Buffer, first_layer: int) -> None: ...
    @property
    def ops(self) -> list[str]: ...
    @property
    def workspace(self) -> Buffer: ...
    def regions(self) -> dict[str, Region]:
        """Where hidden, normed, q, k, v, attended, gate, up and (divided) scores are in the workspace, all f32.

        The same for all stages of the same dimensions, batch, capacity, max_tokens and attention, however many rows
        a pass has. `scores` is (heads, capacity rounded up to 16) per row, after `softmax` the weights; `up` holds
        what the activation makes of it. normed and attended share memory, as do q, k, v and gate, up."""

    def run(
        self,
        source: Buffer | None,
        target: Buffer | None,
        tokens: int,
        past: int,
        stamps: SupportsBuffer,
        first: int = 0,
        last: int | None = None,
        start: int = 0,
        stop: int | None = None,
    ) -> None:
        """ops[first:last] of one pass: every sequence advances by `tokens` on top of `past` cached ones.

        source: int32 (batch, tokens) ids when the range begins with the embedding, else f32 (batch, tokens, hidden);
        None: activations are in the workspace. target: int32 (batch,) greedy ids when the range ends with the head,
        else f32 (batch, tokens, hidden), which may be the source; None: they stay in the workspace. After a part of o
        or down it gets that part's columns. start, stop: only these tokens of every sequence, in this call.
        stamps: f64 (last - first + 1): start, then the end of every operation.
        More tokens than max(1, chunk_rows // batch) pass in chunks: then source and target must be given, and the range
        begin and end where only the hidden states are live (ValueError otherwise)."""

    def attend(self, block: int, spans: Sequence[KvSpan], first: bool, last: bool, tokens: int, past: int) -> None:
        """Attention of a paged stage's block, over cached positions that are spread over several calls.

        The `tokens` new queries per sequence, at positions past, past + 1, ..., are where `append` left them; each
        sees what the spans hold of positions up to its own, in any order of spans and calls. `first` begins anew,
        `last` leaves in `attended` what the operation `attention` would; in between the largest scores, sums and
        unnormalised outputs are in the workspace. At most max(1, chunk_rows // batch) tokens. Exact but for f32
        rounding; a row that saw nothing becomes zero."""

    def logits(self) -> memoryview:
        """f32 (batch, vocab) of the last pass; the stage must have a head."""

class Event:
    """Something that happens once, until it is cleared."""

    def __init__(self) -> None: ...
    def clear(self) -> None: ...
    def signal(self) -> None:
        """It has happened now."""

    def wait(self) -> None:
        """Block until it is done."""

    @property
    def done(self) -> bool: ...
    @property
    def time(self) -> float:
        """Seconds when it was signalled. Raises ValueError before."""

class Queue:
    """A thread that does what was submitted, in order, like a stream of an accelerator.

    An item waits for its events, then runs; `times`: f64 (2,), filled with its start and end. After an item failed,
    later ones are skipped, but signal, until the error has been raised. Dropped with items pending, the one under
    way finishes and the others only signal."""

    def __init__(self, cpu: int = -1) -> None: ...
    def run(
        self,
        stage: parts.Stage,
        source: parts.Buffer | None,
        target: parts.Buffer | None,
        tokens: int,
        past: int,
        stamps: SupportsBuffer,
        first: int = 0,
        last: int | None = None,
        start: int = 0,
        stop: int | None = None,
        wait: Sequence[Event] = (),
        done: Event | None = None,
    ) -> None:
        """Stage.run; ids outside the vocabulary are found when it runs."""

    def attend(
        self,
        stage: parts.Stage,
        block: int,
        spans: Sequence[KvSpan],
        first: bool,
        last: bool,
        tokens: int,
        past: int,
        times: SupportsBuffer | None = None,
        wait: Sequence[Event] = (),
        done: Event | None = None,
    ) -> None: ...
    def attend_ragged(
        self,
        stage: parts.Stage,
        rows: Ragged,
        layer: int,
        times: SupportsBuffer | None = None,
        wait: Sequence[Event] = (),
        done: Event | None = None,
        rank: int | None = None,
    ) -> None:
        """`append` and attention of a layer, of rows of several sequences that are in the stage's workspace.

        `rank`: of those with a rank that follow each other, the lowest that need not wait is next."""

    def decompress(
        self,
        pool: Pool,
        source: parts.Buffer,
        target: parts.Buffer,
        fmt: Format,
        rows: int,
        columns: int,
        times: SupportsBuffer | None = None,
        wait: Sequence[Event] = (),
        done: Event | None = None,
    ) -> None: ...
    def copy_pieces(
        self,
        pool: Pool,
        copies: Sequence[tuple[parts.Buffer, SupportsBuffer]],
        times: SupportsBuffer | None = None,
        wait: Sequence[Event] = (),
        done: Event | None = None,
    ) -> None:
        """Of every buffer pieces, int64 (n, 3) target offset, source offset and bytes, to places of it that are apart
        from them."""

    def turn_rows(
        self,
        pool: Pool,
        source: parts.Buffer,
        source_offset: int,
        source_strides: tuple[int, int, int],
        target: parts.Buffer,
        target_offset: int,
        target_strides: tuple[int, int, int],
        counts: tuple[int, int, int, int],
        stored: KeptFormat,
        fmt: Format,
        transposed: bool,
        times: SupportsBuffer | None = None,
        wait: Sequence[Event] = (),
        done: Event | None = None,
    ) -> None: ...
    def call(
        self,
        function: Callable[[], object],
        times: SupportsBuffer | None = None,
        wait: Sequence[Event] = (),
        done: Event | None = None,
    ) -> None:
        """Calls a function of Python in its turn, which holds the GIL meanwhile; what it raises is a RuntimeError."""

    def read(
        self,
        file: DiskFile,
        file_offset: int,
        target: parts.Buffer,
        target_offset: int,
        size: int,
        times: SupportsBuffer | None = None,
        wait: Sequence[Event] = (),
        done: Event | None = None,
    ) -> None: ...
    def check(self) -> None: ...
    def synchronize(self) -> None: ...

class DiskFile:
    """A storage tier in a file. Offsets are multiples of 4096, sizes any; a write owns whole blocks of 4096.

    `direct` asks for O_DIRECT; where the file system refuses it, reads are buffered and dropped from the page
    cache afterwards. Memory that is not 4096-aligned goes through a bounce buffer. Raises OSError with errno and
    path; ValueError for bad ranges and files too small."""

    def __init__(self, path: str, size: int, direct: bool, create: bool) -> None: ...
    @property
    def direct(self) -> bool: ...
    @property
    def size(self) -> int: ...
    def write(self, offset: int, source: SupportsBuffer, size: int) -> None: ...
    def read(self, offset: int, target: Buffer, target_offset: int, size: int) -> None: ...

class CopyEngine:
    """A DMA engine: moves bytes at `rate` after `latency`, one copy at a time. Small ones are moved by whoever
    waits for them, others by a thread of its own.

    `ahead`: before other engines of its CPU; where no thread may take precedence, on any CPU instead."""

    def __init__(self, rate: float, latency: float, cpu: int, ahead: bool = False) -> None: ...
    def submit(
        self,
        target: parts.Buffer,
        target_offset: int,
        source: parts.Buffer,
        source_offset: int,
        size: int,
        wait: Sequence[Event] = (),
        done: Event | None = None,
        times: SupportsBuffer | None = None,
    ) -> int:
        """Queue a copy; returns its ticket. Copies finish in the order they were submitted.

        Its time begins when the events of `wait` are done, which later copies await too; `times`: f64 (2,)."""

    def submit_pieces(
        self,
        target: parts.Buffer,
        target_offset: int,
        source: parts.Buffer,
        source_offset: int,
        pieces: SupportsBuffer,
        wait: Sequence[Event] = (),
        done: Event | None = None,
        times: SupportsBuffer | None = None,
    ) -> int:
        """Like submit, for one or more `pieces`, int64 (n, 3): offsets from those of target and source, bytes."""

    def submit_strided(
        self,
        target: parts.Buffer,
        target_offset: int,
        target_strides: tuple[int, int],
        source: parts.Buffer,
        source_offset: int,
        source_strides: tuple[int, int],
        counts: tuple[int, int],
        size: int,
        wait: Sequence[Event] = (),
        done: Event | None = None,
        times: SupportsBuffer | None = None,
    ) -> int: ...
    def submit_lookup(
        self,
        target: parts.Buffer,
        target_offset: int,
        table: Buffer,
        fmt: StoredFormat,
        rows: int,
        columns: int,
        ids: Buffer,
        count: int,
        wait: Sequence[Event] = (),
        done: Event | None = None,
        times: SupportsBuffer | None = None,
    ) -> int:
        """Like submit, for `count` rows of a packed matrix, one after the other in the target, row-major;
        quantised rows as blocks.

        `ids`: int32, which rows, read when the copy begins; nothing is copied for those that the matrix lacks."""

    def wait(self, ticket: int) -> tuple[float, float]:
        """Block until the copy is done; its start and end."""

class Submissions:
    """What a pass hands to queues and copy engines, prepared once and submitted in order with every pass.

    `chunk`: number and size; of a pass's tokens only those from number x size on, `size` of them or what is left."""

    def __init__(self) -> None: ...
    def run(
        self,
        queue: Queue,
        stage: parts.Stage,
        source: parts.Buffer | None,
        target: parts.Buffer | None,
        stamps: SupportsBuffer,
        first: int,
        last: int,
        chunk: tuple[int, int],
        wait: Sequence[Event] = (),
        done: Event | None = None,
    ) -> None:
        """Queue.run of a chunk."""

    def move(
        self,
        engine: CopyEngine,
        move: Move,
        chunk: tuple[int, int],
        wait: Sequence[Event] = (),
        done: Event | None = None,
        times: SupportsBuffer | None = None,
    ) -> None:
        """CopyEngine.submit_strided, of so many bytes as follow from the tokens of a chunk."""

    def call(self, submit: Callable[[int, int], None]) -> None:
        """What only Python can submit, called with the tokens and the past of the whole pass."""

    def submit(self, tokens: int, past: int) -> None:
        """All of them, for `tokens` on top of `past`. Raises what the calls of the same purpose raise."""

class Ragged:
    """Rows of a pass over several sequences; int64 arrays, checked against each other, and copied.

    positions (rows,); sequences (n, 5): first row, tokens, past, first run, runs, where rows first, first + 1, ... are
    the tokens at positions past, past + 1, ...; runs (m, 3): position, count, and the row of caches where that position
    is, the next ones following; outputs (k,): rows whose logits are wanted; slots (n,): which of the states that
    operations keep is a sequence's own, by default the first. Rows of no sequence are rotated, but
    neither cached nor attended to."""

    def __init__(
        self,
        positions: SupportsBuffer,
        sequences: SupportsBuffer,
        runs: SupportsBuffer,
        outputs: SupportsBuffer,
        slots: SupportsBuffer | None = None,
    ) -> None: ...
    @property
    def rows(self) -> int: ...
    @property
    def positions(self) -> list[int]: ...
    @property
    def outputs(self) -> list[int]: ...
    @property
    def cached(self) -> list[int]:
        """By row, the row of caches; -1 for rows of no sequence."""

    @property
    def slots(self) -> list[int]:
        """By sequence, which of the states are its own."""

    @property
    def sequences(self) -> list[tuple[int, int, int, list[tuple[int, int, int]]]]:
        """First row, tokens, past, and runs: position, count, row of caches."""

class Cohort:
    """Requests whose attention the host does, a layer in an iteration, while the accelerator goes on.

    csrc/serving/cohort.h is what it does.
    `host`: a stage of their own; `kept`: in the accelerator's memory, `size` bytes for so many rows. `rise`: of several
    cohorts the host attends to first layers first (1), to last ones (-1), or as they come (0)."""

    def __init__(self, stage: parts.Stage, host: parts.Stage, kept: parts.Buffer, rows: int, rise: int = 0) -> None: ...
    @staticmethod
    def size(stage: parts.Stage, rows: int) -> int: ...
    @property
    def layer(self) -> int | None: ...
    @property
    def landed(self) -> bool: ...
    def wait(self) -> None: ...
    def reset(self) -> None:
        """Forget the token under way. Raises ValueError while something is."""

class StreamedWeights:
    """Weights that come over the link in every pass (csrc/serving/serving_weights.h).

    `operations`: (operation of the accelerator's stage, set of buffers, owner of what is there, moves) each; `ahead`:
    they come as soon as their set is free, else after what is before their operation; `together`: nothing begins before
    all that its owner brings is there. `table`: what the embedding has instead, packed, with its format, rows and
    columns, and where the rows of each sub-batch's tokens come."""

    def __init__(
        self,
        operations: Sequence[tuple[int, int, int, Sequence[WeightMove]]],
        ahead: bool,
        together: bool,
        table: tuple[parts.Buffer, StoredFormat, int, int, Sequence[parts.Buffer]] | None = None,
    ) -> None: ...

class ServingPass:
    """One iteration of serving, submitted as it is made (csrc/serving/serving.h).

    `swap_out`, then `swap_in`: copies before anything else of a layer; `fetch` and `store`: before and after attention,
    of prompts whose caches pass through; `joining`: cohorts by layer, each with its rows behind those of sub-batch 0,
    as its stage has them, which of the rows under way they are (none for a new token), whether the accelerator may
    wait for them, and whether they join sub-batch 1 instead and stay: then the first rows are behind those of cohorts
    before, and the second ones all of them that the host has. `lookups`: by block, of experts that are not all
    there."""

    def __init__(
        self,
        lanes: Lanes,
        layers: int,
        batches: Sequence[SubBatch],
        swap_out: LayerCopies | None = None,
        swap_in: LayerCopies | None = None,
        fetch: LayerCopies | None = None,
        store: LayerCopies | None = None,
        joining: Sequence[Joining] = (),
        weights: StreamedWeights | None = None,
        lookups: Sequence[ExpertLookup] = (),
    ) -> None: ...
    def wait(self) -> None: ...
    def chosen(self) -> list[int]: ...
    def seconds(self) -> Seconds: ...
    @property
    def joined(self) -> list[bool]: ...
