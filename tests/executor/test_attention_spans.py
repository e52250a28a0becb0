"""Attention over spans of caches, in one call or several, against numpy and the plain operation."""

import itertools
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
from bf16_rounding import nearest_bf16
from daily import one_in
from kv_rows import q8_rows
from numpy.typing import NDArray
from test_kernels_split_attention import expected
from test_stage_native import LLAMA, OPT, QWEN3, Native, Reference, Shape, Weights, close, prompt, stored, view

from helmsman.executor._kernels import Arena, Buffer, Event, Pool, Queue, Stage
from helmsman.executor.stages.dense import prepared
from helmsman.schemas.formats import size_of
from helmsman.schemas.rounding import AttentionPrecision

if TYPE_CHECKING:
    from helmsman.executor.devices.parts import KvSpan
    from helmsman.executor.stages.dense import DenseSpec
    from helmsman.schemas.formats import KvFormat

Floats = NDArray[np.float32]
CPUS = sorted(os.sched_getaffinity(0))
ALL = 10_000


@pytest.fixture(scope="module", params=[1, 2, 3])
def pool(request: pytest.FixtureRequest) -> Pool:
    return Pool([CPUS[i % len(CPUS)] for i in range(request.param)])


@pytest.fixture(scope="module")
def two() -> Pool:
    return Pool([CPUS[0], CPUS[-1]])


class Paged:
    """The attention of one block; q and results are set and read where the stage has them."""

    def __init__(self, shape: Shape, pool: Pool, activations: AttentionPrecision = "f32") -> None:
        self.shape, self.arena = shape, Arena(64 << 20)
        native = Native.__new__(Native)
        native.w, native.s, native.arena, native.embeds, native.heads = Weights(shape), shape, self.arena, False, False
        spec = native._spec(0, 1) | {"paged": True, "attention_activations": activations}
        self.workspace = self.arena.alloc(Stage.workspace_size(prepared(spec)), "workspace")
        view(self.workspace, np.uint32)[:] = 0x7FC00000
        self.stage, self.block = Stage(pool, prepared(spec), self.workspace, 0), spec["blocks"][0]

    def rows(self, name: str, rows: int) -> Floats:
        at = self.stage.regions()[name]
        start, floats = at["offset"] // 4, at["stride"] // 4
        return view(self.workspace, np.float32)[start : start + rows * floats].reshape(rows, floats)

    def attend(self, q: Floats, calls: Sequence[Sequence["KvSpan"]], past: int) -> Floats:
        """q (batch, tokens, heads, head_dim)."""
        batch, tokens = q.shape[:2]
        self.rows("q", batch * tokens)[:] = q.reshape(batch * tokens, -1)
        for number, spans in enumerate(calls):
            self.stage.attend(0, spans, number == 0, number == len(calls) - 1, tokens, past)
        return self.rows("attended", batch * tokens).reshape(q.shape).copy()

    def plain(self, q: Floats, k: Floats, v: Floats) -> Floats:
        """The operation `attention` over k and v (batch, kv_heads, context, head_dim)."""
        (batch, tokens), context = q.shape[:2], k.shape[2]
        for name, values in (("keys", k), ("values", v)):
            full = np.full((batch, k.shape[1], self.shape.capacity, k.shape[3]), np.nan, np.float32)
            full[:, :, :context] = values
            fill(self.block[name], full, self.shape.kv_format)
        self.rows("q", batch * tokens)[:] = q.reshape(batch * tokens, -1)
        at = self.stage.ops.index("0.attention")
        self.stage.run(None, None, tokens, context - tokens, np.zeros(2), at, at + 1)
        return self.rows("attended", batch * tokens).reshape(q.shape).copy()


def row_size(width: int, fmt: "KvFormat") -> int:
    return width // 32 * 34 if fmt == "q8_0" else size_of(width, fmt)


def fill(buffer: Buffer, values: Floats, fmt: "KvFormat") -> None:
    kinds = {"f32": np.float32, "f16": np.float16}
    if fmt == "q8_0":
        rows = q8_rows(np.nan_to_num(values))
        rows[np.isnan(values).any(-1)] = 255  # so are the scales
        view(buffer, np.uint8)[: rows.size] = rows.ravel()
        return
    found = values.view(np.uint32) >> 16 if fmt == "bf16" else values.astype(kinds[fmt]).view(np.uint8)
    view(buffer, np.uint16 if fmt == "bf16" else np.uint8)[:] = found.ravel()


class Pages:
    """k and v (batch, kv_heads, context, head_dim) in pages that lie in any order in one arena, NaN beyond them."""

    def __init__(self, k: Floats, v: Floats, page: int, fmt: "KvFormat", rng: np.random.Generator) -> None:
        batch, heads, context, dim = k.shape
        count = -(-context // page)
        self.page, self.context, row = page, context, row_size(dim, fmt)
        self.strides = heads * page * row, page * row
        self.size = batch * heads * page * row
        self.buffer = Arena(2 * count * self.size + 64).alloc(2 * count * self.size, "pages")
        self.places = rng.permutation(2 * count).reshape(2, count)
        full = np.full((2 * count, batch, heads, page, dim), np.nan, np.float32)
        for values, places in zip((k, v), self.places, strict=True):
            for number, place in enumerate(places):
                part = values[:, :, number * page : (number + 1) * page]
                full[place, :, :, : part.shape[2]] = part
        fill(self.buffer, full, fmt)
        self.row = row

    def span(self, first: int, count: int) -> "KvSpan":
        """Positions of one page."""
        number, at = divmod(first, self.page)
        keys, values = (int(place) * self.size + at * self.row for place in self.places[:, number])
        return self.buffer, keys, self.buffer, values, *self.strides, first, count

    def cut(self, rng: np.random.Generator, cuts: int) -> list["KvSpan"]:
        """All positions: pages, cut at some more places."""
        ends = {*range(0, self.context, self.page), self.context, *rng.integers(0, self.context, cuts).tolist()}
        edges = sorted(ends)
        return [self.span(a, b - a) for a, b in itertools.pairwise(edges)]


def calls(spans: list["KvSpan"], rng: np.random.Generator) -> list[list["KvSpan"]]:
    """The spans in any order, over several calls, some of which may be empty."""
    shuffled = [spans[i] for i in rng.permutation(len(spans))]
    cuts = sorted(rng.integers(0, len(spans) + 1, rng.integers(0, 6)).tolist())
    return [shuffled[a:b] for a, b in zip([0, *cuts], [*cuts, len(spans)], strict=True)]


def normal(rng: np.random.Generator, *shape: int) -> Floats:
    return rng.standard_normal(shape, np.float32)


def random_case(rng: np.random.Generator, shape: Shape, context: int, tokens: int) -> tuple[Floats, Floats, Floats]:
    q = normal(rng, shape.batch, tokens, shape.heads, shape.head_dim)
    k, v = (
        stored(normal(rng, shape.batch, shape.kv_heads, context, shape.head_dim), shape.kv_format) for _ in range(2)
    )
    return q, k, v


@pytest.mark.parametrize(
    ("kv_format", "page"),
    [
        pytest.param(kv_format, page, marks=() if (row + column) % 5 == 0 else pytest.mark.nightly)
        for row, kv_format in enumerate(("f32", "f16", "bf16", "q8_0"))
        for column, page in enumerate((1, 3, 16, 128, 512))
    ],
)
def test_any_schedule_of_pages_equals_plain_attention(
    word_isa: str, two: Pool, page: int, kv_format: "KvFormat"
) -> None:
    """Stored values are exact here: the tolerance is f32's, but for q8_0, whose queries and weights are rounded."""
    rng = np.random.default_rng(page)
    for heads, kv_heads, head_dim, batch in ((8, 2, 128, 1), (5, 1, 24, 3)):
        head_dim = 96 if kv_format == "q8_0" and head_dim == 24 else head_dim
        shape = replace(LLAMA, heads=heads, kv_heads=kv_heads, head_dim=head_dim, rotary_dim=0, layers=1, batch=batch,
                        capacity=1100, kv_format=kv_format)  # fmt: skip
        paged = Paged(shape, two)
        for context, tokens in ((1, 1), (1090 if page > 16 else 300, 1), (150, 21)):
            q, k, v = random_case(rng, shape, context, tokens)
            pages, past = Pages(k, v, page, kv_format, rng), context - tokens
            plain, exact = paged.plain(q, k, v), expected(q, k, v)
            tolerance = 2e-4 if kv_format == "q8_0" and tokens == 1 else 1e-5
            close(plain, exact, tolerance)
            close(paged.attend(q, [pages.cut(rng, 0)], past), exact, tolerance)
            close(paged.attend(q, calls(pages.cut(rng, 20), rng), past), plain, tolerance)


def bf16_attention(q: Floats, k: Floats, v: Floats) -> tuple[Floats, Floats]:
    """Return the attention output that numpy computes from scaled queries, keys and values rounded to bf16, and that of
    the values' magnitudes: rounding the attention weights moves an output by at most a 256th of the latter."""
    root = np.float32(np.sqrt(q.shape[-1]))
    scaled = nearest_bf16(q / root) * root
    return expected(scaled, nearest_bf16(k), nearest_bf16(v)), expected(
        scaled, nearest_bf16(k), np.abs(nearest_bf16(v))
    )


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "batch", "kv_format"),
    one_in(
        2,
        [
            pytest.param(*heads, kv_format, marks=() if (row + column) % 2 == 0 else pytest.mark.nightly)
            for row, heads in enumerate(((8, 2, 128, 1), (5, 1, 40, 3), (3, 3, 64, 1), (2, 1, 7, 1)))
            for column, kv_format in enumerate(("f32", "f16", "bf16", "q8_0"))
        ],
    ),
)
def test_prompts_in_bf16_multiply_rounded_numbers(
    isa: str, two: Pool, heads: int, kv_heads: int, head_dim: int, batch: int, kv_format: "KvFormat"
) -> None:
    """A stage in bf16 rounds queries, keys and values of prompts, whatever the pages, and attends one token in f32."""
    rng = np.random.default_rng(heads)
    head_dim = 96 if kv_format == "q8_0" and head_dim % 32 != 0 else head_dim
    shape = replace(LLAMA, heads=heads, kv_heads=kv_heads, head_dim=head_dim, rotary_dim=0, layers=1, batch=batch,
                    capacity=300, kv_format=kv_format)  # fmt: skip
    paged = Paged(shape, two, "bf16")
    for context, tokens in ((150, 21), (41, 41), (2, 2), (299, 2)):
        q, k, v = random_case(rng, shape, context, tokens)
        pages, past = Pages(k, v, 16, kv_format, rng), context - tokens
        exact, magnitude = bf16_attention(q, k, v)
        for found in (paged.plain(q, k, v), paged.attend(q, calls(pages.cut(rng, 9), rng), past)):
            assert (np.abs(found - exact) <= magnitude / 256 + 1e-5).all()
            away = np.abs(found - expected(q, k, v))
            assert away.max() > 1e-4
            if context > 40 and kv_format != "bf16":  # whose keys and values lose nothing
                assert np.abs(found - exact).mean() < 0.6 * away.mean()
    q, k, v = random_case(rng, shape, 150, 1)
    close(paged.plain(q, k, v), expected(q, k, v), 2e-4 if kv_format == "q8_0" else 1e-5)


def spread(rng: np.random.Generator, *shape: int) -> Floats:
    """Normal values of which some positions, and some columns, are up to 3,000 times larger than others."""
    sizes = np.exp(rng.uniform(-4, 4, (*shape[:-1], 1))) * np.exp(rng.uniform(-2, 2, (*shape[:-2], 1, shape[-1])))
    return normal(rng, *shape) * sizes.astype(np.float32)


def coded_bound(q: Floats, k: Floats, v: Floats) -> NDArray[np.float64]:
    """Return the largest error that csrc/kernels/kernels.h allows decode over q8_0 rows, for q (heads, dim), k and v
    (context, dim)."""
    dim, (exact_q, exact_k) = q.shape[1], (x.astype(np.float64) for x in (q, k))
    scores, total = exact_q @ exact_k.T / np.sqrt(dim), np.abs(exact_q) @ np.abs(exact_k).T
    word = np.abs(q).max(1, keepdims=True) / 65534 * np.abs(exact_k).sum(1) + 2.0**-18 * total
    weights = np.exp(scores - scores.max(1, keepdims=True))
    moved = np.expm1(2 * (word / np.sqrt(dim)).max(1, keepdims=True)) + 1e-5
    rows = q8_rows(v)
    codes, scales = rows[:, :dim].view(np.int8), np.ascontiguousarray(rows[:, dim:]).view(np.float16).astype(np.float64)
    bound = moved * (weights @ np.abs(v))
    for first in range(0, len(v), 16):
        part = slice(first, first + 16)
        largest = (weights[:, part, None] * scales[part]).max((1, 2))
        bound += largest[:, None] / 65000 * np.abs(codes[part].astype(np.float64)).sum(0)
    return np.asarray(bound / weights.sum(1, keepdims=True))


@pytest.mark.parametrize(("group", "dim"), [(1, 128), (2, 64), (4, 128), (7, 96)])
def test_decode_over_codes_is_within_its_bound(word_isa: str, two: Pool, group: int, dim: int) -> None:
    """Any magnitudes, an attention sink with the smallest values, and queries that one column dominates."""
    rng = np.random.default_rng(group)
    shape = replace(
        LLAMA, heads=group, kv_heads=1, head_dim=dim, rotary_dim=0, layers=1, capacity=512, kv_format="q8_0"
    )
    paged = Paged(shape, two)
    for extreme in (False, True):
        make = spread if extreme else normal
        q, k, v = (make(rng, 1, 1, rows, dim) for rows in (group, 500, 500))
        if extreme:
            v[0, 0, 0], k[0, 0, 0], q[..., 3] = 1e-3 * v[0, 0, 0], q[0, 0, 0], 100
            q /= np.sqrt(np.square(q).sum(-1, keepdims=True)) / 8
        k, v = stored(k, "q8_0"), stored(v, "q8_0")
        found, exact = paged.attend(q, [Pages(k, v, 128, "q8_0", rng).cut(rng, 0)], 499), expected(q, k, v)
        bound = coded_bound(q[0, 0], k[0, 0], v[0, 0])
        assert (np.abs(found - exact)[0, 0] <= bound).all()
        if not extreme:
            assert bound.max() < 2e-3 * np.abs(v).max()


def test_many_random_schedules(pool: Pool) -> None:
    rng = np.random.default_rng(1)
    shape = replace(LLAMA, heads=6, kv_heads=3, head_dim=16, rotary_dim=0, layers=1, batch=2, capacity=700,
                    kv_format="f16")  # fmt: skip
    paged = Paged(shape, pool)
    for _ in range(60):
        tokens = int(rng.choice([1, 1, 2, 9, 50]))
        context = tokens + int(rng.integers(0, 600))
        q, k, v = random_case(rng, shape, context, tokens)
        pages = Pages(k, v, int(rng.choice([1, 3, 16, 128, 512])), "f16", rng)
        close(paged.attend(q, calls(pages.cut(rng, 9), rng), context - tokens), expected(q, k, v), 1e-5)


@pytest.mark.parametrize("tokens", [1, 5])
def test_whole_pages_in_order_leave_the_same_bits(word_isa: str, two: Pool, tokens: int) -> None:
    """No head is cut between two threads here, and pages are whole tiles."""
    rng = np.random.default_rng(3)
    shape = replace(QWEN3, layers=1, head_dim=64, rotary_dim=0, capacity=1400, kv_format="bf16", batch=3)
    paged = Paged(shape, two)
    q, k, v = random_case(rng, shape, 1300, tokens)
    plain = paged.plain(q, k, v)
    for page in (256, 512):
        spans = Pages(k, v, page, "bf16", rng).cut(rng, 0)
        for cuts in ([], [1], [2], [1, 2]):
            edges = [0, *cuts, len(spans)]
            given = [spans[a:b] for a, b in itertools.pairwise(edges)]
            np.testing.assert_array_equal(paged.attend(q, given, 1300 - tokens), plain)


def test_the_papers_six_tokens(word_isa: str, pool: Pool) -> None:
    """HELM, table 4.2 (E-HELM-22): scores 2 4 1 0 1 2 and values 10 30 5 2 8 12, a token at a time."""
    shape = replace(LLAMA, heads=1, kv_heads=1, head_dim=1, rotary_dim=0, layers=1, hidden=16)
    paged = Paged(shape, pool)
    k = np.array([2, 4, 1, 0, 1, 2], np.float32).reshape(1, 1, 6, 1)
    v = np.array([10, 30, 5, 2, 8, 12], np.float32).reshape(1, 1, 6, 1)
    pages = Pages(k, v, 1, "f32", np.random.default_rng(0))
    paged.rows("q", 1)[:] = 1
    found = []
    for token in range(6):
        paged.stage.attend(0, [pages.span(token, 1)], token == 0, False, 1, 5)
        found.append(float(paged.rows("attended", 1)[0, 0]))
    np.testing.assert_allclose(found, [10, 31.3534, 31.6023, 31.6389, 32.0372, 33.6612], atol=1e-4)
    paged.stage.attend(0, [], False, True, 1, 5)
    assert paged.rows("attended", 1)[0, 0] == pytest.approx(33.6612 / 1.3886, abs=1e-3)
    assert paged.rows("attended", 1)[0, 0] == pytest.approx(24.2418, abs=1e-4)


@pytest.mark.parametrize("tokens", [1, 4])
def test_nothing_seen_is_no_error(word_isa: str, two: Pool, tokens: int) -> None:
    """Empty calls and spans, and spans that no token may see, change nothing; a row that sees nothing is zero."""
    rng = np.random.default_rng(4)
    shape = replace(LLAMA, rotary_dim=0, layers=1, capacity=100)
    paged = Paged(shape, two)
    q, k, v = random_case(rng, shape, 90, tokens)
    pages = Pages(k, v, 100, "f32", rng)
    some, later = pages.span(0, 60), pages.span(60, 30)
    close(paged.attend(q, [[], [pages.span(3, 0)], [some], [later], []], 60 - tokens),
          expected(q, k[:, :, :60], v[:, :, :60]), 1e-5)  # fmt: skip
    assert not paged.attend(q, [[]], 50).any()
    assert not paged.attend(q, [[later], [], [later, later]], 60 - tokens).any()
    if tokens > 1:
        found = paged.attend(q, [[later]], 59)
        assert not found[:, 0].any()
        close(found[:, 1:], expected(q[:, 1:], k[:, :, 60:63], v[:, :, 60:63]), 1e-5)


@pytest.mark.parametrize("tokens", [1, 3])
def test_extreme_scores(word_isa: str, two: Pool, tokens: int) -> None:
    """Neither overflow nor NaN (E-HELM-21), whichever order the largest comes in."""
    rng = np.random.default_rng(5)
    shape = replace(LLAMA, heads=2, kv_heads=1, rotary_dim=0, layers=1, capacity=100)
    paged = Paged(shape, two)
    q, k, v = random_case(rng, shape, 96, tokens)
    for factor in (1e30, -1e30, 1e37, 1e-38, 0.0):
        pages = Pages(k * np.float32(factor), v, 16, "f32", rng)
        for order in (slice(None), slice(None, None, -1)):
            found = paged.attend(q, [[span] for span in pages.cut(rng, 0)[order]], 96 - tokens)
            assert np.isfinite(found).all()
            close(found, expected(q, k * np.float32(factor), v), 1e-5)


def test_a_queue_attends_after_what_it_waits_for(two: Pool) -> None:
    rng = np.random.default_rng(6)
    shape = replace(LLAMA, rotary_dim=0, layers=1, capacity=100)
    paged, queue, ready, done = Paged(shape, two), Queue(), Event(), Event()
    q, k, v = random_case(rng, shape, 90, 1)
    spans = Pages(k, v, 16, "f32", rng).cut(rng, 0)
    times = np.zeros((2, 2))
    paged.rows("q", 1)[:] = q.reshape(1, -1)
    queue.attend(paged.stage, 0, spans[:2], True, False, 1, 89, times[0], [ready], None)
    queue.attend(paged.stage, 0, spans[2:], False, True, 1, 89, times[1], [], done)
    assert not done.done
    Queue().attend(paged.stage, 0, [], False, False, 1, 0, done=ready)
    done.wait()
    queue.synchronize()
    close(paged.rows("attended", 1).reshape(q.shape), expected(q, k, v), 1e-5)
    assert ready.time <= times[0, 0] <= times[0, 1] <= times[1, 0] <= times[1, 1] <= done.time


class Ring(Native):
    """A model whose caches are rings of its capacity, with pages that left them in buffers of the whole context."""

    def __init__(self, weights: Weights, pool: Pool, ring: int, page: int) -> None:
        self.ring, self.page = ring, page
        super().__init__(weights, pool)
        s = self.s
        self.heads_at = s.capacity * row_size(s.head_dim, s.kv_format)
        size = s.batch * s.kv_heads * self.heads_at
        names = "keys", "values"
        self.homes = [{name: self.arena.alloc(size, name) for name in names} for _ in range(s.layers)]

    def _spec(self, first: int, last: int) -> Any:
        return super()._spec(first, last) | {
            "paged": True, "capacity": self.ring, "context": self.s.capacity, "max_tokens": self.page
        }  # fmt: skip

    def step(self, ids: NDArray[np.int32], past: int) -> None:
        """Every block up to `append`, attention over what left the ring and then what is in it, and the rest."""
        tokens, ops = ids.shape[1], self.stage.ops
        given = self.arena.alloc(ids.nbytes, "ids")
        view(given, np.int32)[:] = ids.ravel()
        chosen = self.arena.alloc(4 * self.s.batch, "chosen")
        begin = 0
        for layer in range(self.s.layers):
            end = ops.index(f"{layer}.attention")
            self.stage.run(given if begin == 0 else None, None, tokens, past, np.zeros(end - begin + 1), begin, end)
            self._keep(layer, past, tokens)
            spans = self._spans(layer, past + tokens)
            for number, span in enumerate(spans):
                self.stage.attend(layer, [span], number == 0, number == len(spans) - 1, tokens, past)
            begin = end + 1
        self.stage.run(None, chosen, tokens, past, np.zeros(len(ops) - begin + 1), begin)

    def _array(self, buffer: Buffer, rows: int) -> NDArray[Any]:
        heads, row = self.s.batch * self.s.kv_heads, self.heads_at // self.s.capacity
        return view(buffer, np.uint8)[: heads * rows * row].reshape(heads, rows, row)

    def _keep(self, layer: int, past: int, tokens: int) -> None:
        block = self.spec["blocks"][layer]
        for name in ("keys", "values"):
            home = self._array(self.homes[layer][name], self.s.capacity)
            for position in range(past, past + tokens):
                home[:, position] = self._array(block[name], self.ring)[:, position % self.ring]

    def _spans(self, layer: int, context: int) -> list["KvSpan"]:
        """Pages that left the ring, then the ring's two runs."""
        s, block, home = self.s, self.spec["blocks"][layer], self.homes[layer]
        evicted = max(0, -(-(context - self.ring) // self.page)) * self.page
        row = self.heads_at // s.capacity
        found: list[KvSpan] = [
            (home["keys"], at * row, home["values"], at * row, s.kv_heads * self.heads_at, self.heads_at, at, self.page)
            for at in range(0, evicted, self.page)
        ]
        edges = sorted({evicted, context, *range(0, context, self.ring)})
        for a, b in itertools.pairwise(edges):
            if a >= evicted:
                at, head = a % self.ring * row, self.ring * row
                found.append((block["keys"], at, block["values"], at, s.kv_heads * head, head, a, b - a))
        return found


@pytest.mark.parametrize("shape", [QWEN3, OPT])
def test_a_model_in_rings_equals_the_reference(two: Pool, shape: Shape) -> None:
    """Contexts of twice the ring: rotations and learned positions go on counting."""
    weights = Weights(replace(shape, batch=2, capacity=70))
    ring, ids = Ring(weights, two, 32, 8), prompt(weights.shape, 66)
    logits, past = Reference(weights).logits(ids), 0
    for tokens in (8, 8, 8, 8, 8, 5, *[1] * 20):
        ring.step(ids[:, past : past + tokens], past)
        past += tokens
        close(ring.logits(), logits[:, past - 1])
    with pytest.raises(ValueError, match="exceed the capacity"):
        ring.run(ids[:, :1], 40)


@pytest.mark.parametrize("tokens", [1, 7])
def test_append_rounds_as_ggufs_blocks_do(base_isa: str, two: Pool, tokens: int) -> None:
    """The rows that a pass leaves are those of its keys and values, in a ring too; extremes are finite."""
    shape = replace(LLAMA, layers=1, head_dim=64, rotary_dim=0, batch=2, capacity=16, kv_format="q8_0", bias=True)
    ring = Ring(Weights(replace(shape, capacity=40)), two, 16, 8)
    rng = np.random.default_rng(9)
    k, v = (rng.standard_normal((2, tokens, 2, 64), np.float32) * np.float32(10) ** rng.integers(-6, 6) for _ in "kv")
    k[0, 0, 0, :32], k[0, 0, 1, :3], v[1, 0, 0, :32] = 0, (1e9, -1e9, np.nan), np.arange(-15.5, 16.5)
    rows = {name: view(ring.workspace, np.float32)[ring.stage.regions()[name]["offset"] // 4 :] for name in "qkv"}
    rows["q"][: tokens * 2 * 256] = 0
    rows["k"][: k.size], rows["v"][: v.size] = k.ravel(), v.ravel()
    at = ring.stage.ops.index("0.append")
    ring.stage.run(None, None, tokens, 20, np.zeros(2), at, at + 1)
    for name, values in (("keys", k), ("values", v)):
        wanted = q8_rows(np.clip(np.nan_to_num(values, nan=0.0), -65504, 65504)).swapaxes(1, 2)
        found = ring._array(ring.spec["blocks"][0][name], 16).reshape(2, 2, 16, -1)
        np.testing.assert_array_equal(found[:, :, [(20 + t) % 16 for t in range(tokens)]], wanted)


def test_the_running_state_is_part_of_the_workspace(two: Pool) -> None:
    native = Native(Weights(replace(LLAMA, batch=3, capacity=40)), two)
    plain, paged = (Stage.workspace_size(prepared(native.spec | more)) for more in ({}, {"paged": True}))
    assert paged - plain == -(-3 * 40 * 4 * 8 // 64) * 64


def test_bad_spans_are_refused(two: Pool) -> None:
    shape = replace(LLAMA, rotary_dim=0, layers=1, batch=2)
    paged = Paged(shape, two)
    size = 2 * 2 * 10 * 16 * 4
    buffer = Arena(1 << 16).alloc(size, "page")
    good = (buffer, 0, buffer, 0, size // 2, size // 4, 0, 10)
    paged.stage.attend(0, [good], True, True, 1, 9)

    def changed(at: int, value: int) -> "KvSpan":
        return cast("KvSpan", (*good[:at], value, *good[at + 1 :]))

    for at, value in ((1, 64), (3, -64), (4, size), (5, size), (7, 11), (6, -1), (7, 1 << 62), (1, 1 << 40)):
        with pytest.raises((ValueError, TypeError), match=r"do not fit|must be between|too large"):
            paged.stage.attend(0, [changed(at, value)], True, True, 1, 9)
    for block, tokens, past, says in ((1, 1, 9, "no block"), (0, 65, 0, "at a time"), (0, 1, 40, "at a time"),
                                      (0, 0, 9, "tokens"), (0, 41, 0, "at a time")):  # fmt: skip
        with pytest.raises(ValueError, match=says):
            paged.stage.attend(block, [good], True, True, tokens, past)
    spec = cast("DenseSpec", Native(Weights(LLAMA), two).spec)
    for change, says in (({"context": 50}, "context"), ({"paged": True, "attention": "divided"}, "divided")):
        with pytest.raises(ValueError, match=says):
            Stage.workspace_size(
                prepared(cast("DenseSpec", {**spec, "cos": None, "sin": None, "rotary_dim": 0, **change}))
            )
    with pytest.raises(ValueError, match="paged"):
        Native(Weights(LLAMA), two).stage.attend(0, [], True, True, 1, 0)
