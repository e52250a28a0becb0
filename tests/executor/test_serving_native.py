"""What the native side of serving refuses, instead of reading or writing where nothing is."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from test_stage_native import QWEN3, Native, Reference, Weights, close, prompt, view

from helmsman.executor._kernels import Arena, Buffer, Cohort, CopyEngine, Pool, Queue, Ragged, ServingPass, Stage

if TYPE_CHECKING:
    from helmsman.executor._kernels import Lanes, RaggedSpec, SubBatch

CPUS = sorted(os.sched_getaffinity(0))
ROWS, BLOCK = 64, 16


def ints(*values: Any, columns: int = 1) -> memoryview:
    return np.array(values, np.int64).reshape(-1, columns).data


def ragged(positions: list[int], sequences: list[Any], runs: list[Any], outputs: list[int]) -> Ragged:
    return Ragged(ints(*positions), ints(*sequences, columns=5), ints(*runs, columns=3), ints(*outputs))


class Served:
    """A stage for ragged passes over two layers, and the lanes of one device."""

    def __init__(self, threads: int) -> None:
        self.weights, self.arena = Weights(QWEN3), Arena(64 << 20)
        native = Native.__new__(Native)
        native.w, native.s, native.arena, native.embeds, native.heads = self.weights, QWEN3, self.arena, True, True
        uniform = native._spec(0, QWEN3.layers)
        row = QWEN3.kv_heads * QWEN3.head_dim * 4
        for block in uniform["blocks"]:
            block["keys"], block["values"] = (self.arena.alloc(ROWS * row, "cache") for _ in range(2))
        spec: RaggedSpec = {**uniform, "batch": 1, "capacity": ROWS, "max_tokens": 40, "sequences": 4, "passing": 0}
        pool = Pool([CPUS[i % len(CPUS)] for i in range(threads)])
        self.stage = Stage(pool, spec, self.arena.alloc(Stage.workspace_size(spec), "workspace"), 0)
        self.lanes: Lanes = (Queue(), None, None, None, None, None)

    def run(self, rows: Ragged, ids: list[int], **more: Any) -> list[int]:
        batch: SubBatch = (self.stage, rows, np.array(ids, np.int32).data, None, None)
        done = ServingPass(self.lanes, QWEN3.layers, [batch], **more)
        done.wait()
        return done.chosen(0)


@pytest.fixture(params=[1, 2, 3])
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    yield Served(request.param)


def test_sequences_in_scattered_blocks_are_those_alone(served: Served, isa: str) -> None:
    first, second = prompt(QWEN3, 5), prompt(QWEN3, 18, seed=1)
    runs = [(0, 5, 48), (0, 16, 32), (16, 2, 0)]
    rows = ragged([*range(5), *range(18)], [(0, 5, 0, 0, 1), (5, 18, 0, 1, 2)], runs, [4, 22])
    served.run(rows, [*first, *second])
    found = np.asarray(served.stage.logits())[:2].copy()
    for logits, tokens in zip(found, (first, second), strict=True):
        close(logits, Reference(served.weights).logits(tokens)[-1], 1e-4)
    more = ragged([5, 18], [(0, 1, 5, 0, 1), (1, 1, 18, 1, 2)], [(0, 6, 48), (0, 16, 32), (16, 3, 0)], [0, 1])
    served.run(more, [7, 9])
    for logits, tokens in zip(np.asarray(served.stage.logits()), ([*first, 7], [*second, 9]), strict=False):
        close(logits, Reference(served.weights).logits(tokens)[-1], 1e-4)
