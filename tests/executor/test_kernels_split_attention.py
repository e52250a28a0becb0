"""Divided attention (scores, softmax, wv as three operations) against numpy, the fused one, and its closed form."""

import os
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from daily import one_in
from numpy.typing import NDArray
from test_stage_native import (
    LLAMA,
    SHAPES,
    Native,
    Shape,
    Weights,
    close,
    model_of,
    prompt,
    reference_logits,
    stored,
    view,
)
from together import together

from helmsman.executor import _kernels as kernels
from helmsman.executor._kernels import Arena, Pool, Stage
from helmsman.executor.stages.dense import prepared
from helmsman.lowering.buffers import workspace_bytes
from helmsman.schemas.formats import Format

CPUS = sorted(os.sched_getaffinity(0))
TOLERANCE: dict[Format, float] = {"f32": 1e-5, "f16": 2e-3, "bf16": 2e-2}


class Divided(Native):
    """A whole model whose attention is divided."""

    def _spec(self, first: int, last: int) -> Any:
        return super()._spec(first, last) | {"attention": "divided"}


class Attention:
    """One block whose q, caches and results are set and read where the stage has them."""

    def __init__(self, shape: Shape, pool: Pool) -> None:
        self.s = shape
        native = Native.__new__(Divided)
        native.w, native.s, native.arena = Weights(shape), shape, Arena(64 << 20)
        native.embeds = native.heads = False
        spec = native._spec(0, 1)
        self.workspace = native.arena.alloc(Stage.workspace_size(prepared(spec)), "workspace")
        view(self.workspace, np.uint32)[:] = 0x7FC00000
        self.stage, self.block = Stage(pool, prepared(spec), self.workspace, 0), spec["blocks"][0]

    def run(self, q: NDArray[np.float32], k: NDArray[np.float32], v: NDArray[np.float32]) -> NDArray[np.float32]:
        """q (batch, tokens, heads, head_dim), k and v (batch, kv_heads, context, head_dim): what is attended."""
        (batch, tokens), context = q.shape[:2], k.shape[2]
        self._fill("keys", k.swapaxes(2, 3), (slice(None), slice(None), slice(None), slice(context)))
        self._fill("values", v, (slice(None), slice(None), slice(context)))
        self._region("q", batch * tokens)[:] = q.reshape(batch * tokens, -1)
        first = self.stage.ops.index("0.scores")
        self.stage.run(None, None, tokens, context - tokens, np.zeros(4), first, first + 3)
        return self._region("attended", batch * tokens).reshape(q.shape).copy()

    def scores(self, q: NDArray[np.float32], k: NDArray[np.float32]) -> NDArray[np.float32]:
        """One token's scores (batch, heads, positions rounded up), of a cache that is NaN beyond the context."""
        (batch, _, heads, _), context = q.shape, k.shape[2]
        self._fill("keys", k.swapaxes(2, 3), (slice(None), slice(None), slice(None), slice(context)))
        self._region("q", batch)[:] = q.reshape(batch, -1)
        first = self.stage.ops.index("0.scores")
        self.stage.run(None, None, 1, context - 1, np.zeros(2), first, first + 1)
        return self._region("scores", batch).reshape(batch, heads, -1).copy()

    def _region(self, name: str, rows: int) -> NDArray[np.float32]:
        at = self.stage.regions()[name]
        start, floats = at["offset"] // 4, at["stride"] // 4
        return view(self.workspace, np.float32)[start : start + rows * floats].reshape(rows, floats)

    def _fill(self, name: str, values: NDArray[np.float32], where: tuple[slice, ...]) -> None:
        """Into a cache that is NaN elsewhere."""
        s = self.s
        shape = (s.head_dim, s.capacity) if name == "keys" else (s.capacity, s.head_dim)
        dtype = np.float16 if s.kv_format == "f16" else np.float32
        full = np.full((s.batch, s.kv_heads, *shape), np.nan, dtype)
        full[where] = values
        found = full.view(np.uint32) >> 16 if s.kv_format == "bf16" else full.view(np.uint8)
        view(self.block[name], np.uint16 if s.kv_format == "bf16" else np.uint8)[:] = found.ravel()


def expected(q: NDArray[np.float32], k: NDArray[np.float32], v: NDArray[np.float32]) -> NDArray[np.float64]:
    (batch, tokens, heads, dim), (kv_heads, context) = q.shape, k.shape[1:3]
    grouped = q.astype(np.float64).swapaxes(1, 2).reshape(batch, kv_heads, heads // kv_heads, tokens, dim)
    scores = grouped @ k.astype(np.float64).swapaxes(2, 3)[:, :, None] / np.sqrt(dim)
    visible = np.arange(context) <= np.arange(context - tokens, context)[:, None]
    scores = np.where(visible, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return (weights @ v.astype(np.float64)[:, :, None]).reshape(batch, heads, tokens, dim).swapaxes(1, 2)


def drawn(shape: Shape, context: int, tokens: int) -> tuple[NDArray[np.float32], ...]:
    """Random q, k and v of the last `tokens` of a context, k and v as they are stored."""
    rng = np.random.default_rng(context + tokens)
    q = rng.standard_normal((shape.batch, tokens, shape.heads, shape.head_dim), np.float32)
    kept = (shape.batch, shape.kv_heads, context, shape.head_dim)
    return q, *(stored(rng.standard_normal(kept, np.float32), shape.kv_format) for _ in range(2))


@cache
def exact(shape: Shape, context: int, tokens: int) -> NDArray[np.float64]:
    """What is attended of these: the same for every instruction set."""
    return expected(*drawn(shape, context, tokens))


@pytest.fixture(scope="module")
def two() -> Pool:
    return Pool([CPUS[0], CPUS[-1]])


@pytest.fixture(scope="module", params=[1, 2, 3, 5])
def pool(request: pytest.FixtureRequest) -> Pool:
    return Pool([CPUS[i % len(CPUS)] for i in range(request.param)])


@pytest.mark.parametrize("kv_format", one_in(2, ["f32", "f16", "bf16"]))
@pytest.mark.parametrize(
    ("heads", "batch"),
    [
        *(((4, 4), 1), ((8, 2), 3), ((7, 1), 3), ((12, 2), 1)),
        *(
            pytest.param(*each, marks=pytest.mark.nightly)
            for each in (((4, 4), 3), ((8, 2), 1), ((7, 1), 1), ((12, 2), 3))
        ),
    ],
)
def test_contexts_and_prompts_equal_numpy(
    base_isa: str, two: Pool, kv_format: Format, heads: tuple[int, int], batch: int
) -> None:
    """Stored values are exact here, so the tolerance is that of f32 whatever the format."""
    for head_dim, capacity in ((16, 301), (24, 320), (17, 300), (128, 300)):
        shape = replace(LLAMA, heads=heads[0], kv_heads=heads[1], head_dim=head_dim, capacity=capacity, batch=batch,
                        kv_format=kv_format, layers=1, rotary_dim=0)  # fmt: skip
        attention = Attention(shape, two)
        for context, tokens in ((1, 1), (15, 1), (16, 1), (17, 1), (300, 1), (16, 16), (33, 17), (300, 42), (300, 2)):
            close(attention.run(*drawn(shape, context, tokens)), exact(shape, context, tokens), 1e-5)


@pytest.mark.parametrize("kv_format", ["f32", "f16", "bf16"])
def test_scores_read_no_keys_beyond_the_context(base_isa: str, two: Pool, kv_format: Format) -> None:
    """They may be written meanwhile: whole registers of scores are, and those beyond it are zero, not NaN."""
    rng = np.random.default_rng(3)
    shape = replace(LLAMA, heads=8, kv_heads=2, head_dim=32, capacity=300, kv_format=kv_format, layers=1, rotary_dim=0)
    for context in (1, 7, 8, 15, 16, 17, 100, 299):
        q = rng.standard_normal((1, 1, 8, 32)).astype(np.float32)
        k = stored(rng.standard_normal((1, 2, context, 32)).astype(np.float32), kv_format)
        attention = Attention(shape, two)
        attention._region("scores", 1)[:] = 0
        scores = attention.scores(q, k)
        wanted = (q.reshape(1, 2, 4, 32) @ k.swapaxes(2, 3)).reshape(1, 8, context)
        close(scores[..., :context], wanted, 1e-5)
        assert not scores[..., context:].any()


def test_results_do_not_depend_on_threads(pool: Pool, two: Pool) -> None:
    rng = np.random.default_rng(2)
    shape = replace(LLAMA, heads=6, kv_heads=3, head_dim=80, capacity=700, layers=1, rotary_dim=0)
    for tokens in (1, 33):
        q = rng.standard_normal((1, tokens, 6, 80)).astype(np.float32)
        k, v = (rng.standard_normal((1, 3, 650, 80)).astype(np.float32) for _ in range(2))
        found, other = Attention(shape, pool).run(q, k, v), Attention(shape, two).run(q, k, v)
        np.testing.assert_array_equal(found, other)


@pytest.mark.parametrize("kv_format", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("name", one_in(2, SHAPES))
def test_a_model_equals_the_reference_and_the_fused_one(base_isa: str, two: Pool, name: str, kv_format: Format) -> None:
    weights = Weights(replace(SHAPES[name], batch=2, capacity=150, kv_format=kv_format))
    divided, fused, ids = Divided(weights, two), Native(weights, two), prompt(weights.shape, 143)
    logits = reference_logits(weights.shape, 143)
    assert [op.split(".")[1] for op in divided.stage.ops[6:9]] == ["scores", "softmax", "wv"]
    for past, tokens in ((0, 140), (140, 1), (141, 2)):
        given = ids[:, past : past + tokens]
        divided.run(given, past)
        fused.run(given, past)
        close(divided.logits(), logits[:, past + tokens - 1], max(2e-5, TOLERANCE[kv_format]))
        close(divided.logits(), fused.logits(), TOLERANCE[kv_format])


@together("name", SHAPES)
@together("batch", [1, 3, 200])
@together("capacity", [1, 40, 500])
def test_the_planner_knows_the_workspace(name: str, batch: int, capacity: int) -> None:
    shape = replace(SHAPES[name], batch=batch, capacity=capacity, layers=0)
    spec = Native.__new__(Divided)
    spec.w, spec.s, spec.arena, spec.embeds, spec.heads = Weights(shape), shape, Arena(8 << 20), True, True
    exact = Stage.workspace_size(prepared(spec._spec(0, 0)))
    bound = workspace_bytes(model_of(shape), batch, capacity, divided=True, capacity=capacity)
    assert exact <= bound <= max(1.25 * exact, exact + (1 << 20))
    assert workspace_bytes(model_of(shape), batch, capacity, divided=True) == bound


@pytest.mark.parametrize("timer", [kernels.time_scores, kernels.time_wv])
def test_probes_time_and_refuse(two: Pool, timer: Any) -> None:
    arena = Arena(1 << 20)
    kv = [(arena.alloc(2 * 2 * 32 * 64 * 2, "K"), arena.alloc(2 * 2 * 32 * 64 * 2, "V")) for _ in range(2)]
    seconds = timer(two, "f16", kv, 4, 2, 32, 64, 50, 2, 5)
    assert len(seconds) == 5
    assert min(seconds) > 0
    for change in ({"context": 65}, {"batch": 3}, {"heads": 3}, {"fmt": "f32"}, {"kv": []}, {"repeats": 0}):
        call = {"fmt": "f16", "kv": kv, "heads": 4, "kv_heads": 2, "head_dim": 32, "capacity": 64, "context": 50}
        with pytest.raises(ValueError, match="context|has|multiple|at least|repeats"):
            timer(two, **{**call, "batch": 2, "repeats": 5, **change})


def test_attention_must_be_known(two: Pool) -> None:
    native = Native(Weights(LLAMA), two)
    spec = prepared(native.spec)
    operations: Any = [{**op, "kind": "split"} if op["kind"] == "attention" else op for op in spec["operations"]]
    with pytest.raises(ValueError, match="kind has no choice 'split'"):
        Stage.workspace_size({**spec, "operations": operations})
