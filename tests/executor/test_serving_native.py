"""The native side of serving: rows of several sequences against the reference, and what it refuses."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray
from test_stage_native import LLAMA, MQA, OPT, PARTIAL, QWEN3, Native, Reference, Shape, Weights, close, view

from helmsman.executor._kernels import Cohort, CopyEngine, Event, Pool, Queue, Ragged, ServingPass, Stage
from helmsman.executor.stages.dense import prepared

if TYPE_CHECKING:
    from helmsman.executor.devices.iterations import LayerCopies

CPUS = sorted(os.sched_getaffinity(0))
ROWS = 64
CODED = replace(LLAMA, head_dim=32, rotary_dim=32, kv_format="q8_0")


def ints(values: Sequence[Any], columns: int = 1) -> memoryview:
    return np.array(values, np.int64).reshape(-1, columns).data


def ragged(positions: Sequence[int], sequences: Sequence[Any], runs: Sequence[Any], outputs: Sequence[int]) -> Ragged:
    return Ragged(ints(positions), ints(sequences, 5), ints(runs, 3), ints(outputs))


class Served:
    """A whole model as a stage for ragged passes on a pool of `threads`."""

    def __init__(self, shape: Shape, threads: int = 1) -> None:
        self.shape, self.weights = shape, Weights(shape)
        native = Native(self.weights, Pool(CPUS[:1]))
        self.arena, spec = native.arena, native.spec
        for block in spec["blocks"]:
            for side in ("keys", "values"):
                size = block[side].size // shape.capacity * ROWS
                block[side] = self.arena.alloc(size, side)
                view(block[side], np.uint8)[:] = 0x7F  # nothing may be read before it is written
        spec |= {"capacity": ROWS, "context": shape.capacity, "max_tokens": 40, "sequences": 4, "passing": 0}
        pool = Pool([CPUS[i % len(CPUS)] for i in range(threads)])
        self.stage = Stage(pool, prepared(spec), self.arena.alloc(Stage.workspace_size(prepared(spec)), "workspace"), 0)
        self.queue = Queue()

    def run(self, rows: Ragged, ids: Sequence[int], **more: Any) -> list[int]:
        lanes, tokens = (self.queue, None, None, None, None, None), np.array(ids, np.int32).data
        done = ServingPass(lanes, self.shape.layers, [(self.stage, rows, tokens, None, None)], **more)
        done.wait()
        return done.chosen()

    def logits(self) -> NDArray[np.float32]:
        return np.array(self.stage.logits())


@pytest.mark.parametrize("shape", [QWEN3, OPT, CODED], ids=["qwen3", "opt", "coded"])
def test_sequences_in_scattered_blocks_are_those_alone(isa: str, shape: Shape) -> None:
    check_blocks(Served(shape, 2), 1e-3 if shape.kv_format == "q8_0" else 2e-5)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("shape", [MQA, PARTIAL], ids=["mqa", "partial"])
def test_sequences_in_scattered_blocks_are_shared_by_threads(shape: Shape, threads: int) -> None:
    check_blocks(Served(shape, threads), 2e-5)


def check_blocks(served: Served, tolerance: float) -> None:
    """Two prompts at once, a step of one beside a chunk of the other, then steps of both."""
    shape = served.shape
    first, second = (np.random.default_rng(seed).integers(0, shape.vocab, 30).tolist() for seed in range(2))

    def expect(*contexts: list[int]) -> None:
        for row, tokens in zip(served.logits(), contexts, strict=False):
            close(row, Reference(served.weights).logits(np.array([tokens], np.int32))[0, -1], tolerance)

    runs = [(0, 5, 48), (0, 16, 32), (16, 2, 0)]
    prompts = ragged([*range(5), *range(18)], [(0, 5, 0, 0, 1), (5, 18, 0, 1, 2)], runs, [4, 22])
    chosen = served.run(prompts, [*first[:5], *second[:18]])
    expect(first[:5], second[:18])
    assert chosen == served.logits()[:2].argmax(axis=1).tolist()
    mixed = ragged(
        [5, *range(18, 21)], [(0, 1, 5, 0, 1), (1, 3, 18, 1, 2)], [(0, 6, 48), (0, 16, 32), (16, 5, 0)], [3, 0]
    )
    served.run(mixed, [first[5], *second[18:21]])
    expect(second[:21], first[:6])
    steps = ragged([6, 21], [(0, 1, 6, 0, 1), (1, 1, 21, 1, 2)], [(0, 7, 48), (0, 16, 32), (16, 6, 0)], [0, 1])
    served.run(steps, [first[6], second[21]])
    expect(first[:7], second[:22])


@pytest.mark.parametrize(
    ("positions", "sequences", "runs", "outputs", "message"),
    [
        ([0], [(0, 2, 0, 0, 1)], [(0, 2, 0)], [], "rows that are not there"),
        ([0], [(0, 1, 0, 0, 2)], [(0, 1, 0)], [], "runs that are not there"),
        ([0, 1], [(0, 2, 0, 0, 1)], [(0, 1, 0)], [], "cached up to position 1 only"),
        ([0, 1], [(0, 2, 0, 0, 2)], [(0, 1, 0), (2, 1, 5)], [], "gap at position 1"),
        ([0], [(0, 1, 0, 0, 1), (0, 1, 0, 0, 1)], [(0, 1, 0)], [], "shares rows"),
        ([0], [(0, 1, 0, 0, 1)], [(0, 1, 0)], [1], "output 1 of 1 rows"),
        ([-1], [], [], [], "positions must be between 0"),
    ],
)
def test_rows_that_contradict_each_other_are_refused(
    positions: list[int], sequences: list[Any], runs: list[Any], outputs: list[int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        ragged(positions, sequences, runs, outputs)
    with pytest.raises(ValueError, match="must be int64"):
        Ragged(np.zeros(1, np.int32).data, ints([]), ints([]), ints([]))


def test_passes_that_a_stage_cannot_run_are_refused() -> None:
    served = Served(LLAMA)
    one = ragged([0], [(0, 1, 0, 0, 1)], [(0, 1, 0)], [0])
    for rows, ids, message in (
        (one, [], "every row needs a token"),
        (one, [101], "token id 101 is outside the vocabulary"),
        (ragged([40], [], [], []), [1], "positions .41. exceed 40"),
        (ragged([0], [(0, 1, 0, 0, 1)], [(0, 1, ROWS)], []), [1], "rows of caches .65. exceed 64"),
        (ragged([0] * 41, [], [], []), [1] * 41, "rows .41. exceed 40"),
        (ragged([0] * 5, [], [], range(5)), [1] * 5, "outputs .5. exceed 4"),
    ):
        with pytest.raises(ValueError, match=message):
            served.run(rows, ids)
    side = served.arena.alloc(256, "a cache"), 64, 4
    copies: LayerCopies = side, side, ints([(0, 60, 8)], 3)
    with pytest.raises(ValueError, match="source has 256 bytes"):
        served.run(one, [1], swap_in=copies)
    with pytest.raises(ValueError, match="need a link both ways"):
        served.run(one, [1], swap_in=(side, side, ints([(0, 8, 8)], 3)))
    assert len(served.run(one, [1])) == 1, "what was refused has left nothing behind"


def test_cohorts_that_do_not_match_are_refused() -> None:
    served = Served(LLAMA)
    kept = served.arena.alloc(Cohort.size(served.stage, 2), "a cohort")
    cohort = Cohort(served.stage, served.stage, kept, 2)
    assert (cohort.layer, cohort.landed) == (None, True)
    with pytest.raises(ValueError, match="kept has"):
        Cohort(served.stage, served.stage, kept, 3)
    one = ragged([0], [(0, 1, 0, 0, 1)], [(0, 1, 0)], [0])
    begins = cohort, one, one, ints([]), False, False
    for joining, message in (
        ([(cohort, one, one, ints([0]), False, False)], "must be one of those under way"),
        ([(cohort, one, one, ints([0]), False, True)], "may stay in the second"),
        ([begins], "attention on the host needs"),
        ([begins, begins], "only one at a layer"),
    ):
        with pytest.raises(ValueError, match=message):
            served.run(one, [1], joining=joining)


def test_the_host_attends_to_layers_that_there_are() -> None:
    served, rows = Served(LLAMA), ragged([0], [(0, 1, 0, 0, 1)], [(0, 1, 0)], [])
    with pytest.raises(ValueError, match="no such layer"):
        served.queue.attend_ragged(served.stage, rows, LLAMA.layers)
    with pytest.raises(ValueError, match="positions"):
        served.queue.attend_ragged(served.stage, ragged([999], [], [], []), 0)
    assert (rows.positions, rows.cached, rows.outputs) == ([0], [0], [])
    assert ragged([5, 7], [(1, 1, 7, 0, 1)], [(0, 8, 16)], [1]).sequences == [(1, 1, 7, [(0, 8, 16)])]


def test_of_tasks_that_need_not_wait_the_lowest_rank_is_first() -> None:
    """Among those that follow each other; one without a rank is neither passed nor passes."""
    served, rows = Served(LLAMA), ragged([0], [(0, 1, 0, 0, 1)], [(0, 1, 0)], [])
    begin, late = Event(), Event()
    ranks = [None, 3, 0, 1, 1, None, -5]
    spans, done = np.zeros((len(ranks), 2)), [Event() for _ in ranks]
    for rank, span, end in zip(ranks, spans, done, strict=True):
        wait = [begin] if end is done[0] else [late] if rank == 0 else []
        served.queue.attend_ragged(served.stage, rows, 0, span.data, wait, end, rank)
    begin.signal()
    done[1].wait()
    late.signal()
    served.queue.synchronize()
    assert np.argsort(spans[:, 0]).tolist() == [0, 3, 4, 1, 2, 5, 6]


def test_copies_of_pieces_take_as_long_as_their_bytes() -> None:
    """A list of pieces is one transfer: one latency, and all of its bytes."""
    served = Served(LLAMA)
    engine, other = CopyEngine(1e6, 1e-3, -1), CopyEngine(1e6, 1e-3, -1)
    source, target = (served.arena.alloc(4096, what) for what in ("source", "target"))
    view(source, np.uint8)[:] = np.arange(4096) % 251
    pieces = ints([(0, 1000, 400), (2048, 0, 600)], 3)
    lanes = (served.queue, None, other, engine, None, None)
    rows = ragged([0], [(0, 1, 0, 0, 1)], [(0, 1, 0)], [0])
    batch = (served.stage, rows, np.array([1], np.int32).data, None, None)
    done = ServingPass(lanes, 2, [batch], swap_in=((source, 0, 2), (target, 0, 2), pieces))
    done.wait()
    resolution = 1e-9  # of differences of a clock that has run for days
    assert done.seconds()["swap_in"] >= 2 * (1e-3 + 1000 / 1e6) - resolution
    found, given = view(target, np.uint8), view(source, np.uint8)
    np.testing.assert_array_equal(found[:400], given[1000:1400])
    np.testing.assert_array_equal(found[2048:2648], given[:600])
    assert not found[400:2048].any()
