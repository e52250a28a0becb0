"""Runs a synthetic stage, for what only a running stage shows: the cost of small operations and of lookups.

A stage with random weights runs prompts and steps; its own time stamps say what each operation took. Attention of
prompts (`prompt_attention.py`), hand-overs and requests are timed on it, too."""

from collections.abc import Iterator, Sequence

import numpy as np

from helmsman.executor._kernels import Arena, Buffer, Pool, Stage, packed_size
from helmsman.executor.devices.memory import arena_beside, view
from helmsman.executor.devices.specs import UniformSpec
from helmsman.executor.devices.tensors import Linear, NormVectors
from helmsman.executor.profile.samples import StageSamples
from helmsman.executor.stages.dense import DenseBlock, uniform
from helmsman.executor.stages.dimensions import dimensions
from helmsman.lowering.buffers import chunk_rows
from helmsman.lowering.operation import Formats, Operation
from helmsman.lowering.ops import operations
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.blocks.positions import Rope
from helmsman.schemas.dense_model import DenseModel
from helmsman.schemas.described import described
from helmsman.schemas.formats import Format, size_of
from helmsman.schemas.rounding import AttentionPrecision

MODEL = described(
    DenseModel(
        name="profile",
        family="qwen3",
        layers=3,
        hidden=1536,
        heads=12,
        kv_heads=6,
        head_dim=128,
        ffn=3072,
        vocab=16384,
        max_context=4096,
        activation="silu",
        gated=True,
        norm="rms",
        norm_eps=1e-6,
        position=Rope(theta=1e4, rotary_dim=128),
        qk_norm=True,
    )
)
KV_FORMAT: Format = "bf16"
FORMATS = Formats("bf16", KV_FORMAT, "f32")
TOKENS = (1, 32, 128, 256)
ROUNDS = 5
_BYTES = 256 << 20
"""Room for the stage's weights, caches and workspace."""
SMALL = ("norm", "append")
"""Kinds whose time is overhead and activation traffic."""


def measure_stage(pool: Pool) -> StageSamples:
    """Run the synthetic stage for every prompt length, several times."""
    arena = arena_beside(_BYTES)
    spec, samples = _spec(arena), StageSamples()
    stage = Stage(pool, spec, _workspace(arena, spec), 0)
    for tokens in TOKENS:
        for _ in range(ROUNDS):
            for op, seconds in _run(stage, arena, tokens):
                _record(samples, op, tokens, seconds)
    return samples


def synthetic_stage(pool: Pool) -> Stage:
    """That stage on `pool`, in memory of its own."""
    return next(synthetic_stages(pool, ["f32"]))


def synthetic_stages(pool: Pool, precisions: Sequence[AttentionPrecision]) -> Iterator[Stage]:
    """Yield that stage on `pool` for each precision of the attention of prompts, all with the same weights, caches and
    workspace, which hold the values of a prompt of `chunk_rows` tokens."""
    arena = arena_beside(_BYTES)
    spec = _spec(arena)
    workspace = _workspace(arena, spec)
    for precision in precisions:
        stage = Stage(pool, {**spec, "attention_activations": precision}, workspace, 0)
        for _ in _run(stage, arena, chunk_rows()):
            pass
        yield stage


def _workspace(arena: Arena, spec: UniformSpec) -> Buffer:
    return arena.alloc(Stage.workspace_size(spec), "workspace")


def attention_flops(tokens: int) -> int:
    """FLOPs of one block's attention over a prompt of `tokens`."""
    return next(op.flops for op in _operations(tokens) if op.kind == "attention")


def lookup_bytes(tokens: int) -> int:
    """Bytes of table rows that a prompt of `tokens` reads."""
    return next(op.weight_bytes for op in _operations(tokens) if op.kind == "lookup")


def _record(samples: StageSamples, op: Operation, tokens: int, seconds: float) -> None:
    if op.kind in SMALL and op.layer is not None:
        samples.small.setdefault(tokens, []).append((op.activation_bytes, seconds))
    elif op.kind == "lookup":
        samples.lookup.setdefault(tokens, []).append(seconds)


def _run(stage: Stage, arena: Arena, tokens: int) -> Iterator[tuple[Operation, float]]:
    source, target = arena.alloc(4 * tokens, "ids"), arena.alloc(64, "id")
    view(source, np.int32)[:] = np.random.default_rng(tokens).integers(0, MODEL.vocab, tokens)
    stamps = np.zeros(len(stage.ops) + 1)
    stage.run(source, target, tokens, 0, stamps.data)
    return zip(_operations(tokens), np.diff(stamps).tolist(), strict=True)


def _operations(tokens: int) -> Sequence[Operation]:
    return operations(MODEL, Iteration(0, "prefill", 1, tokens, tokens), FORMATS)


def _spec(arena: Arena) -> UniformSpec:
    rng = np.random.default_rng(5)
    context = MODEL.max_context
    angles = np.outer(np.arange(context), 1e4 ** -np.linspace(0, 1, 64, endpoint=False))
    head = _linear(arena, rng, MODEL.vocab, MODEL.hidden)
    return uniform(
        {
            **dimensions(MODEL),
            "attention": "fused",
            "attention_activations": "f32",
            "batch": 1,
            "capacity": context,
            "context": context,
            "paged": False,
            "max_tokens": max(chunk_rows(), *TOKENS),
            "kv_format": KV_FORMAT,
            "rotary_dim": MODEL.dense.head_dim,
            "cos": np.cos(angles).astype(np.float32).data,
            "sin": np.sin(angles).astype(np.float32).data,
            "embedding": head,
            "looked_up": False,
            "positions": None,
            "blocks": [_block(arena, rng) for _ in range(MODEL.layers)],
            "final_norm": _norm(MODEL.hidden),
            "sequences": 0,
            "passing": 0,
            "head": head,
        }
    )


def _block(arena: Arena, rng: np.random.Generator) -> DenseBlock:
    shape = MODEL.dense
    h, q, kv, f = shape.hidden, shape.q_width, shape.kv_width, shape.ffn
    cache = size_of(MODEL.max_context * kv, FORMATS.kv)
    return {
        "norm1": _norm(h),
        "q": _linear(arena, rng, q, h),
        "k": _linear(arena, rng, kv, h),
        "v": _linear(arena, rng, kv, h),
        "q_norm": _norm(shape.head_dim),
        "k_norm": _norm(shape.head_dim),
        "o": _linear(arena, rng, h, q),
        "norm2": _norm(h),
        "gate": _linear(arena, rng, f, h),
        "up": _linear(arena, rng, f, h),
        "down": _linear(arena, rng, h, f),
        "keys": arena.alloc(cache, "keys"),
        "values": arena.alloc(cache, "values"),
    }


def _norm(width: int) -> NormVectors:
    return {"weight": np.ones(width, np.float32).data, "bias": None}


def _linear(arena: Arena, rng: np.random.Generator, rows: int, columns: int) -> Linear:
    """Small random bf16 weights (bits 0x3c00 to 0x3cff, either sign: about 0.01)."""
    buffer = arena.alloc(packed_size("bf16", rows, columns), "weights")
    bits = rng.integers(0x3C00, 0x3D00, 65521, np.uint16) | (rng.integers(0, 2, 65521, np.uint16) << 15)
    view(buffer, np.uint16)[:] = np.resize(bits, buffer.size // 2)
    return {"weight": buffer, "format": "bf16", "rows": rows, "columns": columns, "bias": None}
