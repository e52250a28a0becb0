"""Caches that grow as tokens come: the tokens of caches that are allocated in full, and more memory while they grow."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from layer_machines import two_cpus
from op_plans import make_op_split_plan
from paged import make_paged_plan
from plans import make_hardware, make_plan
from shapes import small_model

from helmsman.executor.engine import Engine
from helmsman.executor.measuring.measure import spans_of
from helmsman.executor.programs import growing_cache
from helmsman.planner.memory.usage import memory_use
from helmsman.schemas.errors import InfeasibleError, UsageError
from helmsman.schemas.workload import Workload

Checkpoints = Callable[[str], Path]


@pytest.mark.parametrize(("family", "on_cpu", "batch"), [("qwen3", 0, 1), ("opt", 2, 2)])
def test_growing_changes_no_token(
    family: str, on_cpu: int, batch: int, checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growing_cache, "GROWTH", 8)
    plan = make_plan(
        small_model(family), on_cpu, workload=Workload(prompt_tokens=20, output_tokens=30, context=50, batch=batch)
    )
    tokens = np.random.default_rng(7).integers(3, 500, (batch, 20), dtype=np.int32)
    with Engine.load(plan, checkpoints(family), two_cpus()) as engine:
        expected = engine.generate(tokens, 30, ignore_eos=True), engine.logits(tokens, prompt=4)
    with Engine.load(plan, checkpoints(family), two_cpus(), growing=True) as engine:
        first = engine.generate(tokens, 30, ignore_eos=True)
        again = engine.generate(tokens, 30, ignore_eos=True)
        assert np.array_equal(engine.logits(tokens, prompt=4), expected[1])
    assert first.tokens == again.tokens == expected[0].tokens
    assert len(first.recorded) == 2 * 5, "24 tokens to begin with, 50 in the end: four times anew"
    assert spans_of(plan, 0, again)[-1].end_s > 0


def test_growing_needs_room_for_old_and_new(checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing_cache, "GROWTH", 64)
    work = Workload(prompt_tokens=20, output_tokens=480, context=500, batch=4)
    roomy = make_plan(small_model("qwen3"), 0, workload=work)
    needed = next(use for use in memory_use(roomy) if use.memory == "vram").used
    plan = make_plan(small_model("qwen3"), 0, workload=work, hardware=make_hardware(vram=needed))
    tokens = np.full((4, 20), 7, np.int32)
    with Engine.load(plan, checkpoints("qwen3"), two_cpus()) as engine:
        engine.generate(tokens, 480, ignore_eos=True)
    with (
        Engine.load(plan, checkpoints("qwen3"), two_cpus(), growing=True) as engine,
        pytest.raises(InfeasibleError, match="out of memory"),
    ):
        engine.generate(tokens, 480, ignore_eos=True)


def test_other_caches_do_not_grow(checkpoints: Checkpoints) -> None:
    model = small_model("qwen3")
    paged = make_paged_plan(model, workload=Workload(prompt_tokens=20, output_tokens=4, context=64))
    for plan in (paged, make_op_split_plan(model, 1, 2)):
        with pytest.raises(UsageError, match="do not grow"):
            Engine.load(plan, checkpoints("qwen3"), two_cpus(), growing=True)
