"""Ranges of a stage's operations, and operations divided between two stages, against the whole run."""

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from daily import one_in
from numpy.typing import NDArray
from test_stage_native import LLAMA, OPT, QWEN3, Native, Shape, Weights, close, prompt, view
from together import together

from helmsman.executor import _kernels as kernels
from helmsman.executor._kernels import Arena, Buffer, Pool, Stage
from helmsman.executor.stages.dense import prepared

CPUS = sorted(os.sched_getaffinity(0))
WIDE = replace(LLAMA, hidden=96, ffn=144, layers=1, capacity=150, batch=1)
SHAPES = {"llama": WIDE, "qwen3": replace(QWEN3, layers=1, batch=3), "opt": replace(OPT, layers=1, heads=4)}


class Part(Native):
    """A stage of some blocks whose operations are run range by range, with `changes` to its spec and blocks."""

    def __init__(self, weights: Weights, pool: Pool, divided: bool, **blocks: Any) -> None:
        self.w, self.s = weights, weights.shape
        self.arena, self.embeds, self.heads = Arena(64 << 20), False, False
        self.spec = self._spec(0, self.s.layers)
        self.spec |= {"attention": "divided" if divided else "fused", "gated": self.s.gated}
        for block in self.spec["blocks"]:
            block |= blocks
        self.workspace = self.arena.alloc(Stage.workspace_size(prepared(self.spec)), "workspace")
        view(self.workspace, np.uint32)[:] = 0x7FC00000  # NaN: nothing may be read before it is written
        self.stage = Stage(pool, prepared(self.spec), self.workspace, 0)

    def segment(self, source: Buffer | None, target: Buffer | None, tokens: int, past: int, *bounds: int) -> None:
        stamps = np.zeros(bounds[1] - bounds[0] + 1)
        self.stage.run(source, target, tokens, past, stamps, *bounds)
        assert (np.diff(stamps) >= 0).all()
        assert stamps[0] > 0

    def region(self, name: str, rows: int) -> NDArray[np.float32]:
        """(rows, floats of a row) of the workspace."""
        at = self.stage.regions()[name]
        start, floats = at["offset"] // 4, at["stride"] // 4
        whole = view(self.workspace, np.float32)[start : start + rows * floats].reshape(rows, floats)
        return whole[:, : at["row_bytes"] // 4]

    def index(self, name: str) -> int:
        return self.stage.ops.index(f"0.{name}")

    def part(self, name: str, begin: int, end: int) -> Any:
        """Output rows [begin, end) of a linear operation."""
        values, bias = self.w.values[f"0.{name}"][begin:end], self.w.values[f"0.{name}.bias"][begin:end]
        buffer = self.arena.alloc(kernels.packed_size(self.s.fmt, *values.shape), name)
        kernels.pack(np.ascontiguousarray(values), "f32", buffer, self.s.fmt, *values.shape)
        found = {"weight": buffer, "format": self.s.fmt, "rows": end - begin, "columns": values.shape[1]}
        return found | {"bias": bias.copy() if self.s.bias else None, "first": begin}


def states(shape: Shape, tokens: int, seed: int = 3) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((shape.batch, tokens, shape.hidden)).astype(np.float32)


def placed(arena: Arena, values: NDArray[Any]) -> Buffer:
    buffer = arena.alloc(values.nbytes, "values")
    view(buffer, values.dtype.type)[:] = values.ravel()
    return buffer


@pytest.fixture(scope="module", params=[1, 2, 3])
def pool(request: pytest.FixtureRequest) -> Pool:
    return Pool([CPUS[0], CPUS[-1], CPUS[0]][: request.param])


@pytest.fixture(scope="module")
def two() -> Pool:
    return Pool([CPUS[0], CPUS[-1]])


def passes(shape: Shape) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """(past, states): a prompt, then two tokens one by one."""
    for past, tokens, seed in ((0, 21, 1), (21, 1, 2), (22, 1, 3)):
        yield past, states(shape, tokens, seed)


def whole(weights: Weights, pool: Pool, divided: bool) -> list[NDArray[np.float32]]:
    stage = Part(weights, pool, divided)
    return [stage.run(given, past).copy() for past, given in passes(weights.shape)]


@pytest.mark.parametrize(
    ("name", "divided"),
    one_in(
        2,
        [
            pytest.param(name, divided, marks=() if (place + divided) % 2 == 0 else pytest.mark.nightly)
            for place, name in enumerate(SHAPES)
            for divided in (False, True)
        ],
    ),
)
def test_any_partition_equals_the_whole(pool: Pool, name: str, divided: bool) -> None:
    weights = Weights(replace(SHAPES[name], layers=2))
    expected = whole(weights, pool, divided)
    rng = np.random.default_rng(5)
    count = len(Part(weights, pool, divided).stage.ops)
    partitions = [list(range(count + 1))]
    partitions += [[0, *sorted(rng.choice(range(1, count), size, replace=False)), count] for size in (2, 9)]
    for bounds in partitions:
        stage = Part(weights, pool, divided)
        for (past, given), wanted in zip(passes(weights.shape), expected, strict=True):
            source, target = placed(stage.arena, given), stage.arena.alloc(given.nbytes, "target")
            for first, last in pairwise(bounds):
                ends = source if first == 0 else None, target if last == count else None
                stage.segment(*ends, given.shape[1], past, int(first), int(last))
            np.testing.assert_array_equal(view(target, np.float32), wanted.ravel())


def test_a_whole_model_in_ranges_chooses_the_same_ids(two: Pool) -> None:
    weights = Weights(replace(LLAMA, batch=2))
    one, other, ids = Native(weights, two), Native(weights, two), prompt(replace(LLAMA, batch=2), 9)
    expected = one.run(ids, 0)
    count, target = len(other.stage.ops), other.arena.alloc(8, "target")
    bounds = [0, 1, 5, count - 2, count - 1, count]
    for first, last in pairwise(bounds):
        source = placed(other.arena, ids) if first == 0 else None
        stamps = np.zeros(last - first + 1)
        other.stage.run(source, target if last == count else None, 9, 0, stamps, first, last)
    np.testing.assert_array_equal(view(target, np.int32), expected)
    np.testing.assert_array_equal(other.logits(), one.logits())


def test_prompts_pass_layer_by_layer_in_place(two: Pool) -> None:
    """300 tokens are three chunks; the hidden states of the whole prompt are read and written in one buffer."""
    weights = Weights(replace(LLAMA, capacity=310))
    one, other, ids = Native(weights, two), Native(weights, two), prompt(LLAMA, 300)
    expected, count = one.run(ids, 0), len(other.stage.ops)
    hidden, target = other.arena.alloc(300 * LLAMA.hidden * 4, "hidden"), other.arena.alloc(4, "target")
    blocks = [other.stage.ops.index(op) for op in ("0.norm1", "0.norm2", "1.norm1", "final_norm")]
    bounds = [0, *blocks, count]
    for first, last in pairwise(bounds):
        source = placed(other.arena, ids) if first == 0 else hidden
        stamps = np.zeros(last - first + 1)
        other.stage.run(source, target if last == count else hidden, 300, 0, stamps, first, last)
    np.testing.assert_array_equal(view(target, np.int32), expected)
    np.testing.assert_array_equal(other.logits(), one.logits())


def test_a_chunk_goes_through_all_ranges_before_the_next(two: Pool) -> None:
    """Within blocks too, as hidden states come from and go to their rows of the whole prompt."""
    shape = replace(LLAMA, capacity=150, batch=3)
    weights = Weights(shape)
    one, other, given = Part(weights, two, True), Part(weights, two, True), states(shape, 100)
    expected = one.run(given, 0)
    hidden, count = placed(other.arena, given), len(other.stage.ops)
    for start, stop in ((0, 42), (42, 84), (84, 100)):
        for first in range(count):
            ends = (hidden if first == 0 else None, hidden if first == count - 1 else None)
            other.stage.run(*ends, 100, 0, np.zeros(2), first, first + 1, start, stop)
    np.testing.assert_array_equal(view(hidden, np.float32), expected.ravel())
    with pytest.raises(ValueError, match=r"no tokens \[84, 101\) among 100"):
        other.stage.run(hidden, hidden, 100, 0, np.zeros(2), 0, 1, 84, 101)
    with pytest.raises(ValueError, match=r"tokens \(84\) pass in chunks of 42"):
        other.stage.run(hidden, None, 100, 0, np.zeros(2), 0, 1, 0, 84)


def test_a_part_leaves_its_own_columns(two: Pool) -> None:
    """Others may be coming from where they were made."""
    weights = Weights(WIDE)
    stage = Part(weights, two, True)
    stage = Part(weights, two, True, down=stage.part("down", 32, 64))
    given, down = states(WIDE, 9), stage.index("down")
    source, target = placed(stage.arena, given), placed(stage.arena, np.full_like(given, 7))
    stage.segment(source, None, 9, 0, 0, down)
    before = stage.region("hidden", 9).copy()
    stage.segment(None, target, 9, 0, down, down + 1)
    left = view(target, np.float32).reshape(9, WIDE.hidden)
    np.testing.assert_array_equal(left[:, 32:64], stage.region("hidden", 9)[:, 32:64])
    assert (left[:, :32] == 7).all() and (left[:, 64:] == 7).all() and (left[:, 32:64] != before[:, 32:64]).all()


def test_a_part_takes_the_columns_that_it_adds_to(two: Pool) -> None:
    """Others may be on their way to the same rows, and norms read all."""
    weights = Weights(WIDE)
    stage = Part(weights, two, True)
    stage = Part(weights, two, True, down=stage.part("down", 32, 64))
    down, given, own = stage.index("down"), states(WIDE, 9), slice(32, 64)
    source, outside = placed(stage.arena, given), np.r_[0:32, 64 : WIDE.hidden]
    stage.segment(source, None, 9, 0, 0, down)
    stage.region("hidden", 9)[:] = given[0]
    stage.segment(None, None, 9, 0, down, down + 1)
    expected = stage.region("hidden", 9)[:, own].copy()
    for first, left in ((down, 7), (stage.index("norm2"), given[0][:, outside])):
        stage.region("hidden", 9)[:] = 7
        stage.segment(source, None, 9, 0, first, down + 1)
        assert (stage.region("hidden", 9)[:, outside] == left).all()
        if first == down:
            np.testing.assert_array_equal(stage.region("hidden", 9)[:, own], expected)


LIVE = {
    "norm1": "normed", "q": "q", "k": "k", "v": "v", "append": "q", "attention": "attended", "scores": "scores",
    "softmax": "scores", "wv": "attended", "o": "hidden", "norm2": "normed", "gate": "gate", "up": "up",
    "down": "hidden",
}  # fmt: skip


def exchange(source: Part, target: Part, rows: int, op: str) -> None:
    """What later operations may need once `op` has run, and nothing else: other regions share memory with it."""
    live = {"hidden", LIVE[op]}
    if op in ("q", "k", "v"):
        live |= {"normed", "q", "k", "v"}
    if op == "gate":
        live |= {"normed"}
    if op in ("scores", "softmax"):
        live |= {"q"}
    for name in live:
        target.region(name, rows)[:] = source.region(name, rows)


def share_caches(a: Part, b: Part) -> None:
    for one, other in zip(a.spec["blocks"], b.spec["blocks"], strict=True):
        for name in ("keys", "values"):
            view(other[name], np.uint8)[:] = view(one[name], np.uint8)


@pytest.mark.parametrize("divided", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_two_stages_at_every_cut(two: Pool, name: str, divided: bool) -> None:
    weights = Weights(SHAPES[name])
    expected = whole(weights, two, divided)
    ops = [op.split(".")[1] for op in Part(weights, two, divided).stage.ops]
    for cut in range(1, len(ops)):
        a, b = Part(weights, two, divided), Part(weights, two, divided)
        for (past, given), wanted in zip(passes(weights.shape), expected, strict=True):
            tokens, target = given.shape[1], b.arena.alloc(given.nbytes, "target")
            a.segment(placed(a.arena, given), None, tokens, past, 0, cut)
            exchange(a, b, weights.shape.batch * tokens, ops[cut - 1])
            if "append" in ops[:cut]:
                share_caches(a, b)
            b.segment(None, target, tokens, past, cut, len(ops))
            np.testing.assert_array_equal(view(target, np.float32), wanted.ravel(), err_msg=ops[cut - 1])


OUTPUT = {"q": "q", "k": "k", "v": "v", "o": "hidden", "gate": "gate", "up": "up", "down": "hidden"}
INPUT = {"o": ("attended", "hidden"), "up": ("normed", "gate"), "down": ("up", "hidden")}


@pytest.mark.parametrize("op", OUTPUT)
@pytest.mark.parametrize("name", SHAPES)
def test_rows_of_an_operation_on_two_stages(two: Pool, name: str, op: str) -> None:
    """The other stage has only this operation's last rows; they meet in the workspace of the first."""
    shape = SHAPES[name]
    if op == "gate" and not shape.gated:
        return
    weights = Weights(shape)
    expected = whole(weights, two, True)
    rows = weights.values[f"0.{op}"].shape[0]
    for cut in {16, rows // 32 * 16, (rows - 1) // 16 * 16} - {0}:
        a, b = Part(weights, two, True), Part(weights, two, True)
        a = Part(weights, two, True, **{op: a.part(op, 0, cut)})
        nothing = dict.fromkeys((*OUTPUT, "norm1", "norm2", "keys", "values"))
        b = Part(weights, two, True, **nothing | {op: b.part(op, cut, rows)})
        at = a.index(op)
        for (past, given), wanted in zip(passes(shape), expected, strict=True):
            tokens, count = given.shape[1], shape.batch * given.shape[1]
            a.segment(placed(a.arena, given), None, tokens, past, 0, at)
            for region in set(INPUT.get(op, ("normed",))) & set(a.stage.regions()):
                b.region(region, count)[:] = a.region(region, count)
            a.segment(None, None, tokens, past, at, at + 1)
            b.segment(None, None, tokens, past, at, at + 1)
            a.region(OUTPUT[op], count)[:, cut:rows] = b.region(OUTPUT[op], count)[:, cut:rows]
            if at + 1 < len(a.stage.ops):
                a.segment(None, None, tokens, past, at + 1, len(a.stage.ops))
            close(a.region("hidden", count), wanted.reshape(count, -1), 1e-5)


def test_a_gate_that_is_another_part_than_up_is_waited_for(pool: Pool) -> None:
    """`up` activates rows [16, 80) with a gate that all threads have computed for all rows."""
    weights = Weights(WIDE)
    a = Part(weights, pool, False)
    b = Part(weights, pool, False, up=a.part("up", 16, 80))
    given = states(WIDE, 5)
    for stage in (a, b):
        stage.segment(placed(stage.arena, given), None, 5, 0, 0, stage.index("down"))
    np.testing.assert_array_equal(b.region("up", 5)[:, 16:80], a.region("up", 5)[:, 16:80])


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("heads", [(4, 4), (8, 4)])
@pytest.mark.parametrize("cut", [1, 3])
def test_heads_of_scores_and_wv_on_two_stages(pool: Pool, heads: tuple[int, int], batch: int, cut: int) -> None:
    shape = replace(WIDE, heads=heads[0], kv_heads=heads[1], batch=batch)
    weights = Weights(shape)
    expected = whole(weights, pool, True)
    a = Part(weights, pool, True, scores_heads=(0, cut), wv_heads=(0, cut))
    b = Part(weights, pool, True, scores_heads=(cut, heads[1]), wv_heads=(cut, heads[1]))
    group, stride = heads[0] // heads[1], -(-shape.capacity // 16) * 16
    for (past, given), wanted in zip(passes(shape), expected, strict=True):
        tokens, rows = given.shape[1], batch * given.shape[1]
        at = a.index("scores")
        a.segment(placed(a.arena, given), None, tokens, past, 0, at)
        share_caches(a, b)
        b.region("q", rows)[:] = a.region("q", rows)
        for stage in (a, b):
            stage.segment(None, None, tokens, past, at, at + 1)
        mine = slice(cut * group * stride, None)
        a.region("scores", rows)[:, mine] = b.region("scores", rows)[:, mine]
        a.segment(None, None, tokens, past, at + 1, at + 2)
        b.region("scores", rows)[:] = a.region("scores", rows)
        for stage in (a, b):
            stage.segment(None, None, tokens, past, at + 2, at + 3)
        mine = slice(cut * group * shape.head_dim, None)
        a.region("attended", rows)[:, mine] = b.region("attended", rows)[:, mine]
        target = a.arena.alloc(given.nbytes, "target")
        a.segment(None, target, tokens, past, at + 3, len(a.stage.ops))
        np.testing.assert_array_equal(view(target, np.float32), wanted.ravel())


def test_regions_do_not_overlap_where_both_are_live(two: Pool) -> None:
    stage = Part(Weights(WIDE), two, True)
    found, rows = stage.stage.regions(), 128
    assert set(found) == {"hidden", "normed", "q", "k", "v", "attended", "gate", "up", "scores"}
    for alive in (("hidden", "normed", "q", "k", "v"), ("hidden", "q", "scores", "attended"),
                  ("hidden", "normed", "gate", "up")):  # fmt: skip
        spans = sorted((found[n]["offset"], found[n]["offset"] + rows * found[n]["stride"]) for n in alive)
        assert all(a[1] <= b[0] for a, b in pairwise(spans))
        assert spans[-1][1] <= stage.workspace.size
    assert found["scores"]["row_bytes"] == 4 * WIDE.heads * 160


def test_blocks_may_share_buffers(two: Pool) -> None:
    """Two layers point to the same weights: what is in them when an operation runs is what counts."""
    weights = Weights(replace(WIDE, layers=2))
    expected = whole(weights, two, False)
    stage = Part(weights, two, False)
    names = [name for name in OUTPUT if name in stage.spec["blocks"][0]]
    stored = [[view(block[n]["weight"], np.uint8).copy() for n in names] for block in stage.spec["blocks"]]
    for name in names:
        stage.spec["blocks"][1][name] = stage.spec["blocks"][0][name]
    stage.stage = Stage(two, prepared(stage.spec), stage.workspace, 0)
    count = len(stage.stage.ops)
    for (past, given), wanted in zip(passes(weights.shape), expected, strict=True):
        hidden = placed(stage.arena, given)
        for layer, bounds in enumerate(((0, count // 2), (count // 2, count))):
            for name, values in zip(names, stored[layer], strict=True):
                view(stage.spec["blocks"][0][name]["weight"], np.uint8)[:] = values
            stage.segment(hidden, hidden, given.shape[1], past, *bounds)
        np.testing.assert_array_equal(view(hidden, np.float32), wanted.ravel())


def test_bad_ranges_are_refused(two: Pool) -> None:
    stage = Part(Weights(replace(LLAMA, capacity=200)), two, False)
    buffer, count = stage.arena.alloc(200 * 48 * 4, "hidden"), len(stage.stage.ops)
    for first, last in ((0, 0), (3, 2), (0, count + 1), (count, count)):
        with pytest.raises(ValueError, match="no range of operations"):
            stage.stage.run(buffer, buffer, 1, 0, np.zeros(count + 2), first, last)
    with pytest.raises(ValueError, match="first"):
        stage.stage.run(buffer, buffer, 1, 0, np.zeros(count + 1), -1, 2)
    with pytest.raises(ValueError, match="stamps has"):
        stage.stage.run(buffer, buffer, 1, 0, np.zeros(3), 0, 3)
    for source, target, bounds in ((None, None, (0, 3)), (buffer, None, (0, 11)), (buffer, buffer, (0, 3)),
                                   (buffer, buffer, (1, 11)), (None, buffer, (0, 11))):  # fmt: skip
        with pytest.raises(ValueError, match="in chunks of 128"):
            stage.stage.run(source, target, 129, 0, np.zeros(12), *bounds)
    model = Native(Weights(LLAMA), two)
    with pytest.raises(ValueError, match="needs a source"):
        model.stage.run(None, None, 1, 0, np.zeros(2), 0, 1)


@together("missing", ["norm1", "q", "k", "v", "o", "norm2", "gate", "up", "down", "keys", "values"])
def test_what_is_missing_cannot_run(two: Pool, missing: str) -> None:
    stage = Part(Weights(WIDE), two, True, **{missing: None})
    buffer = stage.arena.alloc(WIDE.hidden * 4, "hidden")
    needs = {"keys": "0.append", "values": "0.append"}.get(missing, f"0.{missing}")
    assert "0.gate" in stage.stage.ops
    with pytest.raises(ValueError, match=f"nothing to run {needs} with"):
        stage.stage.run(buffer, buffer, 1, 0, np.zeros(len(stage.stage.ops) + 1))
    at = stage.stage.ops.index(needs)
    stage.segment(buffer, None, 1, 0, 0, at) if at else None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"first": 8}, "multiple of 16"),
        ({"first": 64}, "expected a part"),
        ({"first": -16}, "first"),
        ({"columns": 48}, "expected a part"),
    ],
)
def test_bad_parts_are_refused(two: Pool, change: dict[str, int], message: str) -> None:
    maker = Part(Weights(WIDE), two, False)
    with pytest.raises(ValueError, match=message):
        Part(Weights(WIDE), two, False, q=maker.part("q", 16, 48) | change)


@pytest.mark.parametrize("heads", [(1, 1), (0, 3), (-1, 1)])
def test_bad_heads_are_refused(two: Pool, heads: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="computes|KV heads"):
        Part(Weights(WIDE), two, True, scores_heads=heads)


def test_sizes_of_caches_are_checked(two: Pool) -> None:
    small = Arena(1 << 12).alloc(64, "keys")
    with pytest.raises(ValueError, match="keys has"):
        Part(Weights(WIDE), two, True, keys=small)
