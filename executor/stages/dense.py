"""Stages of equal blocks of grouped-query attention and a dense network: their matrices and caches by slot.

What profiles and tests measure is written down so; `prepared` makes the operations of it."""

from collections.abc import Iterator
from typing import Literal, NotRequired, TypedDict

from helmsman.executor.devices.operations import AnyOperation, CacheUser, LinearOperation, NormKind, NormOperation
from helmsman.executor.devices.parts import Buffer
from helmsman.executor.devices.specs import AnySpec, RowRoom, UniformSpec
from helmsman.executor.devices.tensors import CacheBuffers, Linear, NormVectors, StoredHeads, Vector
from helmsman.lowering.buffers import chunk_rows
from helmsman.schemas.blocks.feed_forward import Activation
from helmsman.schemas.formats import KvFormat
from helmsman.schemas.rounding import AttentionPrecision


class DenseBlock(TypedDict):
    """One layer. What a stage never runs may be None."""

    norm1: NormVectors | None
    q: Linear | None
    k: Linear | None
    v: Linear | None
    q_norm: NormVectors | None
    k_norm: NormVectors | None
    o: Linear | None
    norm2: NormVectors | None
    gate: Linear | None
    up: Linear | None
    down: Linear | None
    keys: CacheBuffers
    values: CacheBuffers
    kept_keys: NotRequired[list[StoredHeads]]
    kept_values: NotRequired[list[StoredHeads]]
    passing_keys: NotRequired[Buffer | None]
    passing_values: NotRequired[Buffer | None]
    scores_heads: NotRequired[tuple[int, int] | None]
    wv_heads: NotRequired[tuple[int, int] | None]


class Dimensions(TypedDict):
    """The dimensions that all blocks have in common."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    norm: NormKind
    norm_eps: float
    activation: Activation
    gated: NotRequired[bool]
    """Whether blocks have the operation `gate`. Default: whether a block here has one."""


class DenseSpec(Dimensions):
    """The parts of a stage, as `StageSpec` has those of the same names."""

    batch: int
    capacity: int
    max_tokens: int
    kv_format: KvFormat
    paged: NotRequired[bool]
    context: NotRequired[int]
    attention: NotRequired[Literal["fused", "divided"]]
    """fused (default): one operation `attention`; divided: `scores`, `softmax`, `wv`."""
    attention_activations: NotRequired[AttentionPrecision]
    rotary_dim: int
    cos: Vector | None
    sin: Vector | None
    embedding: Linear | None
    looked_up: NotRequired[bool]
    positions: Vector | None
    blocks: list[DenseBlock]
    final_norm: NormVectors | None
    head: Linear | None
    sequences: NotRequired[int]
    """Makes it a stage for ragged passes."""
    passing: NotRequired[int]


LINE = 16
"""Positions to whose multiples scores are kept."""


def prepared(spec: DenseSpec) -> AnySpec:
    """Return the stage as a list of operations; one for ragged passes where it has `sequences`.

    Raises KeyError for a field that is missing."""
    uniform: UniformSpec = {
        "hidden": spec["hidden"],
        "vocab": spec["vocab"],
        "batch": spec["batch"],
        "capacity": spec["capacity"],
        "max_tokens": spec["max_tokens"],
        "chunk_rows": chunk_rows(spec.get("attention") == "divided"),
        "kv_format": spec["kv_format"],
        "paged": spec.get("paged", False),
        "context": spec.get("context", spec["capacity"]),
        "attention_activations": spec.get("attention_activations", "f32"),
        "room": dense_room(spec),
        "blocks": len(spec["blocks"]),
        "operations": list(_operations(spec)),
    }
    sequences = spec.get("sequences", 0)
    return {**uniform, "sequences": sequences, "passing": spec.get("passing", 0)} if sequences else uniform


def uniform(spec: DenseSpec) -> UniformSpec:
    """Return the stage, whose sequences advance together."""
    made = prepared(spec)
    assert "sequences" not in made, "sequences that advance alone"
    return made


def dense_room(spec: DenseSpec) -> RowRoom:
    """Return the room of a row."""
    q, kv, ffn = spec["heads"] * spec["head_dim"], spec["kv_heads"] * spec["head_dim"], spec["ffn"]
    line = -(-spec["capacity"] // LINE) * LINE
    return {
        "wide": max(spec["hidden"], q),
        "inner": max(q + 2 * kv, 2 * ffn),
        "columns": max(spec["hidden"], q, ffn),
        "heads": spec["heads"] if spec.get("paged", False) else 0,
        "scores": spec["heads"] * line if spec.get("attention") == "divided" else 0,
    }


def _operations(spec: DenseSpec) -> Iterator[AnyOperation]:
    if spec["embedding"] is not None:
        yield {
            "kind": "embedding",
            "name": "embedding",
            "block": None,
            "inputs": [],
            "output": "hidden",
            "table": spec["embedding"],
            "looked_up": spec.get("looked_up", False),
            "positions": spec["positions"],
        }
    gated = spec.get("gated", any(block["gate"] is not None for block in spec["blocks"]))
    for number, block in enumerate(spec["blocks"]):
        yield _norm(spec, "norm1", number, block["norm1"])
        yield from _attention(spec, block, number)
        yield _norm(spec, "norm2", number, block["norm2"])
        yield from _network(spec, block, number, gated)
    if spec["final_norm"] is not None:
        yield _norm(spec, "final_norm", None, spec["final_norm"])
    if spec["head"] is not None:
        yield {
            "kind": "head",
            "name": "head",
            "block": None,
            "inputs": ["normed"],
            "output": "logits",
            "matrix": spec["head"],
        }


def _norm(spec: DenseSpec, name: str, block: int | None, weights: NormVectors | None) -> NormOperation:
    return {
        "kind": "norm",
        "name": name,
        "block": block,
        "inputs": ["hidden"],
        "output": "normed",
        "norm": spec["norm"],
        "eps": spec["norm_eps"],
        "weights": weights,
        "last": block is None,
    }


def _linear(
    name: str,
    block: int,
    inputs: list[str],
    output: str,
    shape: tuple[int, int],
    matrix: Linear | None,
    activation: Activation | None = None,
) -> LinearOperation:
    return {
        "kind": "linear",
        "name": name,
        "block": block,
        "inputs": inputs,
        "output": output,
        "rows": shape[0],
        "columns": shape[1],
        "matrix": matrix,
        "activation": activation,
    }


def _attention(spec: DenseSpec, block: DenseBlock, number: int) -> Iterator[AnyOperation]:
    hidden, q = spec["hidden"], spec["heads"] * spec["head_dim"]
    divided, kv = spec.get("attention") == "divided", spec["kv_heads"] * spec["head_dim"]
    yield _linear("q", number, ["normed"], "q", (q, hidden), block["q"])
    yield _linear("k", number, ["normed"], "k", (kv, hidden), block["k"])
    yield _linear("v", number, ["normed"], "v", (kv, hidden), block["v"])
    yield {
        **_attended(spec, block, number, "append", ["q", "k", "v"], "q"),
        "kind": "append",
        "norm": spec["norm"],
        "eps": spec["norm_eps"],
        "over": "head",
        "q_norm": block["q_norm"],
        "k_norm": block["k_norm"],
        "value_norm": None,
        "rotary_dim": spec["rotary_dim"],
        "cos": spec["cos"],
        "sin": spec["sin"],
        "gated": False,
        "transposed": divided,
        "kept_keys": block.get("kept_keys", []),
        "kept_values": block.get("kept_values", []),
    }
    if divided:
        own, other = block.get("scores_heads"), block.get("wv_heads")
        made = _attended(spec, block, number, "scores", ["q"], "scores")
        yield {**made, "kind": "scores", "computes": own}
        made = _attended(spec, block, number, "softmax", ["scores"], "scores")
        yield {**made, "kind": "softmax", "computes": None}
        made = _attended(spec, block, number, "wv", ["scores"], "attended")
        yield {**made, "kind": "weighted", "computes": other}
    else:
        yield {**_attended(spec, block, number, "attention", ["q"], "attended"), "kind": "attention"}
    yield _linear("o", number, ["attended"], "hidden", (hidden, q), block["o"])


def _attended(spec: DenseSpec, block: DenseBlock, number: int, name: str, inputs: list[str], output: str) -> CacheUser:
    return {
        "name": name,
        "block": number,
        "inputs": inputs,
        "output": output,
        "heads": spec["heads"],
        "kv_heads": spec["kv_heads"],
        "head_dim": spec["head_dim"],
        "keys": block["keys"],
        "values": block["values"],
        "passing_keys": block.get("passing_keys"),
        "passing_values": block.get("passing_values"),
    }


def _network(spec: DenseSpec, block: DenseBlock, number: int, gated: bool) -> Iterator[LinearOperation]:
    hidden, ffn = spec["hidden"], spec["ffn"]
    inputs = ["normed"]
    if gated:
        yield _linear("gate", number, ["normed"], "gate", (ffn, hidden), block["gate"])
        inputs = ["normed", "gate"]
    yield _linear("up", number, inputs, "up", (ffn, hidden), block["up"], spec["activation"])
    yield _linear("down", number, ["up"], "hidden", (hidden, ffn), block["down"])
