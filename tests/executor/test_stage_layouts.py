"""Stages whose blocks have different widths: each operation has its own, and rows have their places by layer."""

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from test_stage_native import LLAMA, QWEN3, Native, Shape, Weights, view

from helmsman.executor._kernels import Arena, Pool, ServingPass, Stage
from helmsman.executor.devices.torch.regions import regions_of
from helmsman.executor.stages.dense import prepared

NARROW = replace(LLAMA, layers=3)
"""Three layers, so that block 1 is neither the first nor the last: no embedding, no head."""
WIDE = replace(QWEN3, hidden=NARROW.hidden, ffn=104, layers=3, capacity=NARROW.capacity, qk_norm=True, norm=NARROW.norm)


@pytest.fixture(scope="module")
def pool() -> Pool:
    cpus = sorted(os.sched_getaffinity(0))
    return Pool([cpus[0], cpus[-1]])


def alone(shape: Shape, pool: Pool) -> Native:
    return Native(Weights(shape), pool, 1, 2)


def joined(first: Native, second: Native) -> Any:
    """One stage of the blocks of two."""
    one, other = prepared(first.spec), prepared(second.spec)
    operations = [*one["operations"], *({**op, "block": 1} for op in other["operations"])]
    room = dict.fromkeys(one["room"], 0)
    return {**one, "room": room, "blocks": 2, "operations": operations}


@pytest.mark.parametrize("shapes", [(NARROW, WIDE), (WIDE, NARROW)], ids=["wider", "narrower"])
def test_blocks_of_different_widths_pass_as_they_do_alone(pool: Pool, shapes: tuple[Shape, Shape]) -> None:
    first, second = (alone(shape, pool) for shape in shapes)
    states = np.random.default_rng(2).standard_normal((1, 9, NARROW.hidden)).astype(np.float32)
    passes = [(states[:, :6], 0), (states[:, 6:7], 6), (states[:, 7:], 7)]
    expected = [second.run(first.run(given, past).copy(), past).copy() for given, past in passes]
    spec = joined(first, second)
    both = alone(shapes[0], pool)
    both.workspace = Arena(1 << 22).alloc(Stage.workspace_size(spec), "workspace")
    view(both.workspace, np.uint32)[:] = 0x7FC00000
    both.stage = Stage(pool, spec, both.workspace, 5)
    assert both.stage.ops[0] == "5.norm1"
    assert both.stage.ops[-1] == "6.down"
    for (given, past), wanted in zip(passes, expected, strict=True):
        np.testing.assert_array_equal(both.run(given, past), wanted)


def test_values_in_other_places_are_named_by_layer_alike_on_all_devices(pool: Pool) -> None:
    spec = joined(alone(NARROW, pool), alone(WIDE, pool))
    stage = Stage(pool, spec, Arena(1 << 22).alloc(Stage.workspace_size(spec), "workspace"), 5)
    regions = stage.regions()
    assert regions["q"]["row_bytes"] == 4 * NARROW.heads * NARROW.head_dim
    assert regions["6.q"]["row_bytes"] == 4 * WIDE.heads * WIDE.head_dim
    assert regions_of(spec, 5).at == regions
    assert "6.hidden" not in regions


def test_a_stage_without_room_of_its_own_has_that_of_the_model(pool: Pool) -> None:
    """Rows of stages of different layouts have the same places where `room` is that of both."""
    spec = prepared(alone(NARROW, pool).spec)
    both = {name: max(10 * size, 4000) for name, size in spec["room"].items()}
    stages = []
    for room in (spec["room"], both):
        roomy: Any = {**spec, "room": room}
        stages.append(Stage(pool, roomy, Arena(1 << 24).alloc(Stage.workspace_size(roomy), "workspace"), 0))
    assert stages[0].regions()["q"]["offset"] < stages[1].regions()["q"]["offset"]


def test_rows_of_requests_do_not_cross_between_blocks_of_different_widths(pool: Pool) -> None:
    spec = joined(alone(NARROW, pool), alone(WIDE, pool))
    spec |= {"sequences": 1, "passing": 0}
    stage = Stage(pool, spec, Arena(1 << 22).alloc(Stage.workspace_size(spec), "workspace"), 0)
    with pytest.raises(ValueError, match="laid out alike"):
        serve(stage)


def serve(stage: Stage) -> None:
    from test_serving_native import ragged

    from helmsman.executor._kernels import Queue

    rows = ragged([0], [(0, 1, 0, 0, 1)], [(0, 1, 0)], [0])
    ServingPass((Queue(), None, None, None, None, None), 2, [(stage, rows, np.zeros(1, np.int32).data, stage, rows)])
