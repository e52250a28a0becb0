"""The native stage against a small transformer in numpy (f64), for every instruction set this processor has."""

import os
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import pytest
from daily import one_in
from kv_rows import q8_values
from numpy.typing import NDArray
from together import together

from helmsman.executor import _kernels as kernels
from helmsman.executor._kernels import Arena, Buffer, Pool, Stage
from helmsman.executor.stages.dense import prepared
from helmsman.lowering import buffers
from helmsman.lowering.buffers import chunk_tokens, workspace_bytes
from helmsman.schemas.blocks.positions import Rope
from helmsman.schemas.dense_model import DenseModel
from helmsman.schemas.described import described
from helmsman.schemas.formats import Format
from helmsman.schemas.model import Model

if TYPE_CHECKING:
    from helmsman.executor.stages.dense import DenseSpec
    from helmsman.schemas.formats import KvFormat

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Shape:
    """Dimensions and options of a small random model."""

    hidden: int = 48
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    ffn: int = 72
    vocab: int = 101
    layers: int = 2
    gated: bool = True
    norm: Literal["rms", "layer"] = "rms"
    activation: Literal["silu", "relu", "gelu", "gelu_tanh"] = "silu"
    rotary_dim: int = 16
    qk_norm: bool = False
    bias: bool = False
    batch: int = 1
    capacity: int = 40
    kv_format: "KvFormat" = "f32"
    fmt: Format = "f32"


LLAMA = Shape()
QWEN3 = Shape(heads=8, kv_heads=2, head_dim=24, rotary_dim=24, qk_norm=True, fmt="bf16")
OPT = Shape(
    norm="layer", activation="relu", gated=False, bias=True, rotary_dim=0, kv_heads=4, fmt="f16", hidden=50, ffn=90
)
PARTIAL = Shape(heads=3, kv_heads=3, head_dim=17, rotary_dim=10, activation="gelu_tanh", bias=True)
MQA = Shape(heads=8, kv_heads=1, head_dim=80, rotary_dim=80, activation="gelu", gated=False)
SHAPES = {"llama": LLAMA, "qwen3": QWEN3, "opt": OPT, "partial": PARTIAL, "mqa": MQA}


@dataclass
class Weights:
    """One random model: what the stage gets, and the same values for the reference."""

    shape: Shape
    values: dict[str, Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        s, rng = self.shape, np.random.default_rng(7)
        q, kv = s.heads * s.head_dim, s.kv_heads * s.head_dim
        sizes = {"q": (q, s.hidden), "k": (kv, s.hidden), "v": (kv, s.hidden), "o": (s.hidden, q)}
        sizes |= {"gate": (s.ffn, s.hidden)} if s.gated else {}
        sizes |= {"up": (s.ffn, s.hidden), "down": (s.hidden, s.ffn)}

        def linear(name: str, rows: int, columns: int) -> None:
            scale = np.float32(1.5 / np.sqrt(columns))
            self.values[name] = rng.standard_normal((rows, columns), np.float32) * scale
            self.values[f"{name}.bias"] = rng.standard_normal(rows).astype(np.float32) * np.float32(0.1)

        def norm(name: str, width: int) -> None:
            self.values[name] = (1 + 0.2 * rng.standard_normal(width)).astype(np.float32)
            self.values[f"{name}.bias"] = (0.1 * rng.standard_normal(width)).astype(np.float32)

        for layer in range(s.layers):
            for name, (rows, columns) in sizes.items():
                linear(f"{layer}.{name}", rows, columns)
            for name, width in (
                ("norm1", s.hidden),
                ("norm2", s.hidden),
                ("q_norm", s.head_dim),
                ("k_norm", s.head_dim),
            ):
                norm(f"{layer}.{name}", width)
        linear("embedding", s.vocab, s.hidden)
        linear("head", s.vocab, s.hidden)
        norm("final_norm", s.hidden)
        self.values["positions"] = rng.standard_normal((s.capacity, s.hidden), np.float32)
        angles = np.arange(s.capacity)[:, None] * 100.0 ** -(np.arange(s.rotary_dim // 2) / max(1, s.rotary_dim // 2))
        self.values["cos"] = np.cos(angles).astype(np.float32)
        self.values["sin"] = np.sin(angles).astype(np.float32)

    def exact(self, name: str) -> Doubles:
        """A linear layer's weight as stored."""
        return stored(self.values[name], self.shape.fmt).astype(np.float64)


def stored(values: Floats, fmt: "KvFormat") -> Floats:
    if fmt == "q8_0":
        return q8_values(values)
    if fmt == "f16":
        return values.astype(np.float16).astype(np.float32)
    if fmt == "bf16":
        bits = values.view(np.uint32).astype(np.uint64)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)
    return values


class Reference:
    """Token ids (batch, tokens) to logits (batch, tokens, vocab) in f64, without a cache."""

    def __init__(self, weights: Weights) -> None:
        self.w, self.s = weights, weights.shape

    def logits(self, ids: NDArray[np.int32]) -> Doubles:
        x = self.w.exact("embedding")[ids]
        if self.s.rotary_dim == 0:
            x = x + self.w.values["positions"][: ids.shape[1]]
        for layer in range(self.s.layers):
            x = self.block(x, f"{layer}.")
        return self.linear("head", self.norm("final_norm", x), bias=False)

    def block(self, x: Doubles, p: str) -> Doubles:
        x = x + self.linear(f"{p}o", self.attention(self.norm(f"{p}norm1", x), p))
        n = self.norm(f"{p}norm2", x)
        up = self.linear(f"{p}up", n)
        inner = self.act(self.linear(f"{p}gate", n)) * up if self.s.gated else self.act(up)
        return x + self.linear(f"{p}down", inner)

    def attention(self, n: Doubles, p: str) -> Doubles:
        batch, tokens, _ = n.shape
        s = self.s

        def heads(name: str, count: int) -> Doubles:
            return self.linear(p + name, n).reshape(batch, tokens, count, s.head_dim).swapaxes(1, 2)

        q, k, v = heads("q", s.heads), heads("k", s.kv_heads), heads("v", s.kv_heads)
        if s.qk_norm:
            q, k = self.norm(f"{p}q_norm", q), self.norm(f"{p}k_norm", k)
        q, k = self.rotated(q), self.rotated(k)
        k = stored(k.astype(np.float32), s.kv_format).astype(np.float64)
        v = stored(v.astype(np.float32), s.kv_format).astype(np.float64)
        k, v = (np.repeat(x, s.heads // s.kv_heads, axis=1) for x in (k, v))
        scores = q @ k.swapaxes(2, 3) / np.sqrt(s.head_dim)
        scores = np.where(np.tri(tokens, dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return (weights @ v).swapaxes(1, 2).reshape(batch, tokens, -1)

    def rotated(self, x: Doubles) -> Doubles:
        half = self.s.rotary_dim // 2
        cos, sin = (self.w.values[name][: x.shape[2]].astype(np.float64) for name in ("cos", "sin"))
        a, b = x[..., :half], x[..., half : 2 * half]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin, x[..., 2 * half :]], axis=-1)

    def norm(self, name: str, x: Doubles) -> Doubles:
        if self.s.norm == "layer":
            x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * self.w.values[name]
        return x + self.w.values[f"{name}.bias"] if self.s.norm == "layer" else x

    def linear(self, name: str, x: Doubles, bias: bool = True) -> Doubles:
        y = x @ self.w.exact(name).T
        return y + self.w.values[f"{name}.bias"] if self.s.bias and bias else y

    def act(self, x: Doubles) -> Doubles:
        match self.s.activation:
            case "silu":
                return x / (1 + np.exp(-x))
            case "relu":
                return np.maximum(x, 0)
            case "gelu_tanh":
                return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
        erf = np.vectorize(__import__("math").erf)
        return np.asarray(0.5 * x * (1 + erf(x / np.sqrt(2))), np.float64)


class Native:
    """Blocks [first, last) of a model as a Stage, with caches; embedding and head at the model's ends."""

    def __init__(self, weights: Weights, pool: Pool, first: int = 0, last: int | None = None) -> None:
        self.w, self.s = weights, weights.shape
        self.arena = Arena(64 << 20)
        last = self.s.layers if last is None else last
        self.embeds, self.heads = first == 0, last == self.s.layers
        self.spec = self._spec(first, last)
        workspace = self.arena.alloc(Stage.workspace_size(prepared(self.spec)), "workspace")
        self.workspace = workspace
        view(workspace, np.uint32)[:] = 0x7FC00000  # NaN: nothing may be read before it is written
        self.stage = Stage(pool, prepared(self.spec), workspace, first)

    def run(self, given: NDArray[Any], past: int) -> NDArray[Any]:
        """given (batch, tokens) ids or (batch, tokens, hidden) states; the stage's target."""
        batch, tokens = given.shape[:2]
        source = self.arena.alloc(given.nbytes, "source")
        view(source, given.dtype.type)[:] = given.ravel()
        size = 4 * batch if self.heads else 4 * batch * tokens * self.s.hidden
        target = self.arena.alloc(size, "target")
        stamps = np.zeros(len(self.stage.ops) + 1)
        self.stage.run(source, target, tokens, past, stamps)
        assert (np.diff(stamps) >= 0).all()
        assert stamps[0] > 0
        if self.heads:
            return view(target, np.int32)
        return view(target, np.float32).reshape(batch, tokens, self.s.hidden)

    def logits(self) -> Floats:
        return np.array(self.stage.logits())

    def _linear(self, name: str, bias: bool = True) -> Any:
        rows, columns = self.w.values[name].shape
        buffer = self.arena.alloc(kernels.packed_size(self.s.fmt, rows, columns), name)
        kernels.pack(self.w.values[name], "f32", buffer, self.s.fmt, rows, columns)
        given = self.w.values[f"{name}.bias"] if self.s.bias and bias else None
        return {"weight": buffer, "format": self.s.fmt, "rows": rows, "columns": columns, "bias": given}

    def rows(self, values: Floats) -> Any:
        """Rows of the table, one after the other."""
        rows, columns = values.shape
        kinds = {
            "f32": values,
            "f16": values.astype(np.float16),
            "bf16": (values.view(np.uint32) >> 16).astype(np.uint16),
        }
        found = kinds[self.s.fmt]
        buffer = self.arena.alloc(found.nbytes, "rows")
        view(buffer, found.dtype.type)[:] = found.ravel()
        return {"weight": buffer, "format": self.s.fmt, "rows": rows, "columns": columns, "bias": None}

    def _norm(self, name: str) -> Any:
        bias = self.w.values[f"{name}.bias"] if self.s.norm == "layer" else None
        return {"weight": self.w.values[name], "bias": bias}

    def _block(self, layer: int) -> Any:
        s, p = self.s, f"{layer}."
        row = s.head_dim // 32 * 34 if s.kv_format == "q8_0" else s.head_dim * (4 if s.kv_format == "f32" else 2)
        size = s.batch * s.kv_heads * s.capacity * row
        return {
            **{name: self._linear(p + name) for name in ("q", "k", "v", "o", "up", "down")},
            "gate": self._linear(f"{p}gate") if s.gated else None,
            "norm1": self._norm(f"{p}norm1"),
            "norm2": self._norm(f"{p}norm2"),
            "q_norm": self._norm(f"{p}q_norm") if s.qk_norm else None,
            "k_norm": self._norm(f"{p}k_norm") if s.qk_norm else None,
            "keys": self.arena.alloc(size, "keys"),
            "values": self.arena.alloc(size, "values"),
        }

    def _spec(self, first: int, last: int) -> Any:
        s, w = self.s, self.w.values
        return {
            **{name: getattr(s, name) for name in ("hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "norm")},
            **{name: getattr(s, name) for name in ("activation", "batch", "capacity", "kv_format", "rotary_dim")},
            "norm_eps": 1e-5,
            "max_tokens": s.capacity,
            "cos": w["cos"] if s.rotary_dim else None,
            "sin": w["sin"] if s.rotary_dim else None,
            "embedding": self._linear("embedding", bias=False) if self.embeds else None,
            "positions": w["positions"] if self.embeds and not s.rotary_dim else None,
            "blocks": [self._block(layer) for layer in range(first, last)],
            "final_norm": self._norm("final_norm") if self.heads else None,
            "head": self._linear("head", bias=False) if self.heads else None,
        }


def view(buffer: Buffer, dtype: type[np.generic]) -> NDArray[Any]:
    return np.frombuffer(memoryview(buffer), dtype)


CPUS = sorted(os.sched_getaffinity(0))


@pytest.fixture(scope="module", params=[1, 2, 3])
def pool(request: pytest.FixtureRequest) -> Pool:
    return Pool([CPUS[0], CPUS[-1], CPUS[0]][: request.param])


@pytest.fixture(scope="module")
def two() -> Pool:
    return Pool([CPUS[0], CPUS[-1]])


def prompt(shape: Shape, tokens: int) -> NDArray[np.int32]:
    return np.random.default_rng(11).integers(0, shape.vocab, (shape.batch, tokens)).astype(np.int32)


@cache
def reference_logits(shape: Shape, tokens: int) -> Doubles:
    """Of the shape's model and its prompt: the same for every instruction set and pool."""
    found = Reference(Weights(shape)).logits(prompt(shape, tokens))
    found.flags.writeable = False
    return found


def close(found: NDArray[Any], expected: NDArray[Any], relative: float = 2e-5) -> None:
    assert np.abs(found - expected).max() <= relative * np.abs(expected).max()


@pytest.mark.parametrize("name", one_in(2, SHAPES))
def test_prefill_and_decode_equal_the_reference(word_isa: str, pool: Pool, name: str) -> None:
    weights = Weights(replace(SHAPES[name], batch=2))
    native, ids = Native(weights, pool), prompt(weights.shape, 30)
    expected = reference_logits(weights.shape, 30)
    chosen = native.run(ids[:, :21], 0)
    close(native.logits(), expected[:, 20])
    np.testing.assert_array_equal(chosen, native.logits().argmax(-1))
    native.run(ids[:, 21:26], 21)
    close(native.logits(), expected[:, 25])
    for token in range(26, 30):
        native.run(ids[:, token : token + 1], token)
        close(native.logits(), expected[:, token])


def test_a_stage_rounds_activations_as_its_matrices_say(isa: str, pool: Pool) -> None:
    weights = Weights(replace(LLAMA, fmt="bf16"))
    ids, exact, told = prompt(weights.shape, 30), Native(weights, pool), Native(weights, pool)
    blocks = [{name: rounded_to_bf16(part) for name, part in block.items()} for block in told.spec["blocks"]]
    spec = {**told.spec, "blocks": blocks, "head": rounded_to_bf16(told.spec["head"])}
    told.stage = Stage(pool, prepared(spec), told.arena.alloc(Stage.workspace_size(prepared(spec)), "workspace"), 0)
    exact.run(ids, 0)
    told.run(ids, 0)
    off = np.abs(told.logits() - exact.logits()).max() / np.abs(exact.logits()).max()
    assert 1e-5 < off < 3e-2


def rounded_to_bf16(part: Any) -> Any:
    """A matrix that meets activations in bf16; other parts of a stage as they are."""
    return {**part, "activations": "bf16"} if isinstance(part, dict) and "columns" in part else part


@pytest.mark.parametrize("name", SHAPES)
def test_rows_that_were_looked_up_are_the_embedding(base_isa: str, two: Pool, name: str) -> None:
    """In passes at once and chunk by chunk; ids are still checked."""
    shape = replace(SHAPES[name], batch=3, capacity=80)
    weights = Weights(shape)
    whole, ids = Native(weights, two), prompt(shape, 60)
    for tokens in (60, 7):
        native = Native(weights, two)
        rows = stored(weights.values["embedding"], shape.fmt)[ids[:, :tokens]].reshape(-1, shape.hidden)
        spec = {**native.spec, "looked_up": True, "max_tokens": tokens, "embedding": native.rows(rows)}
        workspace = native.arena.alloc(Stage.workspace_size(prepared(spec)), "workspace")
        native.stage = Stage(two, prepared(spec), workspace, 0)
        np.testing.assert_array_equal(native.run(ids[:, :tokens], 0), whole.run(ids[:, :tokens], 0))
        np.testing.assert_array_equal(native.logits(), whole.logits())
        with pytest.raises(ValueError, match="outside the vocabulary"):
            native.run(np.full((3, 1), shape.vocab, np.int32), tokens)
        with pytest.raises(ValueError, match="embedding is"):
            Stage(two, prepared({**spec, "max_tokens": tokens - 1}), workspace, 0)


@pytest.mark.parametrize("batch", [1, 3, 8, 16])
def test_batches_decode_token_by_token(word_isa: str, two: Pool, batch: int) -> None:
    weights = Weights(replace(QWEN3, batch=batch))
    native, ids = Native(weights, two), prompt(weights.shape, 12)
    expected = reference_logits(weights.shape, 12)
    for token in range(12):
        native.run(ids[:, token : token + 1], token)
        close(native.logits(), expected[:, token])


@pytest.mark.parametrize("kv_format", ["f32", "f16", "bf16", "q8_0"])
def test_long_prompts_pass_in_chunks(word_isa: str, two: Pool, kv_format: "KvFormat") -> None:
    """300 tokens cross chunks of rows, tiles of positions and cuts between threads."""
    weights = Weights(replace(LLAMA, capacity=310, kv_format=kv_format, head_dim=32))
    native, ids = Native(weights, two), prompt(weights.shape, 303)
    expected = reference_logits(weights.shape, 303)
    tolerance = {"f32": 2e-5, "f16": 2e-3, "bf16": 2e-2, "q8_0": 2e-2}[
        kv_format
    ]  # a key may round to the other neighbour
    for past, tokens in ((0, 300), (300, 1), (301, 2)):
        native.run(ids[:, past : past + tokens], past)
        close(native.logits(), expected[:, past + tokens - 1], tolerance)


@pytest.mark.parametrize("heads", [(1, 1), (2, 1), (4, 1), (8, 1), (6, 2), (5, 1), (7, 1)])
@pytest.mark.parametrize("head_dim", [64, 80, 96, 128])
def test_attention_of_every_group(two: Pool, heads: tuple[int, int], head_dim: int) -> None:
    shape = replace(LLAMA, heads=heads[0], kv_heads=heads[1], head_dim=head_dim, layers=1, capacity=280)
    weights = Weights(shape)
    ids = prompt(shape, 270)
    expected = Reference(weights).logits(ids)
    for name in kernels.supported_isas():
        kernels.select_isa(name)
        native = Native(weights, two)
        native.run(ids[:, :200], 0)
        close(native.logits(), expected[:, 199])
        native.run(ids[:, 200:269], 200)
        close(native.logits(), expected[:, 268])
        native.run(ids[:, 269:], 269)
        close(native.logits(), expected[:, 269])
    kernels.select_isa(kernels.supported_isas()[0])


def test_stages_in_a_row_equal_one_stage(two: Pool) -> None:
    weights = Weights(replace(OPT, layers=3, batch=2))
    ids = prompt(weights.shape, 9)
    whole, parts = Native(weights, two), [Native(weights, two, *cut) for cut in ((0, 1), (1, 2), (2, 3))]
    for past, tokens in ((0, 7), (7, 1), (8, 1)):
        chosen = whole.run(ids[:, past : past + tokens], past)
        states = parts[0].run(ids[:, past : past + tokens], past)
        states = np.ascontiguousarray(parts[1].run(states, past))
        np.testing.assert_array_equal(parts[2].run(states, past), chosen)
        np.testing.assert_array_equal(parts[2].logits(), whole.logits())


def test_a_chunked_stage_without_ends_passes_every_row_on(two: Pool) -> None:
    weights = Weights(replace(LLAMA, layers=3, batch=2, capacity=200))
    ids = prompt(weights.shape, 150)
    first, middle, last = (Native(weights, two, *cut) for cut in ((0, 1), (1, 2), (2, 3)))
    states = np.ascontiguousarray(middle.run(np.ascontiguousarray(first.run(ids, 0)), 0))
    last.run(states, 0)
    close(last.logits(), Reference(weights).logits(ids)[:, -1])


def test_threads_change_only_rounding() -> None:
    weights = Weights(QWEN3)
    ids = prompt(QWEN3, 20)
    results = []
    for count in (1, 2, 3):
        native = Native(weights, Pool([CPUS[0], CPUS[-1], CPUS[0]][:count]))
        native.run(ids, 0)
        results.append(native.logits())
    close(results[1], results[0], 1e-6)
    close(results[2], results[0], 1e-6)


def test_operations_are_named_and_timed_as_lowering_does(two: Pool) -> None:
    native = Native(Weights(LLAMA), two)
    block = ["norm1", "q", "k", "v", "append", "attention", "o", "norm2", "gate", "up", "down"]
    blocks = [f"{layer}.{name}" for layer in range(2) for name in block]
    assert native.stage.ops == ["embedding", *blocks, "final_norm", "head"]
    assert Native(Weights(OPT), two, 1, 2).stage.ops[:2] == ["1.norm1", "1.q"]
    assert "1.gate" not in Native(Weights(OPT), two).stage.ops


def test_ties_go_to_the_lowest_index(two: Pool) -> None:
    weights = Weights(LLAMA)
    weights.values["head"][60:] = weights.values["head"][10]
    weights.values["head"][:60] = weights.values["head"][10]
    native = Native(weights, two)
    assert native.run(prompt(LLAMA, 5), 0).tolist() == [0]


@together("name", SHAPES)
@together("batch", [1, 3, 200])
@together("capacity", [1, 40, 500, 700])
@pytest.mark.parametrize("rows", [128, 512])
def test_the_planner_knows_the_workspace(
    name: str, batch: int, capacity: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of chunks as tests have them, and as commands do; of divided attention these are shorter."""
    monkeypatch.setattr(buffers, "CHUNK_ROWS", rows)
    shape = replace(SHAPES[name], batch=batch, capacity=capacity, layers=0)
    spec = Native.__new__(Native)
    spec.w, spec.s, spec.arena, spec.embeds, spec.heads = Weights(shape), shape, Arena(8 << 20), True, True
    for paged in (False, True):
        exact = Stage.workspace_size(prepared({**spec._spec(0, 0), "paged": paged}))
        bound = workspace_bytes(model_of(shape), batch, capacity, paged=paged)
        assert exact <= bound <= max(1.25 * exact, exact + (1 << 20))
    divided = Stage.workspace_size(prepared({**spec._spec(0, 0), "attention": "divided"}))
    assert divided <= workspace_bytes(model_of(shape), batch, capacity, divided=True, capacity=capacity)
    assert chunk_tokens(batch, divided=True) == max(1, 128 // batch)


def model_of(s: Shape) -> Model:
    position = Rope(theta=1e4, rotary_dim=2)
    sizes = {name: getattr(s, name) for name in ("hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab")}
    dense = DenseModel(
        name="small", family="llama", layers=2, max_context=s.capacity, activation=s.activation, gated=s.gated,
        norm=s.norm, norm_eps=1e-5, position=position, **sizes,
    )  # fmt: skip
    return described(dense)


def test_bad_calls_are_refused(two: Pool) -> None:
    native, arena = Native(Weights(LLAMA), two), Arena(1 << 20)
    ids, target, stamps = arena.alloc(4 * 40, "ids"), arena.alloc(4, "target"), np.zeros(len(native.stage.ops) + 1)
    run = native.stage.run
    for tokens, past in ((0, 0), (41, 0), (1, 40), (1, -1), (5, 36)):
        with pytest.raises(ValueError, match=r"must be between|exceed"):
            run(ids, target, tokens, past, stamps)
    with pytest.raises(ValueError, match="stamps has"):
        run(ids, target, 1, 0, stamps[:-1].copy())
    with pytest.raises(ValueError, match="target has"):
        run(ids, arena.alloc(2, "short"), 1, 0, stamps)
    with pytest.raises(ValueError, match="source has"):
        run(arena.alloc(8, "short"), target, 3, 0, stamps)
    for bad in (-1, LLAMA.vocab):
        view(ids, np.int32)[:] = bad
        with pytest.raises(ValueError, match="outside the vocabulary"):
            run(ids, target, 1, 0, stamps)


@together(
    ("change", "error", "message"),
    [
        ({"hidden": 49}, ValueError, r"norm1|is \(|weight has"),
        ({"heads": 3}, ValueError, r"multiple|q is rows"),
        ({"rotary_dim": 18}, ValueError, "rotary_dim|cos has"),
        ({"rotary_dim": 3}, ValueError, "even"),
        ({"activation": "swish"}, ValueError, "activation must be"),
        ({"norm": "batch"}, ValueError, "batch"),
        ({"kv_format": "q4"}, ValueError, "q4"),
        ({"attention_activations": "int8"}, ValueError, "attention must be f32, bf16 or int16"),
        ({"kv_format": "q8_0"}, ValueError, "multiple of 32, not 16"),
        ({"kv_format": "q8_0", "head_dim": 32, "attention": "divided"}, ValueError, "divided|has|expected"),
        ({"capacity": 1000}, ValueError, "has"),
        ({"max_tokens": 41}, ValueError, "max_tokens"),
        ({"batch": 0}, ValueError, "batch"),
        ({"vocab": 102}, ValueError, "embedding is"),
        ({"ffn": 1 << 39, "batch": 1 << 39}, ValueError, r"too large|between|needs"),
    ],
)
def test_inconsistent_specs_are_refused(
    two: Pool, change: dict[str, Any], error: type[Exception], message: str
) -> None:
    native = Native(Weights(LLAMA), two)
    workspace = Arena(1 << 20).alloc(1 << 20, "workspace")
    with pytest.raises(error, match=message):
        Stage(two, prepared({**native.spec, **change}), workspace, 0)


def test_missing_fields_and_small_workspaces_are_refused(two: Pool) -> None:
    native = Native(Weights(LLAMA), two)
    with pytest.raises(KeyError, match="blocks"):
        Stage.workspace_size(prepared(cast("DenseSpec", {k: v for k, v in native.spec.items() if k != "blocks"})))
    with pytest.raises(ValueError, match="workspace has"):
        Stage(two, prepared(native.spec), Arena(64).alloc(64, "workspace"), 0)
    with pytest.raises(ValueError, match="no logits"):
        Native(Weights(LLAMA), two, 0, 1).stage.logits()
