"""The cost of a request beside its bytes where many with short contexts are attended to, as online passes do.

Caches of one request and head are short and far apart: each is a new start for the memory, each new key and value a
row elsewhere. A stage that only appends and attends is run over many requests with few positions and with more; what
is not in proportion to positions is what requests cost. Other bytes are read before every run, as other layers' are in
a step."""

from collections.abc import Callable, Iterator

import numpy as np

from helmsman.executor._kernels import Arena, Pool, Stage
from helmsman.executor.devices.memory import arena_beside
from helmsman.executor.devices.specs import UniformSpec
from helmsman.executor.profile.buffers import filled_as
from helmsman.executor.profile.synthetic_stage import KV_FORMAT, MODEL
from helmsman.executor.stages.attention_block import attending_block
from helmsman.executor.stages.dense import DenseBlock, uniform
from helmsman.executor.stages.dimensions import dimensions
from helmsman.schemas.described import reshaped
from helmsman.schemas.formats import size_of

ATTENDED = reshaped(MODEL, layers=1, heads=16, kv_heads=8, qk_norm=False)
"""Heads as most models have them."""
REQUESTS = 12
SHORT_CONTEXT = 40
LONG_CONTEXT = 296
"""Positions of a request: on average half of a block of 16 is not filled."""
CAPACITY = 512
ROUNDS = 9


def measure_requests(pool: Pool, read: Callable[[Pool], float]) -> list[float]:
    """Seconds a request and layer, by round. `read`: reads more than caches hold."""
    arena = arena_beside(48 << 20)
    spec = _spec(arena)
    stage = Stage(pool, spec, arena.alloc(Stage.workspace_size(spec), "workspace"), 0)
    return list(_rounds(stage, lambda: read(pool)))


def _rounds(stage: Stage, disturb: Callable[[], float]) -> Iterator[float]:
    for _ in range(ROUNDS):
        short, long = (_run(stage, context, disturb) / REQUESTS for context in (SHORT_CONTEXT, LONG_CONTEXT))
        yield max(0.0, short - SHORT_CONTEXT * (long - short) / (LONG_CONTEXT - SHORT_CONTEXT))


def _run(stage: Stage, context: int, disturb: Callable[[], float]) -> float:
    disturb()
    first, last = stage.ops.index("0.append"), stage.ops.index("0.o")
    stamps = np.zeros(last - first + 1)
    stage.run(None, None, 1, context - 1, stamps.data, first, last)
    return float(stamps[-1] - stamps[0])


def _spec(arena: Arena) -> UniformSpec:
    return uniform(
        {
            **dimensions(ATTENDED),
            "attention": "fused",
            "attention_activations": "f32",
            "batch": REQUESTS,
            "capacity": CAPACITY,
            "context": CAPACITY,
            "paged": False,
            "max_tokens": 1,
            "kv_format": KV_FORMAT,
            "rotary_dim": 0,
            "cos": None,
            "sin": None,
            "embedding": None,
            "looked_up": False,
            "positions": None,
            "blocks": [_block(arena)],
            "final_norm": None,
            "sequences": 0,
            "passing": 0,
            "head": None,
        }
    )


def _block(arena: Arena) -> DenseBlock:
    size = size_of(REQUESTS * CAPACITY * ATTENDED.dense.kv_width, KV_FORMAT)
    keys, values = filled_as([arena.alloc(size, "keys"), arena.alloc(size, "values")], KV_FORMAT, 1.0)
    return attending_block(keys, values)
