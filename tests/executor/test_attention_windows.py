"""Attention over windows, with sinks, caps and factors of its own, as an operation of a stage, against numpy."""

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray
from test_attention_spans import fill, row_size
from test_stage_native import close, stored, view

from helmsman.executor._kernels import Arena, Pool, Stage

if TYPE_CHECKING:
    from helmsman.executor.devices.specs import UniformSpec
    from helmsman.schemas.formats import KvFormat
    from helmsman.schemas.rounding import AttentionPrecision

Floats = NDArray[np.float32]
CPUS = sorted(os.sched_getaffinity(0))
HEADS, KV_HEADS = 6, 2
SPECIAL: dict[str, dict[str, Any]] = {
    "a window": {"window": 40},
    "a window of one": {"window": 1},
    "sinks": {"sinks": np.array([3.0, -2.0, 0.5, 9.0, -40.0, 1.0], np.float32)},
    "a cap": {"softcap": 1.5, "scale": 0.4},
    "all": {"window": 100, "softcap": 3.0, "scale": 0.3, "sinks": np.linspace(-2, 2, HEADS, dtype=np.float32)},
}


@pytest.fixture(scope="module")
def two() -> Pool:
    return Pool([CPUS[0], CPUS[-1]])


class Attended:
    """A stage of one operation. `ring`: rows of its caches, where they are fewer than all positions."""

    def __init__(
        self,
        pool: Pool,
        dim: int,
        fmt: "KvFormat",
        context: int,
        ring: int | None,
        special: Any,
        activations: "AttentionPrecision" = "f32",
    ) -> None:
        self.dim, self.fmt, self.rows = dim, fmt, ring or context
        arena = Arena(16 << 20)
        size = KV_HEADS * self.rows * row_size(dim, fmt)
        self.caches = [arena.alloc(size, name) for name in ("keys", "values")]
        operation: Any = {
            "kind": "attention", "name": "attention", "block": 0, "inputs": ["q"], "output": "attended",
            "heads": HEADS, "kv_heads": KV_HEADS, "head_dim": dim, "keys": self.caches[0], "values": self.caches[1],
            "rows": ring, **special,
        }  # fmt: skip
        room: Any = dict.fromkeys(("wide", "inner", "columns", "heads", "scores"), 0)
        spec: UniformSpec = {
            "hidden": 16, "vocab": 16, "batch": 1, "capacity": context, "max_tokens": 64, "kv_format": fmt,
            "paged": False, "attention_activations": activations, "room": room, "blocks": 1, "operations": [operation],
        }  # fmt: skip
        self.workspace = arena.alloc(Stage.workspace_size(spec), "workspace")
        self.stage, self._kept = Stage(pool, spec, self.workspace, 0), spec

    def run(self, q: Floats, k: Floats, v: Floats) -> Floats:
        """q (tokens, heads, dim), k and v (kv_heads, context, dim) of all positions up to its last."""
        tokens, context = len(q), k.shape[1]
        for cache, values in zip(self.caches, (k, v), strict=True):
            held = np.zeros((1, KV_HEADS, self.rows, self.dim), np.float32)
            for position in range(max(0, context - self.rows), context):
                held[0, :, position % self.rows] = values[:, position]
            fill(cache, held, self.fmt)
        self._at("q", tokens)[:] = q.reshape(tokens, -1)
        self.stage.run(None, None, tokens, context - tokens, np.zeros(2), 0, 1)
        return self._at("attended", tokens).reshape(q.shape).copy()

    def _at(self, name: str, tokens: int) -> Floats:
        region = self.stage.regions()[name]
        start, floats = region["offset"] // 4, region["stride"] // 4
        return view(self.workspace, np.float32)[start : start + tokens * floats].reshape(tokens, floats)


def expected(q: Floats, k: Floats, v: Floats, special: dict[str, Any]) -> Any:
    """Return the formula, in f64: scores with their factor, capped, masked, beside each head's sink."""
    tokens, heads, dim = q.shape
    context, group = k.shape[1], heads // KV_HEADS
    keys, values = (np.repeat(x.astype(np.float64), group, 0) for x in (k, v))
    scores = np.einsum("thd,hpd->htp", q.astype(np.float64), keys) * special.get("scale", dim**-0.5)
    if "softcap" in special:
        scores = special["softcap"] * np.tanh(scores / special["softcap"])
    at, position = np.arange(context - tokens, context)[:, None], np.arange(context)
    seen = (position <= at) & (position > at - special.get("window", context))
    scores = np.where(seen, scores, -np.inf)
    sinks = special.get("sinks", np.full(heads, -np.inf)).reshape(-1, 1, 1)
    most = np.maximum(scores.max(-1, keepdims=True), sinks)
    weights = np.exp(scores - most)
    total = weights.sum(-1, keepdims=True) + np.exp(sinks - most)
    return np.einsum("htp,hpd->thd", weights / total, values)


@pytest.mark.parametrize("fmt", ["f32", *(pytest.param(fmt, marks=pytest.mark.nightly) for fmt in ("bf16", "q8_0"))])
@pytest.mark.parametrize("special", SPECIAL)
def test_prompts_and_tokens_see_what_the_formula_does(word_isa: str, two: Pool, special: str, fmt: "KvFormat") -> None:
    """Of contexts below a window, at its end and beyond it, in tiles, and of a cache that is a ring."""
    rng, given = np.random.default_rng(2), SPECIAL[special]
    for dim in (32, 96):
        for ring in (None, given["window"] + 63) if "window" in given else (None,):
            attended, rounded = (Attended(two, dim, fmt, 300, ring, given, by) for by in ("f32", "int16"))
            for context, tokens in ((1, 1), (40, 1), (299, 1), (40, 40), (101, 1), (260, 64), (230, 2), (170, 37)):
                q = rng.standard_normal((tokens, HEADS, dim), np.float32)
                k, v = (stored(rng.standard_normal((KV_HEADS, context, dim), np.float32), fmt) for _ in "kv")
                tolerance = 2e-4 if fmt == "q8_0" and tokens == 1 else 1e-5
                close(attended.run(q, k, v), expected(q, k, v, given), tolerance)
                close(rounded.run(q, k, v), expected(q, k, v, given), max(tolerance, 5e-4 if tokens > 1 else 0))


def test_a_cache_that_holds_neither_all_nor_a_window_is_refused(two: Pool) -> None:
    for ring, special in ((100, {"window": 40}), (100, {}), (40, {"window": 40})):
        with pytest.raises(ValueError, match="holds neither all positions nor a window"):
            Attended(two, 32, "f32", 300, ring, special)
