"""A stage whose matrices are in formats of all kinds against the same values in f64."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from block_oracle import packed, restored
from test_stage_native import CPUS, LLAMA, Native, Reference, Weights, close, prompt, view

from helmsman.executor import _kernels as kernels
from helmsman.executor._kernels import CopyEngine, Pool, Stage
from helmsman.executor.stages.dense import prepared

if TYPE_CHECKING:
    from helmsman.schemas.formats import StoredFormat

SHAPE = replace(LLAMA, hidden=256, heads=4, kv_heads=2, head_dim=64, rotary_dim=64, ffn=256)
FORMATS: "dict[str, StoredFormat]" = {
    "embedding": "q6_k",
    "q": "q8_0",
    "k": "f16",
    "v": "q6_k",
    "o": "q4_k",
    "gate": "q4",
    "up": "bf16",
    "down": "q4_0",
    "head": "q8",
}


class Mixed(Native):
    """Neighbours that share an input want it as f32 and as 16-bit numbers by turns."""

    def _linear(self, name: str, bias: bool = True) -> Any:
        fmt, values = FORMATS[name.split(".")[-1]], self.w.values[name]
        rows, columns = values.shape
        buffer = packed(values, "f32", fmt, rows, columns)
        self.w.values[name] = restored(buffer, fmt, rows, columns)
        return {"weight": buffer, "format": fmt, "rows": rows, "columns": columns, "bias": None}


@pytest.fixture(scope="module", params=[1, 2])
def pool(request: pytest.FixtureRequest) -> Pool:
    return Pool([CPUS[0], CPUS[-1]][: request.param])


@pytest.mark.parametrize("batch", [1, 3])
def test_formats_of_all_kinds_in_one_stage(isa: str, pool: Pool, batch: int) -> None:
    weights = Weights(replace(SHAPE, batch=batch))
    native, ids = Mixed(weights, pool), prompt(weights.shape, 24)
    expected, tolerance = Reference(weights).logits(ids), 2e-4
    native.run(ids[:, :21], 0)
    close(native.logits(), expected[:, 20], tolerance)
    for token in range(21, 24):
        native.run(ids[:, token : token + 1], token)
        close(native.logits(), expected[:, token], tolerance)


def test_quantised_rows_are_looked_up(isa: str, pool: Pool) -> None:
    weights = Weights(SHAPE)
    whole, ids = Mixed(weights, pool), prompt(SHAPE, 9)
    size = 9 * kernels.packed_size("q6_k", 16, SHAPE.hidden) // 16
    rows, numbers = whole.arena.alloc(size, "rows"), whole.arena.alloc(ids.nbytes, "ids")
    view(numbers, np.int32)[:] = ids.ravel()
    table, engine = whole.spec["embedding"], CopyEngine(1e12, 0.0, -1)
    engine.wait(engine.submit_lookup(rows, 0, table["weight"], "q6_k", SHAPE.vocab, SHAPE.hidden, numbers, 9))
    spec = {**whole.spec, "looked_up": True, "max_tokens": 9, "embedding": {**table, "weight": rows, "rows": 9}}
    expected = whole.run(ids, 0), whole.logits()
    whole.stage = Stage(pool, prepared(spec), whole.arena.alloc(Stage.workspace_size(prepared(spec)), "workspace"), 0)
    np.testing.assert_array_equal(whole.run(ids, 0), expected[0])
    np.testing.assert_array_equal(whole.logits(), expected[1])
